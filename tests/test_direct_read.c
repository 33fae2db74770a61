/* loader/direct_read.h: any range, any place, any alignment: its own bytes and no others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/checked.h"
#include "loader/direct_read.h"
#include "tests/fake_files.h"
#include "tests/random_tensors.h"

#define ROUNDS 2000
#define ROOM (6u << 20)
#define POISON 0xa5

struct read_at_random {
	struct model_files files;
	uint8_t *memory;
	struct bounce bounce;
	uint32_t random;
};

static void
open_random(struct read_at_random *r)
{
	*r = (struct read_at_random){ .random = 3 };
	fake_open(&r->files);
	r->memory = aligned_alloc(DIRECT_MAX_ALIGN, ROOM);
	assert_non_null(r->memory);
}

static void
close_random(struct read_at_random *r)
{
	bounce_close(&r->bounce);
	free(r->memory);
	fake_close(&r->files);
}

/* Few bytes around block ends, and larger ranges. */
static void
pick(struct read_at_random *r, uint64_t *ret_offset, uint64_t *ret_bytes)
{
	uint64_t n = fake.n[0], offset = random_next(&r->random) % (n - 1);
	uint64_t bytes = random_next(&r->random) % 4 ? random_next(&r->random) % 20000
						     : random_next(&r->random) % (1u << 20);

	if (random_next(&r->random) % 3 == 0)
		offset = round_down(offset, IO_BLOCK);
	if (random_next(&r->random) % 3 == 0)
		bytes = round_up(offset + bytes, IO_BLOCK) - offset;
	bytes = bytes ? bytes : 1;
	*ret_offset = offset;
	*ret_bytes = bytes < n - offset ? bytes : n - offset;
}

/* Reads and looks at every byte in and around the place.  *ret_got: how many came. */
static void
read_one(struct read_at_random *r, uint32_t align, uint64_t offset, uint64_t bytes, uint64_t shift,
	 uint64_t *ret_got)
{
	uint64_t block = align > IO_BLOCK ? align : IO_BLOCK;
	const struct direct_file file = { &fake_io, FAKE_DIRECT, align, fake.n[0] };
	uint64_t at = block + (offset + shift) % block, n = round_up(at + bytes + block, block);
	uint64_t left = round_down(fake.n[0], block);

	assert_true(n <= ROOM);
	memset(r->memory, POISON, n);
	assert_int_equal(direct_read(&file, offset, bytes, r->memory + at, &r->bounce, ret_got), 0);
	assert_true(*ret_got <= bytes);
	if (!fake.odd_direct)
		assert_int_equal(*ret_got, left < offset           ? 0
					   : left < offset + bytes ? left - offset
								   : bytes);
	assert_memory_equal(r->memory + at, fake.bytes[0] + offset, *ret_got);
	for (uint64_t i = 0; i < n; i++)
		if ((i < at || i >= at + bytes) && r->memory[i] != POISON)
			fail_msg("byte %llu of %llu at %llu was written", (unsigned long long)i,
				 (unsigned long long)bytes, (unsigned long long)at);
}

static void
in_place_writes_its_own_bytes_only(void **state)
{
	static const uint32_t aligns[] = { 512, 4096, 65536 };
	struct read_at_random r;
	uint64_t offset, bytes, got;

	(void)state;
	open_random(&r);
	for (int i = 0; i < ROUNDS; i++) {
		pick(&r, &offset, &bytes);
		read_one(&r, aligns[i % 3], offset, bytes, 0, &got);
	}
	assert_false(atomic_load(&fake.misaligned));
	close_random(&r);
}

static void
through_the_buffer_equals_in_place(void **state)
{
	static const uint32_t aligns[] = { 512, 4096, 65536 };
	struct read_at_random r;
	uint64_t offset, bytes, got, other;

	(void)state;
	open_random(&r);
	for (int i = 0; i < ROUNDS; i++) {
		pick(&r, &offset, &bytes);
		read_one(&r, aligns[i % 3], offset, bytes, 0, &got);
		read_one(&r, aligns[i % 3], offset, bytes, 1 + i % 4000, &other);
		assert_int_equal(got, other);
	}
	assert_false(atomic_load(&fake.misaligned));
	close_random(&r);
}

static void
ranges_larger_than_the_buffer_come_whole(void **state)
{
	struct read_at_random r;
	uint64_t got;

	(void)state;
	open_random(&r);
	read_one(&r, 4096, 12345, 5u << 20, 100, &got);
	assert_int_equal(got, 5u << 20);
	close_random(&r);
}

static void
short_reads_and_interrupts_are_taken_up_again(void **state)
{
	struct read_at_random r;
	uint64_t offset, bytes, got;

	(void)state;
	open_random(&r);
	fake.short_reads = true;
	fake.interrupts = true;
	for (int i = 0; i < ROUNDS / 4; i++) {
		pick(&r, &offset, &bytes);
		read_one(&r, 4096, offset, bytes, i % 2, &got);
	}
	close_random(&r);
}

static void
reads_that_end_off_a_block_leave_the_rest(void **state)
{
	struct read_at_random r;
	uint64_t offset, bytes, got;

	(void)state;
	open_random(&r);
	fake.odd_direct = 100;
	for (int i = 0; i < ROUNDS / 4; i++) {
		pick(&r, &offset, &bytes);
		read_one(&r, 4096, offset, bytes, i % 2, &got);
	}
	close_random(&r);
}

static void
an_error_says_how_much_came_before_it(void **state)
{
	struct read_at_random r;
	uint64_t got;

	(void)state;
	open_random(&r);
	fake.fail_at = 1u << 20;
	fake.fail_with = -EIO;
	for (uint64_t shift = 0; shift < 2; shift++) {
		const struct direct_file file = { &fake_io, FAKE_DIRECT, 512, fake.n[0] };

		assert_int_equal(direct_read(&file, 1000000, 200000,
					     r.memory + shift + 1000000 % IO_BLOCK, &r.bounce,
					     &got),
				 -EIO);
		assert_int_equal(got, (1u << 20) - 1000000);
	}
	close_random(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_place_writes_its_own_bytes_only),
		cmocka_unit_test(through_the_buffer_equals_in_place),
		cmocka_unit_test(ranges_larger_than_the_buffer_come_whole),
		cmocka_unit_test(short_reads_and_interrupts_are_taken_up_again),
		cmocka_unit_test(reads_that_end_off_a_block_leave_the_rest),
		cmocka_unit_test(an_error_says_how_much_came_before_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
