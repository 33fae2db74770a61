#include "scheduler/bpe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define NO_PAIR UINT64_MAX
#define NONE UINT32_MAX

struct bpe_symbol {
	uint32_t id;
	uint32_t before, after; /* neighbours' places, or NONE */
};

/* Two neighbours that could be joined.  Stale once either of them has changed: found out when its
 * turn comes. */
struct bpe_candidate {
	uint32_t rank;
	uint32_t left; /* place of the left one */
	uint64_t pair;
};

static uint64_t
pair_of(uint32_t left, uint32_t right)
{
	return (uint64_t)left << 32 | right;
}

/* The place of the pair, or the free one where it would be. */
static struct merge *
merge_place(const struct bpe *bpe, uint64_t pair)
{
	uint64_t i = XXH3_64bits(&pair, sizeof(pair)) & bpe->mask;

	while (bpe->places[i].pair != NO_PAIR && bpe->places[i].pair != pair)
		i = (i + 1) & bpe->mask;
	return &bpe->places[i];
}

/* `text` is "left right", both as stored; `scratch` has room for its bytes. */
static int
merge_read(struct gguf_string text, const struct vocabulary *vocabulary, uint8_t *scratch,
	   uint64_t *ret_pair, uint32_t *ret_id)
{
	const char *space = text.bytes > 1 ? memchr(text.at + 1, ' ', text.bytes - 1) : NULL;
	struct gguf_string side = { .at = text.at };
	uint32_t left, right, n_left, n_right;

	if (!space)
		return -EINVAL;
	side.bytes = (uint64_t)(space - text.at);
	n_left = vocabulary_unpack(side, scratch);
	side.at = space + 1;
	side.bytes = text.bytes - side.bytes - 1;
	n_right = vocabulary_unpack(side, scratch + n_left);
	if (!words_find(&vocabulary->normal, scratch, n_left, &left) ||
	    !words_find(&vocabulary->normal, scratch + n_left, n_right, &right) ||
	    !words_find(&vocabulary->normal, scratch, n_left + n_right, ret_id))
		return -EINVAL;
	*ret_pair = pair_of(left, right);
	return 0;
}

static int
read_merges(struct bpe *bpe, const struct gguf_pair *list, const struct vocabulary *vocabulary,
	    struct error *err)
{
	const uint8_t *at = list->at;
	uint8_t *scratch = NULL, *more;
	uint64_t room = 0, pair;
	uint32_t id;
	int code = 0;

	for (uint64_t i = 0; i < list->count; i++) {
		struct gguf_string text = gguf_next_string(&at);
		struct merge *place;

		if (text.bytes > room) {
			more = realloc(scratch, text.bytes);
			if (!more) {
				code = error_sys(err, -ENOMEM, "a merge of %llu bytes",
						 (unsigned long long)text.bytes);
				break;
			}
			scratch = more;
			room = text.bytes;
		}
		code = merge_read(text, vocabulary, scratch, &pair, &id);
		if (code < 0) {
			error_set(
			    err, code,
			    "tokenizer.ggml.merges: line %llu is '%.*s', want two tokens that "
			    "make a third",
			    (unsigned long long)i, (int)(text.bytes > 64 ? 64 : text.bytes),
			    text.at);
			break;
		}
		place = merge_place(bpe, pair);
		if (place->pair == NO_PAIR)
			*place = (struct merge){ .pair = pair, .rank = (uint32_t)i, .id = id };
	}
	free(scratch);
	return code;
}

int
bpe_open(struct bpe *ret, const struct gguf *gguf, const struct vocabulary *vocabulary,
	 struct error *err)
{
	const struct gguf_pair *list = gguf_find(gguf, "tokenizer.ggml.merges");
	struct bpe bpe = { 0 };
	uint64_t places = 16;
	int code = 0;

	if (list && (list->kind != GGUF_ARRAY || list->element != GGUF_STRING ||
		     list->count >= UINT32_MAX / 2))
		return error_set(err, -EINVAL, "tokenizer.ggml.merges: no list of strings");
	while (list && places / 2 < list->count)
		places *= 2;
	bpe.mask = places - 1;
	bpe.places = malloc(places * sizeof(*bpe.places));
	if (!bpe.places)
		return error_sys(err, -ENOMEM, "a table of %llu merges",
				 (unsigned long long)places);
	for (uint64_t i = 0; i < places; i++)
		bpe.places[i].pair = NO_PAIR;
	if (list)
		code = read_merges(&bpe, list, vocabulary, err);
	if (code < 0) {
		bpe_close(&bpe);
		return code;
	}
	*ret = bpe;
	return 0;
}

void
bpe_close(struct bpe *bpe)
{
	free(bpe->places);
	*bpe = (struct bpe){ 0 };
}

static bool
comes_first(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
	return a->rank != b->rank ? a->rank < b->rank : a->left < b->left;
}

static void
heap_push(struct bpe_candidate *heap, size_t *n, struct bpe_candidate candidate)
{
	size_t i = (*n)++, parent;

	for (; i; i = parent) {
		parent = (i - 1) / 2;
		if (!comes_first(&candidate, &heap[parent]))
			break;
		heap[i] = heap[parent];
	}
	heap[i] = candidate;
}

static struct bpe_candidate
heap_pop(struct bpe_candidate *heap, size_t *n)
{
	struct bpe_candidate first = heap[0], last = heap[--*n];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < *n) {
		if (child + 1 < *n && comes_first(&heap[child + 1], &heap[child]))
			child++;
		if (!comes_first(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

/* A merge takes one candidate and adds at most two, so there are never more than twice the
 * symbols. */
static int
scratch_grow(struct bpe_scratch *scratch, size_t n)
{
	struct bpe_symbol *symbols;
	struct bpe_candidate *heap;

	if (n > scratch->n_symbols) {
		symbols = realloc(scratch->symbols, n * sizeof(*symbols));
		if (!symbols)
			return -ENOMEM;
		scratch->symbols = symbols;
		scratch->n_symbols = n;
	}
	if (2 * n > scratch->n_heap) {
		heap = realloc(scratch->heap, 2 * n * sizeof(*heap));
		if (!heap)
			return -ENOMEM;
		scratch->heap = heap;
		scratch->n_heap = 2 * n;
	}
	return 0;
}

/* Pushes the symbol at `left` and its neighbour if they can be joined. */
static void
consider(const struct bpe *bpe, struct bpe_scratch *scratch, size_t *n_heap, uint32_t left)
{
	const struct bpe_symbol *symbols = scratch->symbols;
	const struct merge *merge;
	uint64_t pair;

	if (left == NONE || symbols[left].after == NONE)
		return;
	pair = pair_of(symbols[left].id, symbols[symbols[left].after].id);
	merge = merge_place(bpe, pair);
	if (merge->pair == pair)
		heap_push(
		    scratch->heap, n_heap,
		    (struct bpe_candidate){ .rank = merge->rank, .left = left, .pair = pair });
}

/* Joins the candidate's two symbols unless it is stale. */
static void
join(const struct bpe *bpe, struct bpe_scratch *scratch, size_t *n_heap,
     struct bpe_candidate candidate)
{
	struct bpe_symbol *symbols = scratch->symbols;
	struct bpe_symbol *left = &symbols[candidate.left];
	uint32_t right = left->after;

	if (left->id == NONE || right == NONE ||
	    pair_of(left->id, symbols[right].id) != candidate.pair)
		return;
	left->id = merge_place(bpe, candidate.pair)->id;
	left->after = symbols[right].after;
	if (left->after != NONE)
		symbols[left->after].before = candidate.left;
	symbols[right].id = NONE;
	consider(bpe, scratch, n_heap, left->before);
	consider(bpe, scratch, n_heap, candidate.left);
}

int
bpe_word(const struct bpe *bpe, const struct vocabulary *vocabulary, struct bpe_scratch *scratch,
	 const uint8_t *word, uint32_t n, uint32_t *ret, uint32_t *ret_n)
{
	size_t n_heap = 0;
	uint32_t n_ids = 0;

	if (scratch_grow(scratch, n) < 0)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		scratch->symbols[i] = (struct bpe_symbol){ .id = vocabulary->byte_ids[word[i]],
							   .before = i ? i - 1 : NONE,
							   .after = i + 1 < n ? i + 1 : NONE };
	for (uint32_t i = 0; i < n; i++)
		consider(bpe, scratch, &n_heap, i);
	while (n_heap)
		join(bpe, scratch, &n_heap, heap_pop(scratch->heap, &n_heap));
	for (uint32_t i = 0; i < n; i++) {
		if (scratch->symbols[i].id != NONE)
			ret[n_ids++] = scratch->symbols[i].id;
	}
	*ret_n = n_ids;
	return 0;
}

void
bpe_scratch_close(struct bpe_scratch *scratch)
{
	free(scratch->symbols);
	free(scratch->heap);
	*scratch = (struct bpe_scratch){ 0 };
}
