/* loader/pieces.h: rules that hold for any placement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/pieces.h"
#include "tests/random_tensors.h"

#define ROUNDS 200

struct cut {
	struct random_tensors tensors;
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
};

static void
cut(struct cut *c, uint32_t seed, const bool *skip)
{
	struct error err;
	int rc;

	random_tensors_open(&c->tensors, seed);
	rc = placement_open(&c->placement, c->tensors.list, c->tensors.n, 1000, &err);
	assert_int_equal(rc, 0);
	rc = checksum_plan_open(&c->plan, c->tensors.list, c->tensors.n, c->placement.n_slices,
				&err);
	assert_int_equal(rc, 0);
	rc = pieces_open(&c->pieces, &c->placement, &c->plan, skip, &err);
	assert_int_equal(rc, 0);
}

static void
uncut(struct cut *c)
{
	pieces_close(&c->pieces);
	checksum_plan_close(&c->plan);
	placement_close(&c->placement);
	random_tensors_close(&c->tensors);
}

static void
pieces_lie_in_runs_in_order_and_share_no_byte(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		uint64_t end = 0, bytes = 0;

		cut(&c, seed, NULL);
		for (uint64_t i = 0; i < c.pieces.n; i++) {
			const struct piece *piece = &c.pieces.list[i];
			const struct run *run = &c.placement.runs[piece->run];
			uint64_t at = piece->arena_offset - run->arena_offset;

			assert_int_equal(piece->shard, run->shard);
			assert_int_equal(piece->slice, run->slice);
			assert_true(piece->arena_offset >= end && piece->bytes > 0);
			assert_int_equal(piece->file_offset, run->file_offset + at);
			assert_true(at + piece->bytes <= run->bytes);
			end = piece->arena_offset + piece->bytes;
			bytes += piece->bytes;
		}
		assert_int_equal(bytes, c.pieces.bytes);
		assert_int_equal(c.pieces.skipped_bytes, 0);
		uncut(&c);
	}
}

static void
every_unit_lies_whole_in_the_piece_that_knows_it(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		uint64_t known = 0;

		cut(&c, seed, NULL);
		for (uint64_t k = 0; k < c.plan.n_units; k++) {
			const struct piece *piece = &c.pieces.list[c.pieces.of_unit[k]];

			assert_true(c.pieces.of_unit[k] < c.pieces.n);
			assert_true(c.plan.units[k].offset >= piece->arena_offset);
			assert_true(c.plan.units[k].offset + c.plan.units[k].bytes <=
				    piece->arena_offset + piece->bytes);
		}
		for (uint64_t i = 0; i < c.pieces.n; i++) {
			const struct piece *piece = &c.pieces.list[i];

			for (uint64_t k = 0; k < piece->n_units; k++)
				assert_int_equal(
				    c.pieces.of_unit[c.pieces.units[piece->first_unit + k]], i);
			known += piece->n_units;
		}
		assert_int_equal(known, c.plan.n_units);
		uncut(&c);
	}
}

static void
a_piece_is_small_or_one_unit(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		cut(&c, seed, NULL);
		for (uint64_t i = 0; i < c.pieces.n; i++)
			assert_true(c.pieces.list[i].bytes <= PIECE_BYTES ||
				    c.pieces.list[i].n_units == 1);
		uncut(&c);
	}
}

/* So that small experts are not read one by one. */
static void
neighbours_are_grouped_as_far_as_they_fit(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		cut(&c, seed, NULL);
		for (uint64_t i = 1; i < c.pieces.n; i++) {
			const struct piece *before = &c.pieces.list[i - 1];
			const struct piece *piece = &c.pieces.list[i];
			const struct checksum_unit *unit =
			    &c.plan.units[c.pieces.units[piece->first_unit]];

			if (before->run == piece->run)
				assert_true(unit->offset + unit->bytes - before->arena_offset >
					    PIECE_BYTES);
		}
		uncut(&c);
	}
}

static uint64_t
count_pieces(const struct pieces *pieces, uint32_t slice)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < pieces->n; i++)
		n += pieces->list[i].slice == slice;
	return n;
}

static void
a_filled_slice_gets_no_piece(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		const bool skip[8] = { seed & 1, seed & 2, seed & 4, seed & 8, seed & 16 };

		cut(&c, seed, skip);
		for (uint64_t i = 0; i < c.pieces.n; i++)
			assert_false(skip[c.pieces.list[i].slice]);
		for (uint32_t i = 0; i < c.placement.n_slices; i++) {
			assert_int_equal(c.pieces.in_slice[i], count_pieces(&c.pieces, i));
			assert_true(skip[i] == (c.pieces.in_slice[i] == 0) ||
				    c.plan.first[i] == c.plan.first[i + 1]);
		}
		for (uint64_t k = 0; k < c.plan.n_units; k++)
			assert_int_equal(c.pieces.of_unit[k] == PIECE_NONE,
					 skip[c.plan.units[k].slice]);
		uncut(&c);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_lie_in_runs_in_order_and_share_no_byte),
		cmocka_unit_test(every_unit_lies_whole_in_the_piece_that_knows_it),
		cmocka_unit_test(a_piece_is_small_or_one_unit),
		cmocka_unit_test(neighbours_are_grouped_as_far_as_they_fit),
		cmocka_unit_test(a_filled_slice_gets_no_piece),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
