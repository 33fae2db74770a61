#include "worker/journal.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

#define JOURNAL_MAGIC 0x316c6e6a68746568ull /* "hethjnl1" */

uint64_t
journal_bytes(uint32_t context)
{
	return sizeof(struct journal_page) + (uint64_t)context * sizeof(uint32_t);
}

uint64_t
journal_kernels(const char *device, const char *kernels)
{
	return XXH3_64bits_withSeed(kernels, strlen(kernels), XXH3_64bits(device, strlen(device)));
}

/* An exchange, not a store: nothing behind it, the KV cache's overwriting above all, may come
 * before it. */
static void
journal_lower(struct journal_page *page, uint32_t count)
{
	atomic_exchange_explicit(&page->count, count, memory_order_acq_rel);
}

void
journal_clear(void *region)
{
	journal_lower(region, 0);
}

void
journal_open(struct journal *ret, void *region, const struct journal_identity *identity, bool fresh)
{
	struct journal_page *page = region;

	ret->page = page;
	ret->context = (uint32_t)identity->context;
	if (!fresh && page->magic == JOURNAL_MAGIC &&
	    memcmp(&page->identity, identity, sizeof(*identity)) == 0 &&
	    atomic_load_explicit(&page->count, memory_order_acquire) <= identity->context)
		return;
	journal_lower(page, 0);
	page->identity = *identity;
	page->magic = JOURNAL_MAGIC;
}

uint32_t
journal_keep(struct journal *journal, const uint32_t *ids, uint32_t n)
{
	uint32_t count = atomic_load_explicit(&journal->page->count, memory_order_acquire);
	uint32_t kept = 0;

	assert(n > 0 && n <= journal->context);
	while (kept < count && kept < n - 1 && journal->page->ids[kept] == ids[kept])
		kept++;
	journal_lower(journal->page, kept);
	return kept;
}

void
journal_append(struct journal *journal, const uint32_t *ids, uint32_t n)
{
	uint32_t count = atomic_load_explicit(&journal->page->count, memory_order_relaxed);

	assert(n <= journal->context - count);
	memcpy(journal->page->ids + count, ids, n * sizeof(*ids));
	/* Who sees the count sees the ids and the keys and values of all of them. */
	atomic_store_explicit(&journal->page->count, count + n, memory_order_release);
}
