/* loader/populate.h: every page once, failures told to who needs the page, huge pages given up when
 * they are slow, the threads ended when the readers are faster. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/arena.h"
#include "loader/populate.h"
#include "tests/scratch.h"

#define CHUNK ARENA_SLICE_ALIGN
#define MOST_CHUNKS 256

/* A kernel that gives pages as slowly as the test says, by a clock of its own. */
static struct {
	uint8_t *base;
	atomic_uint calls[MOST_CHUNKS]; /* that touched the chunk */
	atomic_uint no_huge;
	atomic_uint_fast64_t clock, chunk_ns, small_ns;
	uint64_t fail_at; /* chunk; MOST_CHUNKS: none fails */
	int fail_with;
	struct gate *_Atomic hold; /* the first call waits until it was passed */
	struct gate *held;         /* and passes this */
} kernel;

static int
fake_populate(void *at, uint64_t bytes)
{
	uint64_t first = (uint64_t)((uint8_t *)at - kernel.base) / CHUNK;
	struct gate *hold = atomic_exchange(&kernel.hold, NULL);

	if ((uintptr_t)at % CHUNK || bytes % CHUNK)
		return -EINVAL;
	if (hold) {
		gate_pass(kernel.held);
		if (!gate_wait(hold, 1))
			return -ETIMEDOUT;
	}
	for (uint64_t i = first; i < first + bytes / CHUNK; i++) {
		if (i == kernel.fail_at)
			return kernel.fail_with;
		atomic_fetch_add(&kernel.calls[i], 1);
		atomic_fetch_add(&kernel.clock,
				 atomic_load(&kernel.no_huge) ? kernel.small_ns : kernel.chunk_ns);
	}
	return 0;
}

static int
fake_no_huge(void *at, uint64_t bytes)
{
	(void)bytes;
	assert_ptr_equal(at, kernel.base);
	atomic_fetch_add(&kernel.no_huge, 1);
	return 0;
}

static uint64_t
fake_now(void)
{
	return atomic_load(&kernel.clock);
}

static const struct populate_calls calls = { fake_populate, fake_no_huge, fake_now };

static int
setup(void **state)
{
	(void)state;
	memset(&kernel, 0, sizeof(kernel));
	kernel.fail_at = MOST_CHUNKS;
	kernel.base = (void *)CHUNK; /* is never touched */
	return 0;
}

static struct populate *
open_with(uint64_t chunks, uint32_t threads, bool watch)
{
	const struct populate_config config = { .calls = &calls,
						.base = kernel.base,
						.bytes = chunks * CHUNK,
						.threads = threads,
						.watch = watch };
	struct populate *populate;
	struct error err;

	assert_int_equal(populate_open(&populate, &config, &err), 0);
	return populate;
}

static void
a_reader_gets_whole_chunks_once(void **state)
{
	struct populate *populate = open_with(8, 0, false);

	(void)state;
	assert_int_equal(populate_range(populate, CHUNK + 4096, 3 * CHUNK + 1), 0);
	assert_int_equal(populate_range(populate, CHUNK, 4 * CHUNK), 0);
	for (uint32_t i = 0; i < 8; i++)
		assert_int_equal(kernel.calls[i], i >= 1 && i <= 3);
	assert_int_equal(populate_said(populate).bytes, 3 * CHUNK);
	assert_int_equal(populate_said(populate).ahead_bytes, 0);
	populate_close(populate);
}

static void
threads_and_readers_together_miss_no_chunk(void **state)
{
	struct populate *populate = open_with(MOST_CHUNKS, 3, false);

	(void)state;
	populate_start(populate);
	for (uint32_t i = MOST_CHUNKS; i > 0; i--)
		assert_int_equal(populate_range(populate, (i - 1) * CHUNK, i * CHUNK), 0);
	for (uint32_t i = 0; i < MOST_CHUNKS; i++)
		assert_true(kernel.calls[i] >= 1);
	populate_join(populate);
	assert_int_equal(populate_said(populate).bytes, MOST_CHUNKS * CHUNK);
	populate_close(populate);
}

static void
what_is_warm_is_left_alone(void **state)
{
	struct populate *populate = open_with(40, 1, false);

	(void)state;
	populate_skip(populate, 4 * CHUNK, 30 * CHUNK);
	populate_start(populate);
	assert_int_equal(populate_range(populate, 0, 40 * CHUNK), 0);
	populate_join(populate);
	assert_int_equal(populate_said(populate).bytes, 14 * CHUNK);
	populate_close(populate);
	for (uint32_t i = 4; i < 30; i++)
		assert_int_equal(kernel.calls[i], 0);
}

/* The thread is held at its first chunk while the reader takes all others. */
static void
threads_end_when_the_readers_overtake_them(void **state)
{
	struct gate hold = GATE_INIT, held = GATE_INIT;
	struct populate *populate = open_with(64, 1, false);
	struct populate_said said;

	(void)state;
	kernel.hold = &hold;
	kernel.held = &held;
	populate_start(populate);
	assert_true(gate_wait(&held, 1));
	assert_int_equal(populate_range(populate, CHUNK, 64 * CHUNK), 0);
	gate_pass(&hold);
	populate_join(populate);
	said = populate_said(populate);
	populate_close(populate);
	assert_true(said.overtaken);
	assert_int_equal(said.ahead_bytes, CHUNK);
}

static void
missing_memory_is_an_error_of_the_reader_that_needs_it(void **state)
{
	struct populate *populate = open_with(16, 2, false);

	(void)state;
	kernel.fail_at = 9;
	kernel.fail_with = -EFAULT;
	populate_start(populate);
	assert_int_equal(populate_range(populate, 0, 9 * CHUNK), 0);
	assert_int_equal(populate_range(populate, 9 * CHUNK, 10 * CHUNK), -ENOMEM);
	assert_int_equal(populate_range(populate, 8 * CHUNK, 10 * CHUNK), -ENOMEM);
	assert_int_equal(populate_said(populate).failed, -EFAULT);
	populate_close(populate);
}

/* 26 ms a huge page on each thread: what a fragmented machine needed. */
static void
slow_huge_pages_are_given_up(void **state)
{
	struct populate *populate = open_with(200, 0, true);
	struct populate_said said;

	(void)state;
	kernel.chunk_ns = 26000000;
	kernel.small_ns = 1000000;
	for (uint32_t i = 0; i < 200; i++)
		assert_int_equal(populate_range(populate, i * CHUNK, (i + 1) * CHUNK), 0);
	said = populate_said(populate);
	assert_true(said.slow);
	assert_int_equal(kernel.no_huge, 1);
	assert_true(said.ns <=
		    POPULATE_WATCH_BYTES / CHUNK * kernel.chunk_ns + 200 * kernel.small_ns);
	populate_close(populate);
}

static void
fast_huge_pages_are_kept(void **state)
{
	struct populate *populate = open_with(200, 0, true);

	(void)state;
	kernel.chunk_ns = 1000000; /* 2 GB/s */
	assert_int_equal(populate_range(populate, 0, 200 * CHUNK), 0);
	assert_false(populate_said(populate).slow);
	assert_int_equal(kernel.no_huge, 0);
	populate_close(populate);
}

static void
one_slow_page_means_nothing(void **state)
{
	struct populate *populate = open_with(64, 0, true);

	(void)state;
	kernel.chunk_ns = 200000000;
	assert_int_equal(populate_range(populate, 0, CHUNK), 0);
	kernel.chunk_ns = 500000;
	assert_int_equal(populate_range(populate, 0, 64 * CHUNK), 0);
	assert_false(populate_said(populate).slow);
	populate_close(populate);
}

static void
small_pages_are_never_called_slow(void **state)
{
	struct populate *populate = open_with(200, 0, false);

	(void)state;
	kernel.chunk_ns = 50000000;
	assert_int_equal(populate_range(populate, 0, 200 * CHUNK), 0);
	assert_false(populate_said(populate).slow);
	populate_close(populate);
}

/* A memfd that cannot be touched: its size says 4 MiB, its file has none. */
static void
a_range_without_memory_behind_it_is_an_error_and_no_signal(void **state)
{
	int fd = memfd_create("empty", MFD_CLOEXEC);
	void *at;

	(void)state;
	assert_true(fd >= 0);
	at = mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(at != MAP_FAILED);
	assert_int_equal(populate_system.populate(at, 2 * CHUNK), -EFAULT);
	munmap(at, 2 * CHUNK);
}

#define POPULATE_TEST(name) cmocka_unit_test_setup(name, setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		POPULATE_TEST(a_reader_gets_whole_chunks_once),
		POPULATE_TEST(threads_and_readers_together_miss_no_chunk),
		POPULATE_TEST(what_is_warm_is_left_alone),
		POPULATE_TEST(threads_end_when_the_readers_overtake_them),
		POPULATE_TEST(missing_memory_is_an_error_of_the_reader_that_needs_it),
		POPULATE_TEST(slow_huge_pages_are_given_up),
		POPULATE_TEST(fast_huge_pages_are_kept),
		POPULATE_TEST(one_slow_page_means_nothing),
		POPULATE_TEST(small_pages_are_never_called_slow),
		cmocka_unit_test(a_range_without_memory_behind_it_is_an_error_and_no_signal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
