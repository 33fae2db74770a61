/* How fast an arena's pages come, by kind of pages and number of threads; and how fast it is filled
 * from a file when readers fault pages in as they read, populate each piece or each huge page's
 * worth before they read it, or have threads ahead of them.  Each figure is the best of three, the
 * first what the same readers do into memory that is there already.
 *
 *   populate [--mib N] [--threads N] [--file F] [--direct]
 *
 * Without --file one is made in /tmp; with --direct it is read from its drive.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/options.h"
#include "common/pages.h"
#include "loader/populate.h"

#define MIB (1ull << 20)
#define PIECE (8 * MIB)
#define ROUNDS 3

enum how { HOW_THERE, HOW_FAULT, HOW_PIECE, HOW_CHUNK };

struct fill {
	struct arena arena;
	struct populate *populate;
	enum how how;
	int file;
	atomic_uint_fast64_t next; /* piece */
	atomic_int failed;
};

static void
read_part(struct fill *fill, uint64_t at, uint64_t bytes)
{
	if (fill->how >= HOW_PIECE && populate_range(fill->populate, at, at + bytes) < 0)
		atomic_store(&fill->failed, 1);
	if (pread(fill->file, fill->arena.base + at, bytes, (off_t)at) != (ssize_t)bytes)
		atomic_store(&fill->failed, 1);
}

static void *
fill_thread(void *arg)
{
	struct fill *fill = arg;
	uint64_t step = fill->how == HOW_CHUNK ? PAGES_HUGE_BYTES : PIECE, at;

	while ((at = atomic_fetch_add(&fill->next, 1) * PIECE) < fill->arena.bytes)
		for (uint64_t part = 0; part < PIECE; part += step)
			read_part(fill, at + part, step);
	return NULL;
}

static double
gigabytes(uint64_t bytes, uint64_t ns)
{
	return ns ? (double)bytes / (double)ns : 0;
}

static int
open_populate(struct fill *fill, uint32_t threads, struct error *err)
{
	const struct populate_config config = { .calls = &populate_system,
						.base = fill->arena.base,
						.bytes = fill->arena.bytes,
						.threads = threads };

	return populate_open(&fill->populate, &config, err);
}

/* GB/s; < 0: failed. */
static double
fill_once(uint64_t bytes, enum arena_pages pages, enum how how, uint32_t readers, uint32_t ahead,
	  int file, struct error *err)
{
	struct fill fill = { .how = how, .file = file };
	pthread_t threads[256];
	uint64_t begin;
	double ret = -1;

	if (arena_create(&fill.arena, bytes, pages, err) < 0)
		return -1;
	if (how == HOW_THERE)
		populate_system.populate(fill.arena.base, fill.arena.bytes);
	if (open_populate(&fill, ahead, err) == 0) {
		begin = clock_ns();
		populate_start(fill.populate);
		for (uint32_t i = 0; i < readers; i++)
			pthread_create(&threads[i], NULL, fill_thread, &fill);
		for (uint32_t i = 0; i < readers; i++)
			pthread_join(threads[i], NULL);
		ret = gigabytes(fill.arena.bytes, clock_ns() - begin);
		populate_close(fill.populate);
	}
	arena_close(&fill.arena);
	return fill.failed ? -1 : ret;
}

static double
populate_once(uint64_t bytes, enum arena_pages pages, uint32_t threads, struct error *err)
{
	struct fill fill = { 0 };
	double ret = -1;
	uint64_t begin;

	if (arena_create(&fill.arena, bytes, pages, err) < 0)
		return -1;
	if (open_populate(&fill, threads, err) == 0) {
		begin = clock_ns();
		populate_start(fill.populate);
		populate_join(fill.populate);
		ret = gigabytes(fill.arena.bytes, clock_ns() - begin);
		if (populate_said(fill.populate).failed)
			ret = -1;
		populate_close(fill.populate);
	}
	arena_close(&fill.arena);
	return ret;
}

#define BEST(ret, call)                                      \
	do {                                                 \
		(ret) = -1;                                  \
		for (uint32_t r = 0; r < ROUNDS; r++) {      \
			double once = (call);                \
			(ret) = once > (ret) ? once : (ret); \
		}                                            \
	} while (0)

static void
measure(uint64_t bytes, enum arena_pages pages, uint32_t most, int file)
{
	static const struct {
		const char *name;
		enum how how;
		uint32_t ahead;
	} ways[] = {
		{ "there already", HOW_THERE, 0 },       { "faulted by the read", HOW_FAULT, 0 },
		{ "each piece of 8 MiB", HOW_PIECE, 0 }, { "each 2 MiB", HOW_CHUNK, 0 },
		{ "each 2 MiB, 1 ahead", HOW_CHUNK, 1 }, { "each 8 MiB, 4 ahead", HOW_PIECE, 4 },
	};
	struct error err = { "" };
	double rate;

	printf("%-8s", pages_word(pages));
	for (uint32_t threads = 1; threads <= most; threads *= 2) {
		BEST(rate, populate_once(bytes, pages, threads, &err));
		printf("  %u: %.2f", threads, rate);
	}
	printf("  GB/s populated by so many threads%s%s\n", err.text[0] ? "; " : "", err.text);
	for (uint32_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		BEST(rate, fill_once(bytes, pages, ways[i].how, most, ways[i].ahead, file, &err));
		printf("         %-20s %.2f GB/s read by %u threads\n", ways[i].name, rate, most);
	}
	fflush(stdout);
}

/* A file of `bytes` in the page cache. */
static int
open_file(const char *path, uint64_t bytes, bool direct)
{
	static uint8_t buffer[MIB];
	char own[] = "/tmp/hearth-populate-XXXXXX";
	char name[64];
	int again, file = path ? open(path, O_RDONLY | O_CLOEXEC) : mkostemp(own, O_CLOEXEC);

	if (file < 0)
		return -errno;
	if (!path)
		unlink(own);
	for (uint64_t at = 0; at < bytes; at += MIB) {
		ssize_t n;

		memset(buffer, (int)(at / MIB), path ? 0 : MIB);
		n = path ? pread(file, buffer, MIB, (off_t)at) : write(file, buffer, MIB);
		if (n != (ssize_t)MIB) {
			close(file);
			return -EIO;
		}
	}
	if (!direct)
		return file;
	fsync(file);
	snprintf(name, sizeof(name), "/proc/self/fd/%d", file);
	again = open(name, O_RDONLY | O_DIRECT | O_CLOEXEC);
	close(file);
	return again < 0 ? -errno : again;
}

int
main(int argc, char **argv)
{
	uint64_t mib = 2048, threads = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
	const char *path = NULL;
	bool direct = false;
	const struct option_def defs[] = {
		{ .name = "--mib", .kind = OPTION_U64, .to = &mib, .min = 64, .max = 1 << 20 },
		{ .name = "--threads", .kind = OPTION_U64, .to = &threads, .min = 1, .max = 256 },
		{ .name = "--file", .kind = OPTION_TEXT, .to = &path },
		{ .name = "--direct", .kind = OPTION_FLAG, .to = &direct },
	};
	struct pages_kernel kernel;
	uint32_t n_words;
	struct error err;
	int file;

	if (options_parse(argc, argv, defs, 4, NULL, 0, &n_words, &err) < 0) {
		fprintf(stderr, "populate: %s\n", err.text);
		return EXIT_INPUT;
	}
	mib &= ~7ull;
	file = open_file(path, mib * MIB, direct);
	if (file < 0) {
		fprintf(stderr, "populate: a file of %" PRIu64 " MiB: %s\n", mib, strerror(-file));
		return EXIT_SYSTEM;
	}
	pages_read_kernel(&kernel, "/sys");
	printf("%" PRIu64 " MiB, %u cores' worth of readers\n", mib, (uint32_t)threads);
	measure(mib * MIB, ARENA_PAGES_4K, (uint32_t)threads, file);
	if (pages_thp_possible(&kernel))
		measure(mib * MIB, ARENA_PAGES_THP, (uint32_t)threads, file);
	else
		printf("thp      not here: " PAGES_SHMEM_KNOB " is %s\n", kernel.shmem);
	if (kernel.pool_free >= pages_needed(mib * MIB))
		measure(mib * MIB, ARENA_PAGES_HUGETLB, (uint32_t)threads, file);
	else
		printf("hugetlb  not here: %" PRIu64 " pages free\n", kernel.pool_free);
	close(file);
	return 0;
}
