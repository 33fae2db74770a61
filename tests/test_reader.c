/* loader/reader.h: whatever the reads do, either every byte is in place or the load stops with a
 * line that says where. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/read_case.h"

static void
buffered_puts_every_byte_in_place(void **state)
{
	struct read_case load;

	(void)state;
	for (uint32_t threads = 1; threads <= 8; threads += 7) {
		read_case_open(&load, NULL);
		read_case_expect(&load, threads, false);
	}
}

static void
direct_puts_every_byte_in_place(void **state)
{
	struct read_case load;

	(void)state;
	for (uint32_t threads = 1; threads <= 8; threads += 7) {
		read_case_open(&load, NULL);
		read_case_expect(&load, threads, true);
	}
}

static void
short_reads_and_interrupts_are_taken_up_again(void **state)
{
	struct read_case load;

	(void)state;
	for (int direct = 0; direct <= 1; direct++) {
		read_case_open(&load, NULL);
		fake.short_reads = true;
		fake.interrupts = true;
		read_case_expect(&load, 4, direct);
	}
}

static void
an_io_error_stops_with_layer_tensor_offset_wanted_and_got(void **state)
{
	struct read_case load;
	const struct arena_tensor *t;
	char part[200];

	(void)state;
	read_case_open(&load, NULL);
	t = &load.files.tensors[3];
	fake.fail_at = t->file_offset + 1000;
	fake.fail_with = -EIO;
	snprintf(part, sizeof(part), "layer 0: blk.0.ffn_up_exps.weight: reading ");
	read_case_stopped(&load, false, -EIO, part);
	read_case_open(&load, NULL);
	t = &load.files.tensors[4];
	fake.fail_at = t->file_offset + 100;
	fake.fail_with = -EIO;
	snprintf(part, sizeof(part),
		 "layer 1: blk.1.ffn_up_exps.weight: reading %d bytes at %llu gave 100 "
		 "(first.gguf): Input/output error",
		 3 * 12345, (unsigned long long)t->file_offset);
	read_case_stopped(&load, false, -EIO, part);
}

static void
an_io_error_of_a_direct_read_stops(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.direct_fails = -EIO;
	read_case_stopped(&load, true, -EIO, "Input/output error");
}

static void
a_bad_address_in_the_middle_stops(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.fail_at = 10000000;
	fake.fail_with = -EFAULT;
	read_case_stopped(&load, false, -EFAULT, "trunk: token_embd.weight: reading");
}

static void
a_file_that_shrank_stops_and_is_never_zero_filled(void **state)
{
	struct read_case load;

	(void)state;
	for (int direct = 0; direct <= 1; direct++) {
		read_case_open(&load, NULL);
		fake.n[1] -= 5000;
		read_case_stopped(&load, direct, -EIO, "the file ends there");
		read_case_open(&load, NULL);
		fake.n[1] -= 1;
		read_case_stopped(&load, direct, -EIO, "blk.1.ffn_down_exps.weight");
	}
}

static void
a_slice_with_a_failed_piece_is_never_filled(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.fail_at = load.files.tensors[4].file_offset;
	fake.fail_with = -EIO;
	assert_int_equal(read_case_run(&load, 4, false), -EIO);
	assert_int_equal(load.seen.filled[2], 0);
	read_case_close(&load);
}

static void
memory_that_is_not_there_is_an_error_and_no_signal(void **state)
{
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	fake.populate_fails = -EFAULT;
	read_case_stopped(&load, false, -EFAULT, "trunk: no memory for");
}

static void
filled_slices_are_not_touched(void **state)
{
	const bool skip[3] = { false, true, false };
	struct read_case load;

	(void)state;
	read_case_open(&load, skip);
	assert_int_equal(read_case_run(&load, 4, true), 0);
	assert_int_equal(load.seen.begun[1], 0);
	assert_int_equal(load.seen.filled[0] + load.seen.filled[2], 2);
	for (uint64_t i = 0; i < load.placement.slices[1].bytes; i++)
		assert_int_equal(load.arena[load.placement.slices[1].offset + i], 0xa5);
	read_case_close(&load);
}

static int64_t
read_at_and_stop(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	return atomic_load(&fake.calls) >= 2 ? -ECANCELED : fake_io.read_at(fd, to, bytes, offset);
}

static void
a_stopped_reader_fills_no_more(void **state)
{
	struct io_calls io = fake_io;
	struct reader_config config;
	struct reader *reader;
	struct read_case load;

	(void)state;
	read_case_open(&load, NULL);
	io.read_at = read_at_and_stop;
	config = read_case_config(&load, 1, false);
	config.io = &io;
	assert_int_equal(reader_open(&reader, &config, &load.err), 0);
	reader_stop(reader);
	assert_int_equal(reader_join(reader, &load.err), -ECANCELED);
	assert_int_equal(load.seen.filled[1] + load.seen.filled[2], 0);
	reader_close(reader);
	read_case_close(&load);
}

static uint64_t largest;

static int64_t
read_nothing(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	(void)fd;
	(void)to;
	(void)offset;
	if (bytes > largest)
		largest = bytes;
	return (int64_t)bytes;
}

static void
one_read_asks_for_no_more_than_linux_moves(void **state)
{
	const struct io_calls io = { .read_at = read_nothing };
	uint64_t got;
	uint8_t byte;

	(void)state;
	assert_int_equal(io_read_all(&io, 0, &byte, 5ull << 30, 0, &got), 5ll << 30);
	assert_int_equal(got, 5ull << 30);
	assert_int_equal(largest, IO_MAX_READ);
}

/* The same over the kernel's own calls, from files on the disk. */
static void
a_real_file_is_read_both_ways(void **state)
{
	char path[] = "test-reader-XXXXXX";
	struct reader_config config;
	struct reader *reader;
	struct read_case load;
	uint32_t align;
	int fd, rc;

	(void)state;
	for (int direct = 0; direct <= 1; direct++) {
		read_case_open(&load, NULL);
		fd = mkstemp(strcpy(path, "test-reader-XXXXXX"));
		assert_true(fd >= 0);
		unlink(path);
		assert_int_equal(write(fd, fake.bytes[0], fake.n[0]), fake.n[0]);
		assert_int_equal(fsync(fd), 0);
		load.files.shards[0].fd = fd;
		load.files.shards[1].fd = fd; /* of the same bytes, for its tensors' places */
		load.files.shards[1].bytes = fake.n[0];
		config = read_case_config(&load, 4, direct);
		config.io = &io_system;
		free(load.arena);
		load.arena = config.arena = aligned_alloc(IO_BLOCK, load.placement.bytes);
		assert_non_null(load.arena);
		rc = reader_open(&reader, &config, &load.err);
		if (direct && rc == -ENOTSUP) {
			assert_int_equal(io_system.direct_align(fd, &align), 0);
			print_message("direct: skipped: %s\n", load.err.text);
			close(fd);
			read_case_close(&load);
			skip();
		}
		assert_int_equal(rc, 0);
		assert_int_equal(reader_join(reader, &load.err), 0);
		reader_close(reader);
		for (uint64_t i = 0; i < load.files.n_tensors; i++) {
			const struct arena_tensor *t = &load.files.tensors[i];

			assert_memory_equal(load.arena + t->offset, fake.bytes[0] + t->file_offset,
					    t->bytes);
		}
		close(fd);
		read_case_close(&load);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buffered_puts_every_byte_in_place),
		cmocka_unit_test(direct_puts_every_byte_in_place),
		cmocka_unit_test(short_reads_and_interrupts_are_taken_up_again),
		cmocka_unit_test(an_io_error_stops_with_layer_tensor_offset_wanted_and_got),
		cmocka_unit_test(an_io_error_of_a_direct_read_stops),
		cmocka_unit_test(a_bad_address_in_the_middle_stops),
		cmocka_unit_test(a_file_that_shrank_stops_and_is_never_zero_filled),
		cmocka_unit_test(a_slice_with_a_failed_piece_is_never_filled),
		cmocka_unit_test(memory_that_is_not_there_is_an_error_and_no_signal),
		cmocka_unit_test(filled_slices_are_not_touched),
		cmocka_unit_test(a_stopped_reader_fills_no_more),
		cmocka_unit_test(one_read_asks_for_no_more_than_linux_moves),
		cmocka_unit_test(a_real_file_is_read_both_ways),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
