/* The tokens of a byte-level vocabulary as bytes, copied from GGUF metadata.  Not changed after
 * open. */
#ifndef HEARTH_SCHEDULER_VOCABULARY_H
#define HEARTH_SCHEDULER_VOCABULARY_H

#include <stdint.h>

#include "common/error.h"
#include "common/gguf.h"
#include "scheduler/words.h"

/* Numbers of tokenizer.ggml.token_type. */
enum token_type {
	TOKEN_NORMAL = 1,
	TOKEN_UNKNOWN = 2,
	TOKEN_CONTROL = 3,
	TOKEN_USER_DEFINED = 4,
	TOKEN_UNUSED = 5,
	TOKEN_BYTE = 6,
};

struct vocabulary {
	uint32_t n;
	uint8_t *bytes;            /* of all tokens, one behind the other */
	uint32_t *first;           /* (n + 1): token i is bytes[first[i]] .. bytes[first[i + 1]] */
	uint8_t *type;             /* (n), an enum token_type */
	struct words normal;       /* by their bytes: what words are merged to */
	struct words special;      /* by their text: control and user-defined tokens */
	uint32_t *special_lengths; /* each length a special token has, longest first */
	uint32_t n_special_lengths;
	bool special_begins[256]; /* a special token begins with this byte */
	uint32_t byte_ids[256];
};

/* A token of the `gpt2` model is stored with each byte as one printable character; special ones are
 * stored as they are.  -EINVAL: not such a vocabulary. */
int vocabulary_open(struct vocabulary *ret, const struct gguf *gguf, struct error *err);
void vocabulary_close(struct vocabulary *vocabulary); /* of a zeroed one is fine */

/* Turns stored text into bytes; at most text.bytes of them.  Text with a character that stands for
 * no byte is its own bytes. */
uint32_t vocabulary_unpack(struct gguf_string text, uint8_t *ret);

#endif
