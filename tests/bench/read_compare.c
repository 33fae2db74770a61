/* read_compare: which way reads a model's file faster into memory that is there already: the
 * loader's threads, an io_uring with the same spans, and beside them the plainest read of the same
 * file, cold and direct, then cached and buffered.  Each figure is the median; the ways take turns.
 *
 *   read_compare [--runs N] [--threads N] [--depth N] [--cached] MODEL.gguf
 * --cached: the second table alone.  A cold run empties the file's cache, as root all caches. */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/clock.h"
#include "common/options.h"
#include "loader/fetch.h"
#include "loader/reader.h"
#include "tests/raw_read.h"
#include "tests/uring.h"

#define MAX_RUNS 32
#define MAX_DEPTH 256u

struct bench {
	struct model_files files;
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	uint8_t *memory;
	uint64_t threads, depth, runs;
	bool direct; /* of the table that is being made */
};

struct way {
	const char *name;
	/* Seconds, or less than 0 and a line on stderr. */
	double (*run)(struct bench *bench);
};

static double
complain(const char *text)
{
	fprintf(stderr, "read_compare: %s\n", text);
	return -1;
}

static double
seconds_since(uint64_t begin)
{
	return (double)(clock_ns() - begin) / 1e9;
}

/* The bytes of all files, at the plain reader's rate. */
static double
run_raw(struct bench *bench)
{
	double seconds = 0;

	for (uint32_t i = 0; i < bench->files.n_shards; i++) {
		const struct shard *shard = &bench->files.shards[i];
		double rate = raw_read_rate(shard->path, bench->direct, 16);

		if (rate <= 0)
			return complain("the plain reader could not read the file");
		seconds += (double)shard->bytes / rate / 1e9;
	}
	return seconds * (double)bench->pieces.bytes / (double)bench->files.bytes;
}

/* The loader's own reader, which hashes too. */
static double
run_reader(struct bench *bench)
{
	struct reader_config config = { .io = &io_system,
					.files = &bench->files,
					.placement = &bench->placement,
					.pieces = &bench->pieces,
					.plan = &bench->plan,
					.arena = bench->memory,
					.threads = (uint32_t)bench->threads,
					.direct = bench->direct };
	struct reader *reader = NULL;
	uint64_t begin = clock_ns();
	struct error err;
	int rc = piece_queue_open(&config.queue, &bench->pieces, &err);

	if (rc == 0)
		rc = reader_open(&reader, &config, &err);
	if (rc == 0)
		rc = reader_join(reader, &err);
	reader_close(reader);
	piece_queue_close(config.queue);
	return rc < 0 ? complain(err.text) : seconds_since(begin);
}

struct threads_run {
	struct fetch fetch;
	struct piece_queue *queue;
	_Atomic bool failed;
};

static void *
fetch_thread(void *arg)
{
	struct threads_run *run = arg;
	struct bounce bounce = { 0 };
	struct error err;
	struct span span;

	while (!run->failed && piece_queue_take(run->queue, &span)) {
		if (fetch_piece(&run->fetch, &span.whole, &bounce, &err) < 0) {
			complain(err.text);
			run->failed = true;
		}
	}
	bounce_close(&bounce);
	return NULL;
}

/* The same threads without the hash. */
static double
run_threads(struct bench *bench)
{
	struct threads_run run = { .queue = NULL };
	pthread_t *threads = calloc(bench->threads, sizeof(*threads));
	uint64_t begin = clock_ns(), n = 0;
	struct error err;
	int rc;

	if (!threads)
		return complain("no memory");
	rc = piece_queue_open(&run.queue, &bench->pieces, &err);
	if (rc == 0)
		rc = fetch_open(&run.fetch, &io_system, &bench->files, &bench->placement,
				bench->memory, bench->direct, NULL, &err);
	while (rc == 0 && n < bench->threads &&
	       pthread_create(&threads[n], NULL, fetch_thread, &run) == 0)
		n++;
	while (n > 0)
		pthread_join(threads[--n], NULL);
	if (rc == 0)
		fetch_close(&run.fetch);
	piece_queue_close(run.queue);
	free(threads);
	if (rc < 0)
		return complain(err.text);
	return run.failed ? -1 : seconds_since(begin);
}

/* What one read of the ring needs until it is done. */
struct ring_slot {
	struct iovec iov[3];
	uint64_t want;
	uint8_t *edges; /* two blocks */
};

/* Blocks in place, those at the ends beside: as direct_read does; buffered exactly the bytes. */
static uint32_t
point(const struct bench *bench, const struct piece *piece, struct ring_slot *slot,
      uint64_t *ret_at)
{
	uint8_t *to = bench->memory + piece->arena_offset;
	uint64_t begin = piece->file_offset, end = begin + piece->bytes;
	uint64_t whole = round_down(bench->files.shards[piece->shard].bytes, IO_BLOCK);
	uint64_t inner = round_up(begin, IO_BLOCK), inner_end = round_down(end, IO_BLOCK);
	uint32_t n = 0;

	*ret_at = begin;
	slot->iov[0] = (struct iovec){ to, piece->bytes };
	slot->want = piece->bytes;
	if (!bench->direct)
		return 1;
	*ret_at = round_down(begin, IO_BLOCK);
	if (*ret_at < inner && *ret_at < whole)
		slot->iov[n++] = (struct iovec){ slot->edges, IO_BLOCK };
	if (inner < inner_end)
		slot->iov[n++] = (struct iovec){ to + (inner - begin), inner_end - inner };
	if (inner <= inner_end && inner_end < end && inner_end < whole)
		slot->iov[n++] = (struct iovec){ slot->edges + IO_BLOCK, IO_BLOCK };
	slot->want = 0;
	for (uint32_t i = 0; i < n; i++)
		slot->want += slot->iov[i].iov_len;
	return n;
}

static int
ring_descriptor(const struct bench *bench, const struct fetch *fetch, uint32_t shard)
{
	return bench->direct ? fetch->direct[shard].direct.fd : bench->files.shards[shard].fd;
}

static int
drive_ring(struct bench *bench, struct uring *ring, const struct fetch *fetch,
	   struct piece_queue *queue, struct ring_slot *slots)
{
	uint64_t open[MAX_DEPTH], n_open = 0, flying = 0, id, at;
	struct span span;
	bool more = true;
	int64_t got;
	int rc;

	for (uint64_t i = 0; i < bench->depth; i++)
		open[n_open++] = i;
	for (;;) {
		while (n_open && more && (more = piece_queue_take(queue, &span))) {
			struct ring_slot *slot = &slots[open[n_open - 1]];
			uint32_t n = point(bench, &span.whole, slot, &at);

			uring_read(ring, ring_descriptor(bench, fetch, span.whole.shard), slot->iov,
				   n, at, open[--n_open]);
			flying++;
		}
		if (flying == 0)
			return 0;
		rc = uring_wait(ring, &id, &got);
		if (rc < 0)
			return rc;
		if (got != (int64_t)slots[id].want)
			return got < 0 ? (int)got : -EIO; /* no file is that odd here */
		open[n_open++] = id;
		flying--;
	}
}

static double
run_uring(struct bench *bench)
{
	struct ring_slot slots[MAX_DEPTH] = { 0 };
	struct piece_queue *queue = NULL;
	struct fetch fetch = { 0 };
	struct uring *ring = NULL;
	uint8_t *edges = aligned_alloc(IO_BLOCK, bench->depth * 2ull * IO_BLOCK);
	uint64_t begin = clock_ns();
	struct error err;
	double seconds;
	int rc = edges ? uring_open(&ring, (uint32_t)bench->depth) : -ENOMEM;

	if (rc < 0) {
		free(edges);
		error_sys(&err, rc, "io_uring");
		return complain(err.text);
	}
	for (uint64_t i = 0; i < bench->depth; i++)
		slots[i].edges = edges + i * 2 * IO_BLOCK;
	rc = piece_queue_open(&queue, &bench->pieces, &err);
	if (rc == 0)
		rc = fetch_open(&fetch, &io_system, &bench->files, &bench->placement, NULL,
				bench->direct, NULL, &err);
	if (rc == 0) {
		rc = drive_ring(bench, ring, &fetch, queue, slots);
		if (rc < 0)
			error_sys(&err, rc, "io_uring: reading");
	}
	seconds = seconds_since(begin);
	uring_close(ring); /* before what it reads into */
	fetch_close(&fetch);
	piece_queue_close(queue);
	free(edges);
	return rc < 0 ? complain(err.text) : seconds;
}

static const struct way ways[] = {
	{ "plain reader, 16 threads of 8 MiB", run_raw },
	{ "the loader's threads, without the hash", run_threads },
	{ "the loader's reader", run_reader },
	{ "io_uring, one thread, without the hash", run_uring },
};
#define WAYS (sizeof(ways) / sizeof(*ways))

static int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static bool
make_cold(const struct bench *bench)
{
	for (uint32_t i = 0; bench->direct && i < bench->files.n_shards; i++)
		if (raw_make_cold(bench->files.shards[i].path) < 0)
			return complain("the file's cache cannot be emptied") > 0;
	return true;
}

static void
print_table(struct bench *bench)
{
	double seconds[WAYS][MAX_RUNS], plain = 0;
	bool failed[WAYS] = { false };

	for (uint64_t run = 0; run < bench->runs; run++) {
		for (size_t i = 0; i < WAYS; i++) {
			if (!failed[i] && make_cold(bench))
				seconds[i][run] = ways[i].run(bench);
			else
				seconds[i][run] = -1;
			failed[i] |= seconds[i][run] < 0;
		}
	}
	printf("%-46s %8s %8s\n",
	       bench->direct ? "cold, direct" : "cached, buffered, into populated memory", "GB/s",
	       "of plain");
	for (size_t i = 0; i < WAYS; i++) {
		double rate;

		if (failed[i]) {
			printf("%-46s %8s\n", ways[i].name, "-");
			continue;
		}
		qsort(seconds[i], bench->runs, sizeof(double), compare_doubles);
		rate = (double)bench->pieces.bytes / seconds[i][bench->runs / 2] / 1e9;
		plain = i == 0 ? rate : plain;
		printf("%-46s %8.2f %8.3f\n", ways[i].name, rate, plain > 0 ? rate / plain : 0);
	}
	fflush(stdout);
}

static int
open_bench(struct bench *bench, const char *path, struct error *err)
{
	int rc = model_files_open(&bench->files, path, err);

	if (rc == 0)
		rc = placement_open(&bench->placement, bench->files.tensors, bench->files.n_tensors,
				    bench->files.shards[0].gguf.header_bytes, err);
	if (rc == 0)
		rc = checksum_plan_open(&bench->plan, bench->files.tensors, bench->files.n_tensors,
					bench->placement.n_slices, err);
	if (rc == 0)
		rc = pieces_open(&bench->pieces, &bench->placement, &bench->plan, NULL, err);
	if (rc < 0)
		return rc;
	bench->memory = mmap(NULL, bench->placement.bytes, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (bench->memory == MAP_FAILED ||
	    madvise(bench->memory, bench->placement.bytes, MADV_POPULATE_WRITE) < 0)
		return error_sys(err, -errno, "%" PRIu64 " MiB of memory",
				 bench->placement.bytes >> 20);
	return 0;
}

int
main(int argc, char **argv)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	struct bench bench = { .runs = 3, .depth = 32 };
	bool cached = false;
	const char *model;
	const struct option_def defs[] = {
		{ .name = "--runs",
		  .kind = OPTION_U64,
		  .to = &bench.runs,
		  .min = 1,
		  .max = MAX_RUNS },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &bench.threads,
		  .min = 1,
		  .max = 256 },
		{ .name = "--depth",
		  .kind = OPTION_U64,
		  .to = &bench.depth,
		  .min = 1,
		  .max = MAX_DEPTH },
		{ .name = "--cached", .kind = OPTION_FLAG, .to = &cached },
	};
	uint64_t threads;
	uint32_t n_words = 0;
	struct error err;
	int rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(*defs), &model, 1, &n_words,
			       &err);

	if (rc == 0 && n_words == 0)
		rc = error_set(&err, -EINVAL, "want a model: read_compare [OPTIONS] MODEL.gguf");
	if (rc == 0)
		rc = open_bench(&bench, model, &err);
	if (rc < 0) {
		complain(err.text);
		return error_exit_code(rc);
	}
	threads = bench.threads;
	printf("%s: %" PRIu64 " MiB in %" PRIu64 " pieces, %ld cores, io_uring %" PRIu64 " deep\n",
	       model, bench.pieces.bytes >> 20, bench.pieces.n, cores, bench.depth);
	for (int direct = !cached; direct >= 0; direct--) {
		bench.direct = direct;
		bench.threads =
		    threads ? threads : reader_default_threads((uint32_t)cores, bench.direct);
		printf("\n%" PRIu64 " threads\n", bench.threads);
		print_table(&bench);
	}
	return 0;
}
