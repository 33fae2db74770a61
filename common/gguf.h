/* GGUF (v2, v3, little-endian): a view of a file's header that somebody holds in memory.
 * Nothing is copied: keys, strings and arrays point into the given bytes, which the caller keeps.
 * The two tables belong to the view.  Every count and length is checked against the bytes there are
 * before anything is allocated or pointed at; a message names the file, the key or tensor, what
 * stood there and what would be right.
 * Format: the GGUF specification of the ggml project. */
#ifndef HEARTH_COMMON_GGUF_H
#define HEARTH_COMMON_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum gguf_kind {
	GGUF_U8 = 0,
	GGUF_I8 = 1,
	GGUF_U16 = 2,
	GGUF_I16 = 3,
	GGUF_U32 = 4,
	GGUF_I32 = 5,
	GGUF_F32 = 6,
	GGUF_BOOL = 7,
	GGUF_STRING = 8,
	GGUF_ARRAY = 9,
	GGUF_U64 = 10,
	GGUF_I64 = 11,
	GGUF_F64 = 12,
};

struct gguf_string {
	const char *at; /* not terminated */
	uint64_t bytes;
};

struct gguf_pair {
	struct gguf_string key;
	enum gguf_kind kind;
	enum gguf_kind element; /* of an array; arrays of arrays are refused */
	uint64_t count;         /* of an array, else 1 */
	const uint8_t *at;      /* the value; of an array, the first element */
};

#define GGUF_MAX_DIMS 4
#define GGUF_MAX_NAME 64 /* ggml's limit, terminator included */

struct gguf_tensor {
	struct gguf_string name;      /* 1 to GGUF_MAX_NAME - 1 bytes, no NUL among them */
	uint32_t type;                /* supported: type_find() knows it */
	uint32_t n_dims;              /* 1 to 4 */
	uint64_t dims[GGUF_MAX_DIMS]; /* dims[0] is contiguous; 1 beyond n_dims; none is 0 */
	uint64_t offset;              /* in the file */
	uint64_t bytes;
};

struct gguf {
	uint32_t version;
	uint64_t alignment;
	uint64_t header_bytes; /* through the last tensor's entry */
	uint64_t data_offset;  /* of the first tensor's bytes in the file */
	uint64_t n_pairs;
	struct gguf_pair *pairs;
	uint64_t n_tensors;
	struct gguf_tensor *tensors; /* in the file's order */
};

/* `bytes` holds the first `n` of the file's `file_bytes`; `file` is its name for messages.
 * -ENODATA: the header goes on behind n (only if n < file_bytes): call again with more. */
int gguf_parse(struct gguf *ret, const void *bytes, uint64_t n, uint64_t file_bytes,
	       const char *file, struct error *err);
void gguf_close(struct gguf *gguf); /* of a zeroed one is fine */

const struct gguf_pair *gguf_find(const struct gguf *gguf, const char *key); /* NULL: none */

/* 1 = there, 0 = no such key, -EINVAL = another kind (the message says which; integers of any width
 * that fit are accepted by find_u64, floats of both widths by find_f64). */
int gguf_find_u64(const struct gguf *gguf, const char *key, uint64_t *ret, struct error *err);
int gguf_find_f64(const struct gguf *gguf, const char *key, double *ret, struct error *err);
int gguf_find_bool(const struct gguf *gguf, const char *key, bool *ret, struct error *err);
int gguf_find_string(const struct gguf *gguf, const char *key, struct gguf_string *ret,
		     struct error *err);

/* Steps through an array of strings: *at starts as pair->at; each call gives the next one. */
struct gguf_string gguf_next_string(const uint8_t **at);

bool gguf_string_is(struct gguf_string string, const char *text);

#endif
