#include "tests/bench_ram.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "tests/ram_read.h"

#define PIECE_BYTES (1u << 20)
#define MAX_READERS 1024u
#define RUNS 3

struct bench_ram {
	const uint8_t *at;
	uint64_t pieces; /* of the range */
	uint64_t end;    /* pieces to read in all */
	_Atomic uint64_t next;
	_Atomic uint64_t done;
	_Atomic uint64_t sum; /* so that nothing is read in vain */
	atomic_bool stop;
	uint64_t begin_ns;
	uint32_t threads;
	pthread_t readers[];
};

static void *
reader(void *arg)
{
	struct bench_ram *ram = arg;
	uint64_t piece, sum = 0, done = 0;

	while (!atomic_load_explicit(&ram->stop, memory_order_relaxed) &&
	       (piece = atomic_fetch_add(&ram->next, 1)) < ram->end) {
		sum += ram_read(ram->at + piece % ram->pieces * PIECE_BYTES, PIECE_BYTES);
		done++;
	}
	atomic_fetch_add(&ram->sum, sum);
	atomic_fetch_add(&ram->done, done);
	return NULL;
}

static int
ram_begin(struct bench_ram **ret, const void *at, uint64_t bytes, uint32_t threads, uint64_t passes,
	  struct error *err)
{
	struct bench_ram *ram;
	int rc = 0;

	if (threads == 0 || threads > MAX_READERS || bytes < PIECE_BYTES)
		return error_set(err, -EINVAL,
				 "reading RAM: want 1 to %u threads, %u bytes or more", MAX_READERS,
				 PIECE_BYTES);
	ram = calloc(1, sizeof(*ram) + threads * sizeof(ram->readers[0]));
	if (!ram)
		return error_sys(err, -ENOMEM, "reading RAM");
	ram->at = at;
	ram->pieces = bytes / PIECE_BYTES;
	ram->end = passes ? passes * ram->pieces : UINT64_MAX;
	ram->begin_ns = clock_ns();
	while (ram->threads < threads && rc == 0) {
		rc = -pthread_create(&ram->readers[ram->threads], NULL, reader, ram);
		ram->threads += rc == 0;
	}
	if (rc == 0) {
		*ret = ram;
		return 0;
	}
	rc = error_sys(err, rc, "reading RAM: thread %u", ram->threads);
	bench_ram_end(ram);
	return rc;
}

/* GB/s. */
static double
ram_join(struct bench_ram *ram)
{
	double rate;

	for (uint32_t i = 0; i < ram->threads; i++)
		pthread_join(ram->readers[i], NULL);
	rate = (double)(ram->done * PIECE_BYTES) / (double)(clock_ns() - ram->begin_ns);
	free(ram);
	return rate;
}

int
bench_ram_begin(struct bench_ram **ret, const void *at, uint64_t bytes, uint32_t threads,
		struct error *err)
{
	return ram_begin(ret, at, bytes, threads, 0, err);
}

double
bench_ram_end(struct bench_ram *ram)
{
	atomic_store(&ram->stop, true);
	return ram_join(ram);
}

double
bench_ram_rate(const void *at, uint64_t bytes, uint32_t threads)
{
	double rate, best = -1;
	struct bench_ram *ram;
	struct error ignored;

	for (int i = 0; i < RUNS; i++) {
		if (ram_begin(&ram, at, bytes, threads, 1, &ignored) < 0)
			return -1;
		rate = ram_join(ram);
		best = rate > best ? rate : best;
	}
	return best;
}

static void *
ram_map(uint64_t bytes, int advice)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		return NULL;
	madvise(at, bytes, advice);
	memset(at, 1, bytes);
	return at;
}

void *
bench_ram_map(uint64_t bytes)
{
	return ram_map(bytes, MADV_HUGEPAGE);
}

void *
bench_ram_map_small(uint64_t bytes)
{
	return ram_map(bytes, MADV_NOHUGEPAGE);
}

void
bench_ram_unmap(void *at, uint64_t bytes)
{
	if (at)
		munmap(at, bytes);
}

double
bench_ram_limit(uint32_t threads)
{
	uint64_t bytes = BENCH_RAM_BYTES;
	void *at = bench_ram_map(bytes);
	double rate;

	while (!at && bytes > PIECE_BYTES) {
		bytes /= 2;
		at = bench_ram_map(bytes);
	}
	rate = at ? bench_ram_rate(at, bytes, threads) : -1;
	bench_ram_unmap(at, bytes);
	return rate;
}
