/* loader/cached.h: each way to look at the page cache, and what comes after it where it is denied.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/cached.h"
#include "tests/scratch.h"

#define MIB (1ull << 20)

/* A machine on which the first `cached` bytes of every file are in the cache. */
static struct {
	uint64_t cached;
	uint64_t now;
	int stat_denied, nowait_denied, core_denied, read_fails;
	uint32_t stats, nowaits, cores, reads, random_on, random_off;
	uint64_t first_read, lowest, highest;
	bool random;
} machine;

static int
count(uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	uint64_t end = offset + bytes < machine.cached ? offset + bytes : machine.cached;

	*ret = offset < end ? (end - offset + CACHE_PAGE - 1) / CACHE_PAGE : 0;
	return 0;
}

static int
fake_stat(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	(void)fd;
	machine.stats++;
	return machine.stat_denied ? machine.stat_denied : count(offset, bytes, ret);
}

static int
fake_core(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	(void)fd;
	machine.cores++;
	return machine.core_denied ? machine.core_denied : count(offset, bytes, ret);
}

static int64_t
fake_nowait(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	(void)fd;
	(void)to;
	machine.nowaits++;
	assert_true(machine.random);
	if (machine.nowait_denied)
		return machine.nowait_denied;
	return offset < machine.cached ? (int64_t)bytes : -EAGAIN;
}

static int64_t
fake_read(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	(void)fd;
	(void)to;
	assert_true(machine.random);
	if (machine.reads++ == 0) {
		machine.first_read = offset;
		machine.lowest = machine.highest = offset;
	}
	if (offset < machine.lowest)
		machine.lowest = offset;
	if (offset > machine.highest)
		machine.highest = offset;
	machine.now += offset < machine.cached ? 10000 : 80000;
	return machine.read_fails ? machine.read_fails : (int64_t)bytes;
}

static void
fake_random(int fd, int random)
{
	(void)fd;
	machine.random = random;
	if (random)
		machine.random_on++;
	else
		machine.random_off++;
}

static uint64_t
fake_now(void)
{
	return machine.now;
}

static const struct cache_calls fake_calls = {
	.stat_pages = fake_stat,
	.read_nowait = fake_nowait,
	.core_pages = fake_core,
	.read_at = fake_read,
	.expect_random = fake_random,
	.now_ns = fake_now,
};

static const struct cached_range two_files[] = {
	{ .fd = 1, .offset = 1 * MIB, .bytes = 3 * MIB, .file_bytes = 10 * MIB },
	{ .fd = 1, .offset = 6 * MIB, .bytes = 1 * MIB, .file_bytes = 10 * MIB },
	{ .fd = 2, .offset = 4 * MIB, .bytes = 4 * MIB, .file_bytes = 8 * MIB },
};

static struct cached
measure(uint64_t seed)
{
	struct cached cached;

	cached_measure(&cached, &fake_calls, two_files, 3, seed);
	assert_false(machine.random);
	return cached;
}

static void
forget(uint64_t bytes_cached)
{
	memset(&machine, 0, sizeof(machine));
	machine.cached = bytes_cached;
}

static void
cachestat_counts_exactly_what_is_to_be_read(void **state)
{
	struct cached cached;

	(void)state;
	forget(5 * MIB);
	cached = measure(1);
	assert_string_equal(cached.probe, "cachestat");
	assert_true(cached.looked == 8 * MIB);
	assert_true(cached.cached == 3 * MIB + 1 * MIB);
	assert_int_equal(machine.nowaits + machine.cores + machine.reads, 0);
}

static void
without_cachestat_preadv2_samples(void **state)
{
	static const int denials[] = { -ENOSYS, -EPERM };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct cached cached;

		forget(20 * MIB);
		machine.stat_denied = denials[i];
		cached = measure(1);
		assert_string_equal(cached.probe, "preadv2");
		assert_true(cached.cached == cached.looked);
		forget(0);
		machine.stat_denied = denials[i];
		assert_int_equal(measure(1).cached, 0);
		forget(5 * MIB); /* 4 of the 8 MiB */
		machine.stat_denied = denials[i];
		cached = measure(1);
		assert_true(cached.cached > cached.looked / 3 &&
			    cached.cached < cached.looked * 2 / 3);
		assert_int_equal(machine.nowaits, CACHED_SAMPLES);
	}
}

static void
without_preadv2_mincore_counts(void **state)
{
	struct cached cached;

	(void)state;
	forget(5 * MIB);
	machine.stat_denied = -ENOSYS;
	machine.nowait_denied = -EOPNOTSUPP;
	cached = measure(1);
	assert_string_equal(cached.probe, "mincore");
	assert_true(cached.looked == 8 * MIB && cached.cached == 4 * MIB);
	assert_int_equal(machine.nowaits, 1);
}

static void
deny_all(uint64_t bytes_cached)
{
	forget(bytes_cached);
	machine.stat_denied = -ENOSYS;
	machine.nowait_denied = -EPERM;
	machine.core_denied = -EPERM;
}

static void
where_all_is_denied_reads_are_timed(void **state)
{
	struct cached cached;

	(void)state;
	deny_all(20 * MIB);
	cached = measure(1);
	assert_string_equal(cached.probe, "timed reads");
	assert_int_equal(machine.reads, 2 * CACHED_READS);
	assert_true(cached.looked == 2ull * CACHED_READS * CACHED_READ_BYTES);
	assert_true(cached.cached == cached.looked);
	assert_true(machine.lowest >= 1 * MIB && machine.highest < 8 * MIB);
	deny_all(0);
	assert_int_equal(measure(1).cached, 0);
	assert_int_equal(machine.random_on, 4);
	assert_int_equal(machine.random_off, 4);
}

/* A sample leaves its place cached: the next start must look at others. */
static void
another_start_looks_elsewhere(void **state)
{
	uint64_t first;

	(void)state;
	deny_all(0);
	measure(1);
	first = machine.first_read;
	deny_all(0);
	measure(2);
	assert_true(machine.first_read != first);
}

static void
small_files_are_not_timed(void **state)
{
	const struct cached_range ranges[] = {
		{ .fd = 1, .bytes = 128 << 10, .file_bytes = 128 << 10 },
		{ .fd = 2, .bytes = 129 << 10, .file_bytes = 129 << 10 },
	};
	struct cached cached;

	(void)state;
	deny_all(20 * MIB);
	cached_measure(&cached, &fake_calls, ranges, 2, 1);
	assert_int_equal(machine.reads, CACHED_READS);
	assert_true(machine.highest <= 65 << 10);
	deny_all(20 * MIB);
	cached_measure(&cached, &fake_calls, ranges, 1, 1);
	assert_string_equal(cached.probe, "none");
	assert_int_equal(cached.looked, 0);
}

static void
a_read_that_fails_was_not_cached(void **state)
{
	(void)state;
	deny_all(20 * MIB);
	machine.read_fails = -EIO;
	assert_int_equal(measure(1).cached, 0);
}

static void
nothing_to_read_is_not_looked_at(void **state)
{
	struct cached cached;

	(void)state;
	forget(0);
	cached_measure(&cached, &fake_calls, NULL, 0, 1);
	assert_string_equal(cached.probe, "none");
	assert_int_equal(machine.stats, 0);
}

/* -- the kernel's own answers -- */

static struct scratch scratch;
static int file = -1;

static int
make_file(void **state)
{
	static char bytes[1 << 20];
	char path[100];

	(void)state;
	scratch_open(&scratch);
	memset(bytes, 7, sizeof(bytes));
	snprintf(path, sizeof(path), "%s/file", scratch.dir);
	file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (file < 0 || write(file, bytes, sizeof(bytes)) != sizeof(bytes) || fsync(file) < 0)
		return -1;
	return 0;
}

static int
remove_file(void **state)
{
	(void)state;
	close(file);
	scratch_close(&scratch);
	return 0;
}

/* One call after the other is denied, so that each of the kernel's is heard. */
static struct cached
measure_file(int denied)
{
	const struct cached_range range = { .fd = file, .bytes = 1 * MIB, .file_bytes = 1 * MIB };
	struct cache_calls calls = cache_system;
	struct cached cached;

	deny_all(0);
	if (denied > 0)
		calls.stat_pages = fake_stat;
	if (denied > 1)
		calls.read_nowait = fake_nowait;
	machine.random = true;
	cached_measure(&cached, &calls, &range, 1, 1);
	return cached;
}

static void
the_kernel_tells_cached_from_dropped(void **state)
{
	static const char *const names[] = { "cachestat", "preadv2", "mincore" };
	char byte;

	(void)state;
	for (int denied = 0; denied < 3; denied++) {
		struct cached cached;

		for (uint64_t at = 0; at < 1 * MIB; at += CACHE_PAGE)
			assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
		cached = measure_file(denied);
		if (strcmp(cached.probe, names[denied]) != 0) {
			print_message("no %s here\n", names[denied]);
			continue;
		}
		assert_true(cached.looked > 0 && cached.cached == cached.looked);
		assert_int_equal(posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED), 0);
		if (measure_file(0).cached != 0) {
			print_message("this file system keeps what it is told to drop\n");
			return;
		}
		cached = measure_file(denied);
		/* a refused look may make the kernel read ahead for the next one, never for itself
		 */
		assert_true(cached.cached < cached.looked);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cachestat_counts_exactly_what_is_to_be_read),
		cmocka_unit_test(without_cachestat_preadv2_samples),
		cmocka_unit_test(without_preadv2_mincore_counts),
		cmocka_unit_test(where_all_is_denied_reads_are_timed),
		cmocka_unit_test(another_start_looks_elsewhere),
		cmocka_unit_test(small_files_are_not_timed),
		cmocka_unit_test(a_read_that_fails_was_not_cached),
		cmocka_unit_test(nothing_to_read_is_not_looked_at),
		cmocka_unit_test_setup_teardown(the_kernel_tells_cached_from_dropped, make_file,
						remove_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
