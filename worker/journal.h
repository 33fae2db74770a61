/* The KV cache's journal, in memory that the pinner lends and that outlives the worker: keys and
 * values of positions 0 .. count-1 are complete for exactly these ids.  The count goes down before
 * a position is overwritten and up after its forward completed, so that it holds at whatever
 * instruction a worker dies.  One writer: the worker that holds the region's lock. */
#ifndef HEARTH_WORKER_JOURNAL_H
#define HEARTH_WORKER_JOURNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Whose keys and values: under any other name their bits may differ. */
struct journal_identity {
	uint64_t stamp; /* of the model's files */
	uint64_t layout_hash;
	uint64_t kernels; /* journal_kernels() */
	uint64_t context; /* positions the KV cache has room for */
};

/* As it lies in the lent region. */
struct journal_page {
	uint64_t magic;
	struct journal_identity identity;
	_Atomic uint32_t count;
	uint32_t ids[]; /* (context) */
};

struct journal {
	struct journal_page *page;
	uint32_t context;
};

uint64_t journal_bytes(uint32_t context);

/* A name for what decides the bits: the device and its kernels. */
uint64_t journal_kernels(const char *device, const char *kernels);

/* Takes the region as the last worker left it; `fresh` (the KV cache was), another identity or a
 * page that makes no sense: empty. */
void journal_open(struct journal *ret, void *region, const struct journal_identity *identity,
		  bool fresh);

/* Says in a region of any content that nothing is kept: before its KV cache is replaced. */
void journal_clear(void *region);

/* Cuts the journal to what it shares with ids[0 .. n-1], at most n - 1 (the last one is to be
 * computed: its logits are wanted).  Returns how many are kept. */
uint32_t journal_keep(struct journal *journal, const uint32_t *ids, uint32_t n);

/* The forward of ids[0 .. n-1] behind the kept ones is complete. */
void journal_append(struct journal *journal, const uint32_t *ids, uint32_t n);

#endif
