#include "tests/read_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POISON 0xa5
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
on_fell_back(void *arg, const char *why)
{
	struct read_seen *seen = arg;

	assert_non_null(strstr(why, ".gguf"));
	seen->fell_back++;
}

static void
on_ended(void *arg)
{
	struct read_seen *seen = arg;

	seen->ended++;
}

static void
open_placed(struct read_case *load, const bool *skip, uint32_t shift)
{
	struct error err;

	*load = (struct read_case){ 0 };
	fake_open(&load->files);
	assert_int_equal(
	    placement_open(&load->placement, load->files.tensors, load->files.n_tensors, 100, &err),
	    0);
	for (uint64_t i = 0; i < load->placement.n_runs; i++)
		load->placement.runs[i].arena_offset += shift;
	for (uint64_t i = 0; i < load->files.n_tensors; i++)
		load->files.tensors[i].offset += shift;
	assert_int_equal(checksum_plan_open(&load->plan, load->files.tensors, load->files.n_tensors,
					    load->placement.n_slices, &err),
			 0);
	assert_int_equal(pieces_open(&load->pieces, &load->placement, &load->plan, skip, &err), 0);
	assert_int_equal(piece_queue_open(&load->queue, &load->pieces, &err), 0);
	load->arena_bytes = load->placement.bytes + ARENA_SLICE_ALIGN;
	load->arena = aligned_alloc(ARENA_SLICE_ALIGN, load->arena_bytes);
	assert_non_null(load->arena);
	memset(load->arena, POISON, load->arena_bytes);
}

void
read_case_open(struct read_case *load, const bool *skip)
{
	open_placed(load, skip, 0);
}

void
read_case_open_shifted(struct read_case *load, uint32_t shift)
{
	open_placed(load, NULL, shift);
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

static int
run(struct read_case *load, const struct reader_config *config)
{
	struct reader *reader;
	int rc = reader_open(&reader, config, &load->err);

	if (rc < 0)
		return rc;
	rc = reader_join(reader, &load->err);
	reader_close(reader);
	assert_int_equal(load->seen.ended, 1);
	return rc;
}

int
read_case_run(struct read_case *load, uint32_t threads, bool direct)
{
	struct reader_config config = read_case_config(load, threads, direct);

	return run(load, &config);
}

/* All between the runs is as it was: whatever a window held beside them went elsewhere. */
static void
expect_poison(const struct read_case *load)
{
	const struct placement *placement = &load->placement;
	uint64_t at = 0;

	for (uint64_t i = 0; i <= placement->n_runs; i++) {
		bool last = i == placement->n_runs;
		uint64_t end = last ? load->arena_bytes : placement->runs[i].arena_offset;

		for (; at < end; at++)
			if (load->arena[at] != POISON)
				fail_msg("the byte at %llu was written", (unsigned long long)at);
		at += last ? 0 : placement->runs[i].bytes;
	}
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

static void
expect_whole(struct read_case *load, const struct reader_config *config)
{
	if (run(load, config) != 0)
		fail_msg("%s", load->err.text);
	expect_in_place(load);
	expect_poison(load);
	assert_false(atomic_load(&fake.misaligned));
}

void
read_case_expect(struct read_case *load, uint32_t threads, bool direct)
{
	struct reader_config config = read_case_config(load, threads, direct);

	expect_whole(load, &config);
	read_case_close(load);
}

void
read_case_expect_fallback(struct read_case *load, uint32_t files)
{
	struct reader_config config = read_case_config(load, 4, true);

	config.events.fell_back = on_fell_back;
	expect_whole(load, &config);
	assert_int_equal(load->seen.fell_back, files);
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
