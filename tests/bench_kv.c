#include "tests/bench_kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cuda_kernels.h"
#include "worker/journal.h"
#include "worker/lender.h"

#define PIECE_BYTES (64ull << 20)

static uint64_t
next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 40;
}

/* In [-1, 1), as float32: the CPU's form. */
static void
fill_floats(uint8_t *at, uint64_t bytes)
{
	uint64_t seed = 1;
	float value;

	for (uint64_t i = 0; i + sizeof(value) <= bytes; i += sizeof(value)) {
		value = (float)next_random(&seed) * 0x1p-23f - 1;
		memcpy(at + i, &value, sizeof(value));
	}
}

/* In [-1.01, 1], in the GPU's form. */
static void
fill_tiles(struct cuda_kv_tile *tiles, uint64_t n)
{
	uint64_t seed = 1;

	for (uint64_t i = 0; i < n; i++) {
		uint8_t *bytes = &tiles[i].run[0][0][0];

		for (uint32_t p = 0; p < CUDA_KV_TILE; p++)
			tiles[i].unit[p] = 1.0f / 32512;
		for (size_t b = 0; b < sizeof(tiles[i].run); b++)
			bytes[b] = (uint8_t)next_random(&seed);
	}
}

int
bench_kv_random(struct device *device, const struct device_memory *memory, struct error *err)
{
	const uint64_t most = PIECE_BYTES / sizeof(struct cuda_kv_tile);
	uint64_t piece = most * sizeof(struct cuda_kv_tile);
	uint8_t *pattern = calloc(1, piece), *to = memory->at;
	int rc = 0;

	if (!pattern)
		return error_sys(err, -ENOMEM, "filling the KV cache");
	if (device_describe(device)->cuda)
		fill_tiles((struct cuda_kv_tile *)pattern, most);
	else
		fill_floats(pattern, piece);
	for (uint64_t at = 0; at < memory->bytes && rc == 0; at += piece)
		rc = device_copy_in(device, to + at, pattern,
				    memory->bytes - at < piece ? memory->bytes - at : piece, err);
	if (rc == 0)
		rc = device_wait(device, err);
	free(pattern);
	return rc;
}

int
bench_kv_fill(const char *dir, const Hearth__State *worker, struct device *device,
	      struct error *err)
{
	struct device_memory memory;
	struct lender lender;
	struct lent lent;
	int rc = lender_open(&lender, dir, err);

	if (rc < 0)
		return rc;
	rc = lender_ask(&lender, "kv", worker->computing->kv_bytes, HEARTH__PLACE__PLACE_DEVICE,
			false, &lent, NULL, err);
	if (rc == 0)
		rc = lent_import(&lent, device, &memory, err);
	if (rc == 0) {
		rc = bench_kv_random(device, &memory, err);
		device_free(device, &memory);
	}
	lender_close(&lender);
	return rc;
}

int
bench_kv_keep(const char *dir, const Hearth__State *worker, const uint32_t *ids, uint32_t n,
	      struct error *err)
{
	uint32_t context = worker->computing->context;
	struct shared_memory memory = { 0 };
	struct journal_page *page;
	struct lender lender;
	struct lent lent;
	int rc;

	if (n >= context)
		return error_set(err, -EINVAL, "%u positions to keep: the context has %u", n,
				 context);
	rc = lender_open(&lender, dir, err);
	if (rc < 0)
		return rc;
	rc = lender_ask(&lender, "kv.journal", journal_bytes(context), HEARTH__PLACE__PLACE_HOST,
			false, &lent, NULL, err);
	if (rc == 0)
		rc = shared_memory_attach(&memory, lent.path, lent.bytes, err);
	if (rc == 0) {
		page = memory.at;
		memcpy(page->ids, ids, n * sizeof(*ids));
		/* The worker looks when the next request begins, and sees the ids too. */
		atomic_store_explicit(&page->count, n, memory_order_release);
		shared_memory_close(&memory);
	}
	lender_close(&lender);
	return rc;
}
