/* loader/pieces.h: rules that hold for any placement. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/checked.h"
#include "loader/io.h"
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
pieces_cover_each_run_once_and_in_order(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		uint64_t next = 0, bytes = 0;

		cut(&c, seed, NULL);
		for (uint64_t i = 0; i < c.placement.n_runs; i++) {
			const struct run *run = &c.placement.runs[i];
			uint64_t at = 0;

			while (at < run->bytes) {
				const struct piece *piece = &c.pieces.list[next++];

				assert_true(next <= c.pieces.n);
				assert_int_equal(piece->shard, run->shard);
				assert_int_equal(piece->slice, run->slice);
				assert_int_equal(piece->file_offset, run->file_offset + at);
				assert_int_equal(piece->arena_offset, run->arena_offset + at);
				assert_true(piece->bytes > 0);
				at += piece->bytes;
			}
			assert_int_equal(at, run->bytes);
			bytes += run->bytes;
		}
		assert_int_equal(next, c.pieces.n);
		assert_int_equal(bytes, c.pieces.bytes);
		uncut(&c);
	}
}

static void
the_blocks_of_pieces_are_bounded_and_disjoint(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		uint64_t end = 0;

		cut(&c, seed, NULL);
		for (uint64_t i = 0; i < c.pieces.n; i++) {
			const struct piece *piece = &c.pieces.list[i];
			uint64_t from = round_down(piece->arena_offset, IO_BLOCK);

			assert_true(from >= end);
			end = round_up(piece->arena_offset + piece->bytes, IO_BLOCK);
			assert_true(end - from <= PIECE_BYTES);
		}
		uncut(&c);
	}
}

static bool
touches(const struct piece *piece, const struct checksum_unit *unit)
{
	return piece->arena_offset < unit->offset + unit->bytes &&
	       unit->offset < piece->arena_offset + piece->bytes;
}

static void
pieces_know_exactly_the_units_they_touch(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		cut(&c, seed, NULL);
		for (uint64_t i = 0; i < c.pieces.n; i++) {
			const struct piece *piece = &c.pieces.list[i];
			uint64_t count = 0;

			for (uint64_t k = 0; k < c.plan.n_units; k++)
				count += touches(piece, &c.plan.units[k]);
			assert_int_equal(piece->n_units, count);
			for (uint64_t k = 0; k < piece->n_units; k++)
				assert_true(touches(
				    piece, &c.plan.units[c.pieces.units[piece->first_unit + k]]));
		}
		uncut(&c);
	}
}

static void
counters_say_what_a_unit_and_a_slice_wait_for(void **state)
{
	struct cut c;

	(void)state;
	for (uint32_t seed = 0; seed < ROUNDS; seed++) {
		cut(&c, seed, NULL);
		for (uint64_t k = 0; k < c.plan.n_units; k++) {
			uint32_t count = 0;

			for (uint64_t i = 0; i < c.pieces.n; i++)
				count += touches(&c.pieces.list[i], &c.plan.units[k]);
			assert_true(count > 0);
			assert_int_equal(c.pieces.waiting[k], count);
		}
		for (uint32_t i = 0; i < c.placement.n_slices; i++)
			assert_int_equal(c.pieces.open[i], c.plan.first[i + 1] - c.plan.first[i]);
		uncut(&c);
	}
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
		for (uint32_t i = 0; i < c.placement.n_slices; i++)
			assert_int_equal(c.pieces.open[i],
					 skip[i] ? 0 : c.plan.first[i + 1] - c.plan.first[i]);
		uncut(&c);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_cover_each_run_once_and_in_order),
		cmocka_unit_test(the_blocks_of_pieces_are_bounded_and_disjoint),
		cmocka_unit_test(pieces_know_exactly_the_units_they_touch),
		cmocka_unit_test(counters_say_what_a_unit_and_a_slice_wait_for),
		cmocka_unit_test(a_filled_slice_gets_no_piece),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
