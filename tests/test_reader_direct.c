/* loader/reader.h with direct reads: what cannot be read so, or not in place, and what is said of
 * it. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loader/direct_read.h"
#include "tests/read_case.h"

/* Only the last bytes of a file, which fill no block, take the other way. */
static void
direct_reads_blocks_direct_and_the_files_tail_buffered(void **state)
{
	struct read_case load;
	uint64_t tails;

	(void)state;
	read_case_open(&load, NULL);
	tails = (fake.n[0] % IO_BLOCK != 0) + (fake.n[1] % IO_BLOCK != 0);
	assert_int_equal(fake.n[1] % IO_BLOCK, 1);
	read_case_expect(&load, 4, true);
	assert_true(atomic_load(&fake.direct_reads) > 0);
	assert_int_equal(atomic_load(&fake.buffered_reads), tails);
}

/* Buffered, direct, direct in large blocks, and direct to places that are not congruent. */
static void
every_way_of_reading_agrees_on_every_checksum(void **state)
{
	uint64_t checksums[5][8];

	(void)state;
	for (int way = 0; way < 5; way++) {
		struct read_case load;

		if (way < 3)
			read_case_open(&load, NULL);
		else
			read_case_open_shifted(&load, way == 3 ? 1 : 512);
		fake.align = way == 2 ? 65536 : 512;
		read_case_expect(&load, 4, way > 0);
		if (way > 0)
			assert_true(atomic_load(&fake.direct_reads) > 0);
		memcpy(checksums[way], load.seen.checksums, sizeof(checksums[way]));
		assert_memory_equal(checksums[way], checksums[0], sizeof(checksums[0]));
	}
}

static void
faults_of_reads_through_the_buffer_are_taken_up_or_end_the_load(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open_shifted(&load, 32);
	fake.short_reads = true;
	fake.interrupts = true;
	read_case_expect(&load, 4, true);
	read_case_open_shifted(&load, 32);
	fake.odd_direct = 511;
	read_case_expect(&load, 4, true);
	read_case_open_shifted(&load, 32);
	fake.direct_fails = -EIO;
	read_case_stopped(&load, true, -EIO, "Input/output error");
	read_case_open_shifted(&load, 32);
	fake.n[1] -= 5000;
	read_case_stopped(&load, true, -EIO, "the file ends there");
}

static void
direct_reads_that_end_off_a_block_go_on(void **state)
{
	static const uint32_t off[] = { 1, 511, 512, 4095 };
	struct read_case load;

	(void)state;
	for (size_t i = 0; i < 4; i++) {
		read_case_open(&load, NULL);
		fake.odd_direct = off[i];
		read_case_expect(&load, 4, true);
	}
}

static void
direct_that_is_refused_at_the_first_read_says_so(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.direct_fails = -EINVAL;
	read_case_stopped(&load, true, -ENOTSUP, "want --read buffered");
}

static void
direct_that_cannot_be_had_is_refused_at_open(void **state)
{
	struct reader_config config;
	struct reader *reader;
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	config = read_case_config(&load, 2, true);
	fake.align = 0; /* a tmpfs */
	assert_int_equal(reader_open(&reader, &config, &load.err), -ENOTSUP);
	assert_non_null(strstr(load.err.text, "first.gguf: its file system has no direct reading"));
	fake.align = 2 * DIRECT_MAX_ALIGN;
	assert_int_equal(reader_open(&reader, &config, &load.err), -ENOTSUP);
	fake.align = 512;
	fake.open_fails = -EINVAL;
	assert_int_equal(reader_open(&reader, &config, &load.err), -ENOTSUP);
	assert_non_null(strstr(load.err.text, "refuses O_DIRECT"));
	read_case_close(&load);
}

/* The same where direct may be done without. */
static void
a_file_that_cannot_be_read_direct_is_read_buffered_and_said_once(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.direct_fails = -EINVAL; /* at the first read, as an overlay does */
	read_case_expect_fallback(&load, FAKE_FILES);
	read_case_open(&load, NULL);
	fake.align = 0;
	read_case_expect_fallback(&load, FAKE_FILES);
	read_case_open(&load, NULL);
	fake.open_fails = -EINVAL;
	read_case_expect_fallback(&load, FAKE_FILES);
	read_case_open(&load, NULL);
	read_case_expect_fallback(&load, 0);
}

static void
an_io_error_is_no_reason_to_read_buffered(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.direct_fails = -EIO;
	read_case_stopped(&load, true, -EIO, "Input/output error");
	assert_int_equal(atomic_load(&fake.buffered_reads), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(direct_reads_blocks_direct_and_the_files_tail_buffered),
		cmocka_unit_test(every_way_of_reading_agrees_on_every_checksum),
		cmocka_unit_test(faults_of_reads_through_the_buffer_are_taken_up_or_end_the_load),
		cmocka_unit_test(direct_reads_that_end_off_a_block_go_on),
		cmocka_unit_test(direct_that_is_refused_at_the_first_read_says_so),
		cmocka_unit_test(direct_that_cannot_be_had_is_refused_at_open),
		cmocka_unit_test(a_file_that_cannot_be_read_direct_is_read_buffered_and_said_once),
		cmocka_unit_test(an_io_error_is_no_reason_to_read_buffered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
