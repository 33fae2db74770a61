#include "loader/populate.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/arena.h"
#include "common/checked.h"
#include "common/clock.h"
#include "loader/io.h"

#define CHUNK ARENA_SLICE_ALIGN

/* Readers that took this many chunks in a row before a thread came to them are ahead of it. */
#define OVERTAKEN_CHUNKS 8

/* From CHUNK_THERE on its pages are there; CHUNK_WARM ones were so from the begin. */
enum chunk { CHUNK_NEW, CHUNK_TAKEN, CHUNK_THERE, CHUNK_WARM };

struct populate {
	struct populate_config config;
	atomic_uchar *chunks; /* enum chunk; taken by whoever makes it CHUNK_TAKEN first */
	uint64_t n_chunks;
	atomic_uint_fast64_t next; /* for the threads */
	atomic_bool stop;
	pthread_t *threads;
	uint32_t n_threads;
	pthread_mutex_t lock; /* the rest */
	struct populate_said said;
	uint64_t watch_bytes, watch_ns;
};

static int
system_no_huge(void *at, uint64_t bytes)
{
	return madvise(at, bytes, MADV_NOHUGEPAGE) < 0 ? -errno : 0;
}

const struct populate_calls populate_system = {
	.populate = io_populate,
	.no_huge = system_no_huge,
	.now_ns = clock_ns,
};

/* True once: huge pages are to be given up.  Under the lock. */
static bool
watch_is_slow(struct populate *populate, uint64_t bytes, uint64_t ns)
{
	bool slow;

	if (!populate->config.watch || populate->said.slow)
		return false;
	populate->watch_bytes += bytes;
	populate->watch_ns += ns;
	if (populate->watch_bytes < POPULATE_WATCH_BYTES)
		return false;
	slow = populate->watch_bytes / POPULATE_SLOW_MB_PER_S < populate->watch_ns / 1000;
	populate->watch_bytes = 0;
	populate->watch_ns = 0;
	return slow;
}

/* `own` of them were taken by the caller, and count. */
static int
populate_chunks(struct populate *populate, uint64_t first, uint64_t n, uint64_t own, bool ahead)
{
	const struct populate_config *config = &populate->config;
	uint64_t begin = config->calls->now_ns(), ns;
	int rc = config->calls->populate(config->base + first * CHUNK, n * CHUNK);
	bool slow;

	ns = config->calls->now_ns() - begin;
	pthread_mutex_lock(&populate->lock);
	if (rc < 0 && populate->said.failed == 0)
		populate->said.failed = rc;
	populate->said.ns += ns;
	populate->said.bytes += rc == 0 ? own * CHUNK : 0;
	populate->said.ahead_bytes += rc == 0 && ahead ? own * CHUNK : 0;
	slow = watch_is_slow(populate, n * CHUNK, ns);
	populate->said.slow = populate->said.slow || slow;
	pthread_mutex_unlock(&populate->lock);
	if (slow)
		config->calls->no_huge(config->base, config->bytes);
	for (uint64_t i = first; i < first + n && rc == 0; i++)
		atomic_store(&populate->chunks[i], CHUNK_THERE);
	return rc;
}

static bool
take_chunk(struct populate *populate, uint64_t i)
{
	unsigned char new = CHUNK_NEW;

	return atomic_compare_exchange_strong(&populate->chunks[i], &new, CHUNK_TAKEN);
}

/* A chunk that another thread is at work on is populated here too: that costs little where it is
 * there already, and is how one waits for it and hears that it failed. */
int
populate_range(struct populate *populate, uint64_t from, uint64_t to)
{
	uint64_t last = round_up(to, CHUNK) / CHUNK;
	int rc = 0;

	for (uint64_t i = from / CHUNK; i < last && rc == 0;) {
		uint64_t n = 0, own = 0;

		while (i + n < last && atomic_load(&populate->chunks[i + n]) < CHUNK_THERE) {
			own += take_chunk(populate, i + n);
			n++;
		}
		if (n)
			rc = populate_chunks(populate, i, n, own, false);
		i += n ? n : 1;
	}
	/* "Bad address": touching the page would have been a SIGBUS. */
	return rc == -EFAULT ? -ENOMEM : rc;
}

static void
overtaken(struct populate *populate)
{
	pthread_mutex_lock(&populate->lock);
	populate->said.overtaken = true;
	pthread_mutex_unlock(&populate->lock);
	atomic_store(&populate->stop, true);
}

/* A failure ends this thread without a word: the reader that needs the chunk meets it too. */
static void *
ahead_thread(void *arg)
{
	struct populate *populate = arg;
	uint32_t behind = 0;

	while (!atomic_load(&populate->stop)) {
		uint64_t i = atomic_fetch_add(&populate->next, 1);
		bool taken;

		if (i >= populate->n_chunks)
			break;
		if (atomic_load(&populate->chunks[i]) == CHUNK_WARM)
			continue;
		taken = take_chunk(populate, i);
		if (taken && populate_chunks(populate, i, 1, 1, true) < 0)
			break;
		behind = taken ? 0 : behind + 1;
		if (behind == OVERTAKEN_CHUNKS)
			overtaken(populate);
	}
	return NULL;
}

int
populate_open(struct populate **ret, const struct populate_config *config, struct error *err)
{
	struct populate *populate = calloc(1, sizeof(*populate));

	if (!populate)
		return error_sys(err, -ENOMEM, "populate");
	populate->config = *config;
	populate->n_chunks = config->bytes / CHUNK;
	pthread_mutex_init(&populate->lock, NULL);
	populate->chunks = calloc(populate->n_chunks, sizeof(*populate->chunks));
	populate->threads = calloc(config->threads + 1, sizeof(*populate->threads));
	if (!populate->chunks || !populate->threads) {
		populate_close(populate);
		return error_sys(err, -ENOMEM, "populate: %" PRIu64 " bytes", config->bytes);
	}
	*ret = populate;
	return 0;
}

void
populate_skip(struct populate *populate, uint64_t from, uint64_t to)
{
	for (uint64_t i = from / CHUNK; i < round_up(to, CHUNK) / CHUNK; i++)
		atomic_store(&populate->chunks[i], CHUNK_WARM);
}

void
populate_start(struct populate *populate)
{
	while (populate->n_threads < populate->config.threads &&
	       pthread_create(&populate->threads[populate->n_threads], NULL, ahead_thread,
			      populate) == 0)
		populate->n_threads++;
}

struct populate_said
populate_said(struct populate *populate)
{
	struct populate_said said;

	pthread_mutex_lock(&populate->lock);
	said = populate->said;
	pthread_mutex_unlock(&populate->lock);
	return said;
}

void
populate_join(struct populate *populate)
{
	while (populate->n_threads)
		pthread_join(populate->threads[--populate->n_threads], NULL);
}

void
populate_stop(struct populate *populate)
{
	atomic_store(&populate->stop, true);
	populate_join(populate);
}

void
populate_close(struct populate *populate)
{
	if (!populate)
		return;
	populate_stop(populate);
	pthread_mutex_destroy(&populate->lock);
	free(populate->threads);
	free(populate->chunks);
	free(populate);
}
