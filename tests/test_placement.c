/* loader/placement.h: rules that hold for any table of tensors. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/checked.h"
#include "common/model.h"
#include "loader/io.h"
#include "loader/placement.h"
#include "tests/random_tensors.h"

#define ROUNDS 300
#define HEADER 12345

struct placed {
	struct random_tensors tensors;
	struct placement placement;
};

static void
place(struct placed *placed, uint32_t seed)
{
	struct error err;

	random_tensors_open(&placed->tensors, seed);
	if (placement_open(&placed->placement, placed->tensors.list, placed->tensors.n, HEADER,
			   &err) < 0)
		fail_msg("%s", err.text);
}

static void
unplace(struct placed *placed)
{
	placement_close(&placed->placement);
	random_tensors_close(&placed->tensors);
}

static void
tensors_are_congruent_to_their_file_offset(void **state)
{
	struct placed placed;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		place(&placed, seed);
		for (uint64_t i = 0; i < placed.tensors.n; i++)
			assert_int_equal(placed.tensors.list[i].offset % IO_BLOCK,
					 placed.tensors.list[i].file_offset % IO_BLOCK);
		unplace(&placed);
	}
}

static void
slices_are_aligned_ordered_and_named(void **state)
{
	struct placed placed;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		const struct placement *p = &placed.placement;
		uint64_t end;

		place(&placed, seed);
		end = p->header_offset + HEADER;
		assert_int_equal(p->n_slices, placed.tensors.n_layers + 1);
		assert_string_equal(p->slices[0].name, "trunk");
		if (p->n_slices > 2)
			assert_string_equal(p->slices[2].name, "layer 1");
		for (uint32_t i = 0; i < p->n_slices; i++) {
			assert_int_equal(p->slices[i].offset % ARENA_SLICE_ALIGN, 0);
			assert_int_equal(p->slices[i].bytes % IO_BLOCK, 0);
			assert_true(p->slices[i].offset >= end);
			end = p->slices[i].offset + p->slices[i].bytes;
		}
		assert_true(end <= p->bytes && p->bytes - end < ARENA_SLICE_ALIGN);
		assert_int_equal(p->bytes % ARENA_SLICE_ALIGN, 0);
		unplace(&placed);
	}
}

static void
the_directory_lies_before_the_trunk(void **state)
{
	struct placed placed;

	(void)state;
	place(&placed, 7);
	assert_true(placed.placement.tensors_offset >= sizeof(struct arena_head));
	assert_true(placed.placement.slices_offset >=
		    placed.placement.tensors_offset +
			placed.tensors.n * sizeof(struct arena_tensor));
	assert_true(placed.placement.header_offset >=
		    placed.placement.slices_offset +
			placed.placement.n_slices * sizeof(struct arena_slice));
	assert_true(placed.placement.slices[0].offset >= placed.placement.header_offset + HEADER);
	unplace(&placed);
}

static void
tensors_lie_in_the_slice_of_their_layer(void **state)
{
	struct placed placed;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		place(&placed, seed);
		for (uint64_t i = 0; i < placed.tensors.n; i++) {
			const struct arena_tensor *t = &placed.tensors.list[i];
			const struct arena_slice *slice = &placed.placement.slices[t->slice];

			assert_int_equal(t->slice, model_expert_layer(t->name, NULL) + 1);
			assert_true(t->offset >= slice->offset);
			assert_true(t->offset + t->bytes <= slice->offset + slice->bytes);
		}
		unplace(&placed);
	}
}

/* So that a direct read of one run cannot write into another. */
static void
blocks_of_two_runs_never_overlap(void **state)
{
	struct placed placed;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		const struct placement *p = &placed.placement;
		uint64_t end = 0;

		place(&placed, seed);
		for (uint64_t i = 0; i < p->n_runs; i++) {
			const struct run *run = &p->runs[i];
			const struct arena_slice *slice = &p->slices[run->slice];
			uint64_t from = round_down(run->arena_offset, IO_BLOCK);

			assert_true(from >= end && from >= slice->offset);
			end = round_up(run->arena_offset + run->bytes, IO_BLOCK);
			assert_true(end <= slice->offset + slice->bytes);
			assert_int_equal(run->arena_offset % IO_BLOCK, run->file_offset % IO_BLOCK);
		}
		unplace(&placed);
	}
}

static void
every_tensor_lies_whole_in_one_run_at_its_distance(void **state)
{
	struct placed placed;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		place(&placed, seed);
		for (uint64_t i = 0; i < placed.tensors.n; i++) {
			const struct arena_tensor *t = &placed.tensors.list[i];
			int holders = 0;

			for (uint64_t k = 0; k < placed.placement.n_runs; k++) {
				const struct run *run = &placed.placement.runs[k];

				if (run->shard != t->shard || run->slice != t->slice ||
				    t->file_offset < run->file_offset ||
				    t->file_offset + t->bytes > run->file_offset + run->bytes)
					continue;
				holders++;
				assert_int_equal(t->offset - run->arena_offset,
						 t->file_offset - run->file_offset);
			}
			assert_int_equal(holders, 1);
		}
		unplace(&placed);
	}
}

static void
neighbours_in_the_file_stay_one_run(void **state)
{
	struct arena_tensor tensors[3] = {
		{ .name = "a", .bytes = 1000, .file_offset = 160 },
		{ .name = "b", .bytes = 64, .file_offset = 160 + 1000 + 4095 },
		{ .name = "c", .bytes = 64, .file_offset = 160 + 1000 + 4095 + 64 + 4096 },
	};
	struct placement p;
	struct error err;

	(void)state;
	assert_int_equal(placement_open(&p, tensors, 3, 100, &err), 0);
	assert_int_equal(p.n_runs, 2);
	assert_int_equal(tensors[1].offset - tensors[0].offset, 1000 + 4095);
	assert_int_equal(p.runs[1].file_offset, tensors[2].file_offset);
	placement_close(&p);
}

/* As in a pack: expert by expert, each with its roles. */
static void
experts_with_their_roles_side_by_side_are_one_run(void **state)
{
	struct arena_tensor tensors[3] = {
		{ .name = "blk.0.ffn_gate_exps.weight", .file_offset = 8192, .bytes = 3 * 1000 },
		{ .name = "blk.0.ffn_up_exps.weight", .file_offset = 9216, .bytes = 3 * 1000 },
		{ .name = "blk.0.ffn_down_exps.weight", .file_offset = 10240, .bytes = 3 * 1500 },
	};
	struct placement p;
	struct error err;

	(void)state;
	for (int i = 0; i < 3; i++) {
		tensors[i].dims[2] = 3;
		tensors[i].stride = 4096;
	}
	assert_int_equal(placement_open(&p, tensors, 3, 100, &err), 0);
	assert_int_equal(p.n_runs, 1);
	assert_int_equal(p.runs[0].file_offset, 8192);
	assert_int_equal(p.runs[0].bytes, 2048 + 2 * 4096 + 1500);
	assert_int_equal(tensors[0].offset, p.runs[0].arena_offset);
	assert_int_equal(tensors[1].offset - tensors[0].offset, 1024);
	assert_int_equal(tensors[2].offset - tensors[0].offset, 2048);
	assert_true(p.slices[1].bytes >= p.runs[0].bytes);
	placement_close(&p);
	tensors[1].stride = 1ull << 63;
	assert_int_equal(placement_open(&p, tensors, 3, 100, &err), -EOVERFLOW);
}

static void
sizes_that_no_arena_has_are_refused(void **state)
{
	struct arena_tensor tensors[2] = { { .name = "a", .bytes = UINT64_MAX - 5 },
					   { .name = "b", .bytes = 100 } };
	struct placement p;
	struct error err;

	(void)state;
	assert_int_equal(placement_open(&p, tensors, 2, 100, &err), -EOVERFLOW);
	tensors[0].bytes = 1ull << 47;
	assert_int_equal(placement_open(&p, tensors, 1, 100, &err), -EOVERFLOW);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tensors_are_congruent_to_their_file_offset),
		cmocka_unit_test(slices_are_aligned_ordered_and_named),
		cmocka_unit_test(the_directory_lies_before_the_trunk),
		cmocka_unit_test(tensors_lie_in_the_slice_of_their_layer),
		cmocka_unit_test(blocks_of_two_runs_never_overlap),
		cmocka_unit_test(every_tensor_lies_whole_in_one_run_at_its_distance),
		cmocka_unit_test(neighbours_in_the_file_stay_one_run),
		cmocka_unit_test(experts_with_their_roles_side_by_side_are_one_run),
		cmocka_unit_test(sizes_that_no_arena_has_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
