/* Makes GGUF files for tests, byte by byte: right ones with builder_*, wrong ones by putting other
 * counts, offsets or raw bytes in their place.  Dies (assert) on its own mistakes: it is a test. */
#ifndef HEARTH_TESTS_GGUF_BUILDER_H
#define HEARTH_TESTS_GGUF_BUILDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/gguf.h"

struct bytes {
	uint8_t *at;
	size_t n, room;
};

void bytes_put(struct bytes *bytes, const void *from, size_t n);
void bytes_zero(struct bytes *bytes, size_t n);
void bytes_u32(struct bytes *bytes, uint32_t value);
void bytes_u64(struct bytes *bytes, uint64_t value);
void bytes_string(struct bytes *bytes, const char *text); /* length and bytes */
void bytes_write(const struct bytes *bytes, const char *path);
void bytes_close(struct bytes *bytes);

struct builder {
	uint32_t version;
	uint32_t alignment; /* of the data; the key general.alignment is the test's to add */
	uint64_t n_pairs, n_tensors; /* as the header will say: a test may change them */
	struct bytes pairs, infos, data;
};

void builder_open(struct builder *b); /* v3, alignment 32, nothing in it */
void builder_close(struct builder *b);

void builder_u16(struct builder *b, const char *key, uint16_t value);
void builder_u32(struct builder *b, const char *key, uint32_t value);
void builder_u64(struct builder *b, const char *key, uint64_t value);
void builder_f32(struct builder *b, const char *key, float value);
void builder_bool(struct builder *b, const char *key, bool value);
void builder_string(struct builder *b, const char *key, const char *value);
void builder_strings(struct builder *b, const char *key, const char *const *values, uint64_t n);
void builder_i32s(struct builder *b, const char *key, const int32_t *values, uint64_t n);
/* Any kind with any bytes behind it. */
void builder_raw(struct builder *b, const char *key, uint32_t kind, const void *value, size_t n);

/* Appends the data (NULL: zeros), aligned, and the entry that points to it. */
void builder_tensor(struct builder *b, const char *name, uint32_t type, uint32_t n_dims,
		    const uint64_t *dims, const void *data, size_t bytes);
/* The entry alone. */
void builder_entry(struct builder *b, const char *name, uint32_t type, uint32_t n_dims,
		   const uint64_t *dims, uint64_t offset);

/* The whole file; the caller closes *ret. */
void builder_finish(const struct builder *b, struct bytes *ret);
void builder_write(const struct builder *b, const char *path);

/* A complete small qwen3moe model with seeded weights. */
struct tiny {
	const char *name; /* general.name */
	uint32_t layers, hidden, heads, kv_heads, head_dim;
	uint32_t experts, top_k, width, vocabulary, context;
	uint32_t type;        /* of embedding, attention and output: F32, F16, BF16, Q8_0, Q4_0 */
	uint32_t expert_type; /* of the experts, likewise */
	uint32_t file_type;   /* general.file_type; 0: none */
	bool tied;
	uint32_t seed;
};

/* 2 layers, hidden 64, 4 heads over 2, head_dim 32, 8 experts (2 used) of 32, vocabulary 96, F32.
 */
struct tiny tiny_default(void);

/* Adds keys and tensors to an opened builder. */
void tiny_build(struct builder *b, const struct tiny *tiny);
void tiny_write(const struct tiny *tiny, const char *path);

/* Tensors of part `part` (from 0) of `parts`, in runs of the order of tiny_build, with split.*
 * keys; all other keys in the first part alone, as split files have it. */
void tiny_build_part(struct builder *b, const struct tiny *tiny, uint32_t part, uint32_t parts);
/* Writes <stem>-00001-of-0000N.gguf ... */
void tiny_write_split(const struct tiny *tiny, const char *stem, uint32_t parts);
void tiny_split_path(char *ret, size_t room, const char *stem, uint32_t part, uint32_t parts);

#endif
