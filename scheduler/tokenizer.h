/* Text to token ids and back, for models whose GGUF metadata holds a byte-level BPE vocabulary (the
 * `gpt2` model).  Copied from the metadata, which may go away afterwards.  Not changed after open:
 * any number of threads may use it at once. */
#ifndef HEARTH_SCHEDULER_TOKENIZER_H
#define HEARTH_SCHEDULER_TOKENIZER_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/gguf.h"

struct tokenizer;

/* -ENOTSUP, -EINVAL: this file has none, or one that is not supported; the message says why. */
int tokenizer_open(struct tokenizer **ret, const struct gguf *gguf, struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

/* "qwen2", ... */
const char *tokenizer_name(const struct tokenizer *tokenizer);
uint32_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

/* Special tokens are found in the text first (the leftmost, and of those the longest), the rest is
 * cut into words and merged.  Bytes that are no UTF-8 become byte tokens.  *ret is malloc'd (not
 * NULL for none).  */
int tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n,
		     uint32_t **ret_ids, uint32_t *ret_n, struct error *err);

/* The bytes a token stands for; none for a control token or an id that is no token. */
const uint8_t *tokenizer_text(const struct tokenizer *tokenizer, uint32_t id, size_t *ret_n);

/* Tokens that end an answer: end of sequence, end of turn. */
#define TOKENIZER_STOPS 2
const uint32_t *tokenizer_stops(const struct tokenizer *tokenizer, uint32_t *ret_n);

#endif
