/* loader/scatter_read.h: any ranges, each in its place, in one read, and no other byte written. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/checked.h"
#include "loader/scatter_read.h"
#include "tests/fake_files.h"
#include "tests/random_tensors.h"

#define ROUNDS 240
#define POISON 0xa5
#define PLACES (256ull << 10) /* from one range's place to the next one's */

static struct model_files files;
static struct bounce bounce;
static struct scatter_range ranges[SCATTER_MOST];
static uint8_t *memory;
static uint32_t random_state;

static int
setup(void **state)
{
	(void)state;
	fake_open(&files);
	random_state = 5;
	memory = aligned_alloc(IO_BLOCK, (SCATTER_MOST + 1) * PLACES);
	return memory ? 0 : -1;
}

static int
teardown(void **state)
{
	(void)state;
	bounce_close(&bounce);
	free(memory);
	fake_close(&files);
	return 0;
}

/* `n` ranges from `at` on, with bytes and gaps up to so many; each at a place of its own, congruent
 * to its offset.  Returns how many there is file for. */
static uint32_t
lay_out(uint32_t n, uint64_t at, uint32_t bytes, uint32_t gap)
{
	for (uint32_t i = 0; i < n; i++) {
		uint64_t length = random_next(&random_state) % bytes + 1;

		at += random_next(&random_state) % 4 ? random_next(&random_state) % gap : 0;
		if (random_next(&random_state) % 4 == 0)
			at = round_up(at, IO_BLOCK);
		if (at + length > fake.n[0])
			return i;
		ranges[i] =
		    (struct scatter_range){ at, length,
					    memory + i * PLACES + IO_BLOCK + at % IO_BLOCK };
		at += length;
	}
	return n;
}

static struct scatter_file
file_of(bool direct)
{
	return (struct scatter_file){ &fake_io, direct ? FAKE_DIRECT : 0, direct ? IO_BLOCK : 1,
				      fake.n[0] };
}

/* Reads, and looks at every byte of the places.  What does not come lies at the file's end. */
static void
read_and_look(uint32_t n, bool direct)
{
	const struct scatter_file file = file_of(direct);
	uint64_t end, whole = round_down(fake.n[0], file.block);

	memset(memory, POISON, n * PLACES + PLACES);
	assert_int_equal(scatter_read(&file, ranges, n, &bounce, &end), 0);
	if (!fake.odd_direct)
		assert_true(end >= ranges[n - 1].offset + ranges[n - 1].bytes || end == whole);
	for (uint32_t i = 0; i < n; i++) {
		const struct scatter_range *range = &ranges[i];
		uint64_t got = end > range->offset ? end - range->offset : 0;
		const uint8_t *to = memory + (i + 1) * PLACES;

		got = got < range->bytes ? got : range->bytes;
		assert_memory_equal(range->place, fake.bytes[0] + range->offset, got);
		for (const uint8_t *at = memory + i * PLACES; at < to; at++)
			if ((at < range->place || at >= range->place + range->bytes) &&
			    *at != POISON)
				fail_msg("a byte beside range %u was written", i);
	}
	assert_false(atomic_load(&fake.misaligned));
}

static void
many_ranges_are_one_read(void **state)
{
	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		uint32_t n = lay_out(SCATTER_MOST, 5000, 30000, 20000);

		assert_int_equal(n, SCATTER_MOST);
		fake.calls = 0;
		read_and_look(n, direct);
		assert_int_equal(fake.calls, 1);
	}
}

static void
each_range_gets_its_own_bytes_only(void **state)
{
	static const uint32_t gaps[] = { 1, 100, 9000, 400000 };
	static const uint32_t bytes[] = { 1, 300, 5000, 200000 };

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t n = random_next(&random_state) % 12 + 1;

		n = lay_out(n, random_next(&random_state) % fake.n[0], bytes[i % 4],
			    gaps[i / 4 % 4]);
		if (n)
			read_and_look(n, i % 2);
	}
}

static void
short_reads_and_interrupts_are_taken_up_again(void **state)
{
	(void)state;
	fake.short_reads = fake.interrupts = true;
	for (int i = 0; i < ROUNDS / 3; i++)
		read_and_look(lay_out(9, 4000 + (uint64_t)i, 20000, 9000), i % 2);
}

static void
a_read_that_ends_off_a_block_ends_it_with_what_came_in_place(void **state)
{
	(void)state;
	for (fake.odd_direct = 1; fake.odd_direct < IO_BLOCK; fake.odd_direct += 333)
		read_and_look(lay_out(7, 4000 + fake.odd_direct, 20000, 9000), true);
}

static void
an_error_says_how_far_it_came(void **state)
{
	const struct scatter_file file = file_of(false);
	uint64_t end;

	(void)state;
	fake.fail_at = 100000;
	fake.fail_with = -EIO;
	assert_int_equal(lay_out(20, 5000, 30000, 9000), 20);
	assert_int_equal(scatter_read(&file, ranges, 20, &bounce, &end), -EIO);
	assert_int_equal(end, 100000);
	fake.fail_with = 0;
	fake.direct_fails = -EINVAL;
	assert_int_equal(
	    scatter_read(&(struct scatter_file){ &fake_io, FAKE_DIRECT, IO_BLOCK, fake.n[0] },
			 ranges, 20, &bounce, &end),
	    -EINVAL);
	assert_true(end <= ranges[0].offset);
}

#define SCATTER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		SCATTER_TEST(many_ranges_are_one_read),
		SCATTER_TEST(each_range_gets_its_own_bytes_only),
		SCATTER_TEST(short_reads_and_interrupts_are_taken_up_again),
		SCATTER_TEST(a_read_that_ends_off_a_block_ends_it_with_what_came_in_place),
		SCATTER_TEST(an_error_says_how_far_it_came),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
