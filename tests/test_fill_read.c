/* The reader over a resident set: every byte in place and none beside, as few reads as the batches
 * allow, and the next batch read while this one is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/fill.h"
#include "loader/reader.h"
#include "tests/fake_files.h"
#include "tests/scratch.h"

#define LAYERS 2
#define EXPERTS 3
#define POISON 0xa5

static struct {
	struct model_files files;
	bool in[LAYERS * EXPERTS];
	struct resident resident;
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	struct piece_queue *queue;
	uint32_t *batch;
	uint8_t *arena;
	struct error err;
} t;

/* Of the first layer the first expert and the last, of the second the first two. */
static void
open_set(bool merge)
{
	const bool in[] = { true, false, true, true, true, false };

	memset(&t, 0, sizeof(t));
	memcpy(t.in, in, sizeof(in));
	t.resident = (struct resident){ .n_layers = LAYERS, .n_experts = EXPERTS, .in = t.in };
	fake_open(&t.files);
	assert_int_equal(placement_open_resident(&t.placement, t.files.tensors, t.files.n_tensors,
						 100, &t.resident, &t.err),
			 0);
	assert_int_equal(checksum_plan_open(&t.plan, t.files.tensors, t.files.n_tensors,
					    t.placement.n_slices, &t.err),
			 0);
	checksum_plan_keep(&t.plan, t.files.tensors, t.placement.experts, NULL);
	assert_int_equal(pieces_open(&t.pieces, &t.placement, &t.plan, NULL, &t.err), 0);
	assert_int_equal(piece_queue_open(&t.queue, &t.pieces, &t.err), 0);
	assert_int_equal(fill_batches(&t.batch, &t.placement, &t.pieces, &t.err), 0);
	assert_int_equal(piece_queue_batches(t.queue, t.batch, merge), 0);
	t.arena = aligned_alloc(ARENA_SLICE_ALIGN, t.placement.bytes);
	assert_non_null(t.arena);
	memset(t.arena, POISON, t.placement.bytes);
}

static void
close_set(void)
{
	piece_queue_close(t.queue);
	free(t.batch);
	pieces_close(&t.pieces);
	checksum_plan_close(&t.plan);
	placement_close(&t.placement);
	free(t.arena);
	fake_close(&t.files);
}

static int
read_set(const struct io_calls *io, uint32_t threads, bool direct)
{
	const struct reader_config config = { .io = io,
					      .files = &t.files,
					      .placement = &t.placement,
					      .pieces = &t.pieces,
					      .queue = t.queue,
					      .plan = &t.plan,
					      .arena = t.arena,
					      .threads = threads,
					      .direct = direct };
	struct reader *reader;
	int rc = reader_open(&reader, &config, &t.err);

	if (rc < 0)
		return rc;
	rc = reader_join(reader, &t.err);
	reader_close(reader);
	return rc;
}

/* Every resident matrix, and all between the runs as it was. */
static void
expect_in_place(void)
{
	uint64_t at = 0;

	for (uint64_t i = 0; i < t.files.n_tensors; i++) {
		const struct arena_tensor *tensor = &t.files.tensors[i];
		enum role role;
		int layer = model_expert_layer(tensor->name, &role);

		for (uint64_t e = 0; layer >= 0 && e < EXPERTS; e++) {
			uint64_t which = (uint64_t)layer * EXPERTS + e;

			if (t.in[which])
				assert_memory_equal(
				    t.arena + t.placement.experts[which].role_offset[role],
				    fake.bytes[tensor->shard] + placement_expert_at(tensor, e),
				    tensor->bytes / EXPERTS);
		}
		if (layer < 0)
			assert_memory_equal(t.arena + tensor->offset,
					    fake.bytes[tensor->shard] + tensor->file_offset,
					    tensor->bytes);
	}
	for (uint64_t i = 0; i <= t.placement.n_runs; i++) {
		bool last = i == t.placement.n_runs;
		uint64_t end = last ? t.placement.bytes : t.placement.runs[i].arena_offset;

		for (; at < end; at++)
			assert_int_equal(t.arena[at], POISON);
		at += last ? 0 : t.placement.runs[i].bytes;
	}
	assert_false(atomic_load(&fake.misaligned));
}

static uint32_t
count_reads(bool merge, bool direct)
{
	uint32_t calls;

	open_set(merge);
	if (read_set(&fake_io, 4, direct) != 0)
		fail_msg("%s", t.err.text);
	expect_in_place();
	calls = fake.calls;
	close_set();
	return calls;
}

/* Of layer 0 two gates, and behind them two ups, 700000 bytes apart: 3 runs (the last gate and the
 * first up are neighbours); two downs; of layer 1 two gates and two downs with a gate between. */
static void
merging_saves_four_reads_and_changes_no_byte(void **state)
{
	(void)state;
	assert_int_equal(count_reads(true, true) + 4, count_reads(false, true));
	/* Buffered, a long run takes several. */
	assert_true(count_reads(true, false) + 4 <= count_reads(false, false));
}

static void
short_and_interrupted_reads_change_nothing(void **state)
{
	(void)state;
	for (int direct = 0; direct < 2; direct++) {
		open_set(true);
		fake.short_reads = fake.interrupts = true;
		assert_int_equal(read_set(&fake_io, 4, direct), 0);
		expect_in_place();
		close_set();
	}
	open_set(true);
	fake.odd_direct = 511;
	assert_int_equal(read_set(&fake_io, 4, true), 0);
	expect_in_place();
	close_set();
}

static void
blocks_larger_than_a_places_own_are_read_apart(void **state)
{
	(void)state;
	open_set(true);
	fake.align = 65536;
	assert_int_equal(read_set(&fake_io, 4, true), 0);
	expect_in_place();
	assert_true(atomic_load(&fake.direct_reads) > 0);
	close_set();
}

static void
an_error_names_the_expert_it_met(void **state)
{
	const struct arena_tensor *up;

	(void)state;
	open_set(true);
	up = &t.files.tensors[3]; /* behind the trunk's */
	fake.fail_at = placement_expert_at(up, 2) + 1000;
	fake.fail_with = -EIO;
	assert_int_equal(read_set(&fake_io, 1, false), -EIO);
	assert_non_null(strstr(t.err.text, "layer 0: blk.0.ffn_up_exps.weight: reading "));
	assert_non_null(strstr(t.err.text, " gave 1000 (first.gguf): Input/output error"));
	close_set();
}

static void
direct_that_is_refused_at_a_merged_read_says_so(void **state)
{
	(void)state;
	open_set(true);
	fake.direct_fails = -EINVAL;
	assert_int_equal(read_set(&fake_io, 1, true), -ENOTSUP);
	assert_non_null(strstr(t.err.text, "want --read buffered"));
	close_set();
}

static struct gate another = GATE_INIT;
static atomic_bool held, alone;

/* The first read ends when there is a second one beside it. */
static int64_t
read_beside(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	if (atomic_exchange(&held, true))
		gate_pass(&another);
	else if (!gate_wait(&another, 1))
		atomic_store(&alone, true);
	return fake_io.read_at(fd, to, bytes, offset);
}

static void
the_next_batch_is_read_while_this_one_is(void **state)
{
	struct io_calls io = fake_io;
	uint32_t *each;

	(void)state;
	io.read_at = read_beside;
	open_set(false);
	each = calloc(t.pieces.n, sizeof(*each));
	assert_non_null(each);
	for (uint32_t i = 0; i < t.pieces.n; i++)
		each[i] = i; /* a batch of its own */
	piece_queue_close(t.queue);
	assert_int_equal(piece_queue_open(&t.queue, &t.pieces, &t.err), 0);
	assert_int_equal(piece_queue_batches(t.queue, each, false), 0);
	assert_int_equal(read_set(&io, 2, false), 0);
	expect_in_place();
	assert_false(atomic_load(&alone));
	close_set();
	free(each);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merging_saves_four_reads_and_changes_no_byte),
		cmocka_unit_test(short_and_interrupted_reads_change_nothing),
		cmocka_unit_test(blocks_larger_than_a_places_own_are_read_apart),
		cmocka_unit_test(an_error_names_the_expert_it_met),
		cmocka_unit_test(direct_that_is_refused_at_a_merged_read_says_so),
		cmocka_unit_test(the_next_batch_is_read_while_this_one_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
