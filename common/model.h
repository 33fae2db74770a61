/* The model's shape and where its tensors lie, checked whole: architecture, every tensor's
 * presence, dimensions and type.  Read from GGUF metadata and a list of tensors; plain data, no
 * pointers into either.  The loader reads it to refuse a model before anything is loaded, everybody
 * else from the arena.  Architecture: qwen3moe (Qwen3-30B-A3B and relatives), names as GGUF files
 * hold them. */
#ifndef HEARTH_COMMON_MODEL_H
#define HEARTH_COMMON_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/gguf.h"

struct matrix {
	uint64_t offset; /* in the arena */
	uint64_t bytes;
	uint32_t type;
	uint32_t rows;    /* outputs */
	uint32_t columns; /* inputs, contiguous; a vector has rows = 1 */
	uint32_t tensor;  /* index in the arena's table */
};

enum role { ROLE_GATE, ROLE_UP, ROLE_DOWN, N_ROLES };

/* One role of all experts of a layer: expert e lies at offset + e * stride in the arena, whatever
 * the file's layout was. */
struct experts {
	uint64_t offset;
	uint64_t stride; /* bytes from one expert to the next */
	uint64_t bytes;  /* of one expert */
	uint32_t type;
	uint32_t rows;
	uint32_t columns;
	uint32_t tensor;
};

struct model_layer {
	struct matrix attn_norm; /* (1, hidden), F32 */
	struct matrix q, k, v;   /* (heads * head_dim, hidden), (kv_heads * head_dim, hidden) x 2 */
	struct matrix q_norm, k_norm; /* (1, head_dim), F32; over each head */
	struct matrix out;            /* (hidden, heads * head_dim) */
	struct matrix ffn_norm;       /* (1, hidden), F32 */
	struct matrix router;         /* (experts, hidden) */
	struct experts
	    role[N_ROLES]; /* gate, up: (expert_width, hidden); down: (hidden, expert_width) */
};

struct model {
	char name[128]; /* general.name, or the architecture */
	uint32_t n_layers;
	uint32_t hidden;
	uint32_t heads, kv_heads, head_dim;
	uint32_t n_experts, top_k, expert_width;
	uint32_t vocabulary;
	uint32_t context; /* the longest it was trained for */
	float rope_base;
	float norm_epsilon;
	bool tied;               /* the output head is the embedding */
	struct matrix embedding; /* (vocabulary, hidden) */
	struct matrix output_norm;
	struct matrix output; /* (vocabulary, hidden) */
	struct model_layer *layers;
};

/* `gguf` gives the metadata, `tensors` (of all shards) names, shapes, types and places.  Offsets
 * may still be 0: then only the shapes hold.  `file` is for messages. */
int model_read(struct model *ret, const struct gguf *gguf, const struct arena_tensor *tensors,
	       uint64_t n_tensors, const char *file, struct error *err);

/* From an arena's directory. */
int model_read_arena(struct model *ret, const struct arena *arena, struct error *err);

void model_close(struct model *model); /* of a zeroed one is fine */

/* The MoE layer whose experts a tensor holds, and its role (may be NULL); -1: a trunk tensor. */
int model_expert_layer(const char *tensor_name, enum role *ret_role);

/* Where one role of an expert lies in the arena; 0: outside the resident budget. */
uint64_t arena_expert_offset(const struct arena *arena, const struct model *model, uint32_t layer,
			     uint32_t expert, enum role role);

/* An expert copied into a slot: its roles side by side, each at a multiple of EXPERT_ALIGN. */
#define EXPERT_ALIGN 256u
uint64_t model_slot_offset(const struct model_layer *layer, enum role role);
uint64_t model_slot_bytes(const struct model *model); /* room for an expert of any layer */

#endif
