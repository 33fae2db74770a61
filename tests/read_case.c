#include "tests/read_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
on_begun(void *arg, uint32_t slice)
{
	struct read_seen *seen = arg;

	assert_int_equal(seen->ended, 0);
	seen->begun[slice]++;
}

static void
on_moved(void *arg, uint64_t bytes)
{
	struct read_seen *seen = arg;

	assert_true(bytes > seen->bytes);
	seen->bytes = bytes;
}

static void
on_filled(void *arg, uint32_t slice, uint64_t checksum)
{
	struct read_seen *seen = arg;

	assert_int_equal(seen->begun[slice], 1);
	seen->filled[slice]++;
	seen->checksums[slice] = checksum;
}

static void
on_demanded(void *arg)
{
	struct read_seen *seen = arg;

	seen->demanded++;
}

static void
on_ended(void *arg)
{
	struct read_seen *seen = arg;

	seen->ended++;
}

void
read_case_open(struct read_case *load, const bool *skip)
{
	struct error err;

	*load = (struct read_case){ 0 };
	fake_open(&load->files);
	assert_int_equal(
	    placement_open(&load->placement, load->files.tensors, load->files.n_tensors, 100, &err),
	    0);
	assert_int_equal(checksum_plan_open(&load->plan, load->files.tensors, load->files.n_tensors,
					    load->placement.n_slices, &err),
			 0);
	assert_int_equal(pieces_open(&load->pieces, &load->placement, &load->plan, skip, &err), 0);
	assert_int_equal(piece_queue_open(&load->queue, &load->pieces, &err), 0);
	load->arena = aligned_alloc(IO_BLOCK, load->placement.bytes);
	assert_non_null(load->arena);
	memset(load->arena, 0xa5, load->placement.bytes);
}

struct reader_config
read_case_config(struct read_case *load, uint32_t threads, bool direct)
{
	return (struct reader_config){
		.io = &fake_io,
		.files = &load->files,
		.placement = &load->placement,
		.pieces = &load->pieces,
		.queue = load->queue,
		.plan = &load->plan,
		.arena = load->arena,
		.threads = threads,
		.direct = direct,
		.events = { .arg = &load->seen,
			    .begun = on_begun,
			    .moved = on_moved,
			    .filled = on_filled,
			    .demanded = on_demanded,
			    .ended = on_ended },
	};
}

int
read_case_run(struct read_case *load, uint32_t threads, bool direct)
{
	struct reader_config config = read_case_config(load, threads, direct);
	struct reader *reader;
	int rc = reader_open(&reader, &config, &load->err);

	if (rc < 0)
		return rc;
	rc = reader_join(reader, &load->err);
	reader_close(reader);
	assert_int_equal(load->seen.ended, 1);
	return rc;
}

static void
expect_in_place(struct read_case *load)
{
	for (uint64_t i = 0; i < load->files.n_tensors; i++) {
		const struct arena_tensor *t = &load->files.tensors[i];

		if (memcmp(load->arena + t->offset, fake.bytes[t->shard] + t->file_offset,
			   t->bytes) != 0)
			fail_msg("%s differs from its file", t->name);
	}
	for (uint64_t i = 0; i < load->plan.n_units; i++)
		assert_true(load->plan.units[i].hash ==
			    checksum_unit_hash(&load->plan.units[i], load->arena));
	for (uint32_t i = 0; i < load->placement.n_slices; i++) {
		assert_int_equal(load->seen.filled[i], 1);
		assert_true(load->seen.checksums[i] == checksum_slice(&load->plan, i));
	}
	assert_int_equal(load->seen.bytes, load->pieces.bytes);
}

void
read_case_close(struct read_case *load)
{
	free(load->arena);
	piece_queue_close(load->queue);
	pieces_close(&load->pieces);
	checksum_plan_close(&load->plan);
	placement_close(&load->placement);
	fake_close(&load->files);
}

void
read_case_expect(struct read_case *load, uint32_t threads, bool direct)
{
	if (read_case_run(load, threads, direct) != 0)
		fail_msg("%s", load->err.text);
	expect_in_place(load);
	assert_false(atomic_load(&fake.misaligned));
	read_case_close(load);
}

void
read_case_stopped(struct read_case *load, bool direct, int code, const char *part)
{
	/* One thread: of several failures the first in place is told. */
	assert_int_equal(read_case_run(load, 1, direct), code);
	if (!strstr(load->err.text, part))
		fail_msg("\"%s\" does not say \"%s\"", load->err.text, part);
	assert_null(strchr(load->err.text, '\n'));
	read_case_close(load);
}
