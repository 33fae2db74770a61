/* The kernels of compute_cuda, each behind a launcher that plain C can call.  All pointers are
 * addresses that the device can read; a stream is a cudaStream_t; launchers wait for nothing and
 * return 0, or -EIO with the kernel's name and the reason, or -ENOTSUP (too little shared memory).
 *
 * No output depends on how many tokens a launch computes: each sum has one order.  Grids depend on
 * shapes only, never on data, so that a whole token can be one captured graph.  Vectors are f32,
 * (tokens, stride) with stride a multiple of 4, and those that are multiplied by matrices of
 * quantised types lie in fixed point too (cuda_fixed.cuh).
 *
 * A layer is six kernels: cuda_multiply_normed, cuda_attend, cuda_multiply, cuda_route,
 * cuda_experts_in, cuda_experts_out; for several tokens cuda_attend and the last two are two each
 * or more, and the first is cuda_normed and cuda_multiply. */
#ifndef HEARTH_WORKER_CUDA_KERNELS_H
#define HEARTH_WORKER_CUDA_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/error.h"
#include "common/model.h"
#include "worker/compute.h"
#include "worker/share_record.h"

#define CUDA_ROW_ALIGN 32u /* floats: a row of activations starts on a cache line */

/* What a forward is about; lies on the device, so that a captured graph can be used again. */
struct cuda_input {
	uint32_t pos; /* of the first token */
	uint32_t ids[COMPUTE_BATCH];
	float share;   /* of a layer's experts in host memory: left to the CPU */
	uint64_t turn; /* of the forward, ever greater */
};

struct cuda_matrix {
	const void *at; /* a multiple of 2 */
	uint64_t row_bytes;
	uint32_t type;
	uint32_t rows;
};

/* Up to three matrices over the same input: their outputs lie side by side. */
struct cuda_matrices {
	struct cuda_matrix of[3];
	uint32_t n;
	uint32_t columns;
};

struct cuda_rows {
	float *at;
	uint32_t stride;
};

/* Rows in fixed point, CUDA_FIXED_BYTES(columns) or more each.  Where `columns` is no multiple of
 * 32 no matrix over them is of a quantised type, and what lies there is not for use. */
#define CUDA_FIXED_BLOCK 256u /* columns */
#define CUDA_FIXED_BLOCK_BYTES 656u
#define CUDA_FIXED_BYTES(columns) \
	(((columns) + CUDA_FIXED_BLOCK - 1) / CUDA_FIXED_BLOCK * CUDA_FIXED_BLOCK_BYTES)

struct cuda_fixed {
	uint8_t *at;     /* a multiple of 16 */
	uint32_t stride; /* bytes, a multiple of 16 */
};

/* The same rows in both forms. */
struct cuda_vectors {
	struct cuda_rows rows;
	struct cuda_fixed fixed;
};

/* RMS norm over a row, on its way into a product. */
struct cuda_norm {
	const float *weight;
	float epsilon;
};

bool cuda_type_known(uint32_t type);

/* to[t] = row in->ids[t] of the embedding. */
int cuda_embed(void *stream, const struct cuda_matrix *embedding, uint32_t columns,
	       const struct cuda_input *in, struct cuda_rows to, uint32_t tokens,
	       struct error *err);

/* to[t] = from[t], normed. */
int cuda_normed(void *stream, struct cuda_rows from, const struct cuda_norm *norm, uint32_t columns,
		struct cuda_vectors to, uint32_t tokens, struct error *err);

/* to[t] = matrices * from[t]; `add`: added to what is there. */
int cuda_multiply(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
		  struct cuda_rows to, bool add, uint32_t tokens, struct error *err);

/* to[t] = matrices * (from[t], normed). */
int cuda_multiply_normed(void *stream, const struct cuda_matrices *matrices, struct cuda_rows from,
			 const struct cuda_norm *norm, struct cuda_rows to, uint32_t tokens,
			 struct error *err);

/* Keys and values of a layer, (kv_heads, CUDA_KV_TILES(context), CUDA_KV_GROUPS(head_dim)) tiles
 * each.  A tile has 32 columns of 32 positions in fixed point, two bytes a column and a unit for
 * the 32 of a position; columns behind head_dim are 0.  Not f16: that rounding alone turns close
 * choices of the router, and with them tokens whose lead is 0.2 (tests/test_gpu_golden.c).
 *
 * The bytes lie as the lanes of a warp want them for products of bytes (cuda_attend.cuh), in runs
 * of 8 high bytes and their 8 low bytes.  Of keys a run is 8 columns of a position: position p,
 * columns 8 * c .. are run (p % 8 / 2, 8 * (p / 8) + 4 * (p % 2) + c).  Of values it is a column of
 * 8 positions: column c of positions 8 * p .. is run (c / 8, 4 * (c % 8) + p). */
#define CUDA_KV_TILE 32u /* positions, columns */

struct cuda_kv_tile {
	float unit[CUDA_KV_TILE]; /* of each position */
	uint8_t run[4][CUDA_KV_TILE][16];
};

#define CUDA_KV_TILES(context) (((context) + CUDA_KV_TILE - 1) / CUDA_KV_TILE)
#define CUDA_KV_GROUPS(head_dim) (((head_dim) + CUDA_KV_TILE - 1) / CUDA_KV_TILE)

struct cuda_attention {
	uint32_t heads, kv_heads, head_dim, context;
	float epsilon;
	const float *q_norm, *k_norm;       /* (head_dim) */
	const float *frequency;             /* (head_dim / 2), radians a position */
	struct cuda_rows qkv;               /* (tokens, heads + 2 * kv_heads, head_dim) */
	struct cuda_kv_tile *keys, *values; /* at multiples of 16 */
	struct cuda_vectors out;            /* (tokens, heads, head_dim) */
	float *partial;                     /* cuda_partial_floats of them */
	uint32_t *arrived;                  /* cuda_arrived_counts of them, 0 between launches */
	uint32_t at_once; /* tokens that partial and arrived have room for, at least 1 */
};

uint64_t cuda_partial_floats(uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
			     uint32_t at_once);
uint64_t cuda_arrived_counts(uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
			     uint32_t at_once);

/* Norm over each head of q and k, rotary, keys and values to the cache at in->pos on, and q against
 * the cache to a->out. */
int cuda_attend(void *stream, const struct cuda_attention *a, const struct cuda_input *in,
		uint32_t tokens, struct error *err);

/* The choices of one expert among those of several tokens. */
struct cuda_group {
	uint32_t expert, first, count; /* members[first] to members[first + count - 1] */
};

#define CUDA_GROUPS(experts, pairs) ((experts) < (pairs) ? (experts) : (pairs))

/* Experts that a CPU computes: orders and answers of share_record.h.  For one token at a time; up
 * to 32 of top_k. */
struct cuda_share {
	const struct cuda_input *in;
	struct share_order *order; /* NULL: none are */
	const struct share_answer *answer;
	const uint8_t *memory; /* which the CPU reads too, memory_bytes of it */
	uint64_t memory_bytes;
	struct share_seen *seen; /* of this layer */
	uint32_t *given;         /* (top_k): 0, or 1 + the expert's place in the order */
	uint32_t *arrived;       /* 0 between launches */
	unsigned long long *met; /* sequence of the last answer that was seen */
	uint32_t layer, layers;
};

struct cuda_moe {
	struct cuda_share share;
	const struct expert_place *places; /* (experts), of this layer */
	bool behind_copy;                  /* a copy to `places` comes before cuda_experts_in */
	uint32_t type[N_ROLES];
	uint64_t row_bytes[N_ROLES];
	uint32_t hidden, width, experts, top_k;
	struct cuda_matrix router;
	struct cuda_norm norm;
	struct cuda_rows h;       /* (tokens, hidden): the experts' sum is added */
	struct cuda_vectors x;    /* (tokens, hidden), h normed */
	struct cuda_rows logits;  /* (tokens, experts) */
	uint32_t *arrived;        /* (tokens), 0 between launches */
	uint32_t *chosen;         /* (tokens, top_k), the likeliest first */
	unsigned long long *used; /* (experts): each choice adds 1; NULL: not counted */
	float *weights;           /* as chosen; they add up to 1 */
	struct cuda_vectors act;  /* (tokens, top_k): each a row of `width`, weighted */
	/* Of more than one token: */
	struct cuda_group *groups; /* CUDA_GROUPS(experts, tokens * top_k); the last may be empty */
	uint32_t *members;         /* (tokens * top_k): places in `chosen`, each once */
	struct cuda_rows products; /* (tokens, top_k): each a row of `hidden` */
};

/* x, logits = router x, softmax over them, the top_k (the lower index first among equals), weights
 * renormalised. */
int cuda_route(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err);
/* act = weight * silu(gate x) * (up x) of each chosen expert.  Each expert's rows are read once,
 * however many tokens chose it. */
int cuda_experts_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err);
/* h += down act of each chosen expert, each a sum of its own, in the order of chosen; behind
 * cuda_experts_in. */
int cuda_experts_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err);

/* The first of the greatest of a row of logits, as sample_greatest() (sample.h) has it. */
struct cuda_greatest {
	uint32_t id;
	float logit;
};

#define CUDA_GREATEST_PART 2048u /* logits, of a block */
#define CUDA_GREATEST_PARTS(vocabulary) \
	(((vocabulary) + CUDA_GREATEST_PART - 1) / CUDA_GREATEST_PART)

struct cuda_pick {
	struct cuda_rows logits; /* (1, vocabulary), at a multiple of 16 */
	uint32_t vocabulary;
	unsigned long long *parts; /* CUDA_GREATEST_PARTS(vocabulary) */
	uint32_t *arrived;         /* 0 between launches */
	struct cuda_greatest *ret; /* (2), where the host reads too: this one goes to turn % 2 */
	struct cuda_input *in;     /* becomes the next token's, of the next turn */
	uint32_t tokens;           /* that `in` is about */
};

int cuda_pick_greatest(void *stream, const struct cuda_pick *pick, struct error *err);

/* Waits for all that was launched.  -EIO: some of it failed. */
int cuda_finish(void *stream, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
