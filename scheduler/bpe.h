/* Byte-pair merging: a word's bytes become tokens by joining, again and again, the neighbours whose
 * merge has the lowest rank (the leftmost of equals).  The merges are not changed after open; each
 * thread brings its own scratch. */
#ifndef HEARTH_SCHEDULER_BPE_H
#define HEARTH_SCHEDULER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "common/gguf.h"
#include "scheduler/vocabulary.h"

struct merge {
	uint64_t pair; /* left id << 32 | right id; UINT64_MAX: a free place */
	uint32_t rank; /* its line in the list */
	uint32_t id;   /* what the two become */
};

struct bpe {
	struct merge *places;
	uint64_t mask;
};

/* From tokenizer.ggml.merges; each side and each result must be a token.  No list: no merges. */
int bpe_open(struct bpe *ret, const struct gguf *gguf, const struct vocabulary *vocabulary,
	     struct error *err);
void bpe_close(struct bpe *bpe); /* of a zeroed one is fine */

/* Grows to the longest word seen; zeroed at first. */
struct bpe_scratch {
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;
	size_t n_symbols, n_heap; /* room */
};

/* Writes at most n ids to ret, which has room for n.  0 or -ENOMEM. */
int bpe_word(const struct bpe *bpe, const struct vocabulary *vocabulary,
	     struct bpe_scratch *scratch, const uint8_t *word, uint32_t n, uint32_t *ret,
	     uint32_t *ret_n);
void bpe_scratch_close(struct bpe_scratch *scratch);

#endif
