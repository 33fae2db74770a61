/* loader/piece_queue.h: in order, or what is demanded first; never twice. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/random_tensors.h"
#include "tests/read_case.h"
#include "tests/scratch.h"

#define MAX_TAKEN 512

/* Takes all that is left. */
static uint64_t
take_all(struct read_case *load, struct span *ret)
{
	uint64_t n = 0;

	while (piece_queue_take(load->queue, &ret[n]))
		assert_true(++n < MAX_TAKEN);
	return n;
}

static uint64_t
piece_of(const struct read_case *load, const char *tensor, uint64_t unit)
{
	for (uint64_t i = 0; i < load->plan.n_units; i++)
		if (strcmp(load->files.tensors[load->plan.units[i].tensor].name, tensor) == 0)
			return load->pieces.of_unit[i + unit];
	fail_msg("no %s", tensor);
	return 0;
}

static void
all_are_taken_once_in_order(void **state)
{
	struct span taken[MAX_TAKEN];
	struct read_case load;
	uint64_t next = 0, n;

	(void)state;
	read_case_open(&load, NULL);
	n = take_all(&load, taken);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(taken[i].first, next);
		assert_false(taken[i].demanded);
		next += taken[i].n;
	}
	assert_int_equal(next, load.pieces.n);
	assert_false(piece_queue_take(load.queue, &taken[0]));
	read_case_close(&load);
}

static void
a_span_is_large_and_of_one_run(void **state)
{
	struct span taken[MAX_TAKEN];
	struct read_case load;
	uint64_t n;

	(void)state;
	read_case_open(&load, NULL);
	n = take_all(&load, taken);
	for (uint64_t i = 0; i < n; i++) {
		const struct piece *first = &load.pieces.list[taken[i].first];
		const struct piece *last = first + taken[i].n - 1;
		const struct piece *whole = &taken[i].whole;

		assert_int_equal(first->run, last->run);
		assert_true(whole->bytes <= SPAN_BYTES);
		assert_int_equal(whole->file_offset, first->file_offset);
		assert_int_equal(whole->arena_offset + whole->bytes,
				 last->arena_offset + last->bytes);
		assert_int_equal(whole->first_unit, first->first_unit);
		assert_int_equal(whole->first_unit + whole->n_units,
				 last->first_unit + last->n_units);
		if (last + 1 < load.pieces.list + load.pieces.n && last[1].run == last->run)
			assert_true(last[1].arena_offset + last[1].bytes - first->arena_offset >
				    SPAN_BYTES);
	}
	read_case_close(&load);
}

static void
what_is_demanded_is_taken_next(void **state)
{
	struct span taken[MAX_TAKEN], first;
	struct read_case load;
	uint64_t wanted[2];

	(void)state;
	read_case_open(&load, NULL);
	wanted[0] = piece_of(&load, "blk.1.ffn_down_exps.weight", 0);
	wanted[1] = piece_of(&load, "blk.0.ffn_up_exps.weight", 2);
	assert_true(piece_queue_take(load.queue, &first));
	assert_int_equal(first.first, 0);
	piece_queue_demand(load.queue, wanted, 2);
	piece_queue_demand(load.queue, wanted, 2); /* again: changes nothing */
	take_all(&load, taken);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(taken[i].first, wanted[i]);
		assert_int_equal(taken[i].n, 1);
		assert_true(taken[i].demanded);
	}
	assert_int_equal(taken[2].first, first.n);
	assert_int_equal(piece_queue_demanded_bytes(load.queue),
			 taken[0].whole.bytes + taken[1].whole.bytes);
	read_case_close(&load);
}

static void
demanded_neighbours_are_taken_together(void **state)
{
	struct read_case load;
	uint64_t wanted[2];
	struct span span;

	(void)state;
	read_case_open(&load, NULL);
	wanted[0] = piece_of(&load, "blk.0.ffn_up_exps.weight", 0);
	wanted[1] = piece_of(&load, "blk.0.ffn_up_exps.weight", 1);
	assert_int_equal(wanted[1], wanted[0] + 1);
	piece_queue_demand(load.queue, wanted, 2);
	assert_true(piece_queue_take(load.queue, &span));
	assert_int_equal(span.first, wanted[0]);
	assert_int_equal(span.n, 2); /* and not the third expert */
	read_case_close(&load);
}

/* So that the next demand finds no thread at a large read. */
static void
behind_a_demand_pieces_are_taken_one_by_one(void **state)
{
	struct read_case load;
	struct span span;
	uint64_t wanted;

	(void)state;
	read_case_open(&load, NULL);
	wanted = piece_of(&load, "blk.1.ffn_down_exps.weight", 0);
	piece_queue_demand(load.queue, &wanted, 1);
	assert_true(piece_queue_take(load.queue, &span));
	assert_int_equal(span.first, wanted);
	for (uint64_t i = 0; i < 10; i++) {
		assert_true(piece_queue_take(load.queue, &span));
		assert_int_equal(span.first, i);
		assert_int_equal(span.n, 1);
	}
	read_case_close(&load);
}

static void
done_is_what_was_said_to_be_done(void **state)
{
	struct read_case load;
	uint64_t wanted[2];
	struct span span;
	bool filled;

	(void)state;
	read_case_open(&load, NULL);
	wanted[0] = piece_of(&load, "blk.1.ffn_down_exps.weight", 0);
	wanted[1] = PIECE_NONE; /* was there before */
	assert_true(piece_queue_all_done(load.queue, wanted + 1, 1));
	piece_queue_demand(load.queue, wanted, 2);
	assert_true(piece_queue_take(load.queue, &span));
	assert_false(piece_queue_all_done(load.queue, wanted, 2));
	assert_true(piece_queue_done(load.queue, &span, &filled));
	assert_true(piece_queue_all_done(load.queue, wanted, 2));
	assert_false(filled);
	read_case_close(&load);
}

static void
a_slice_is_filled_with_its_last_piece(void **state)
{
	struct span taken[MAX_TAKEN];
	uint64_t left[8] = { 0 };
	struct read_case load;
	uint64_t n;
	bool filled;

	(void)state;
	read_case_open(&load, NULL);
	n = take_all(&load, taken);
	for (uint64_t i = 0; i < n; i++)
		left[taken[i].whole.slice]++;
	while (n-- > 0) { /* in any order */
		assert_false(piece_queue_done(load.queue, &taken[n], &filled));
		assert_int_equal(filled, --left[taken[n].whole.slice] == 0);
	}
	read_case_close(&load);
}

static void
a_stopped_queue_gives_nothing(void **state)
{
	struct read_case load;
	struct span span;

	(void)state;
	read_case_open(&load, NULL);
	piece_queue_stop(load.queue);
	assert_false(piece_queue_take(load.queue, &span));
	read_case_close(&load);
}

struct locked_slices {
	struct gate refused;
	atomic_uint open; /* slices below this may be written */
	struct read_case load;
	struct span taken[MAX_TAKEN];
	uint64_t n;
};

static bool
is_open(void *arg, uint32_t slice)
{
	struct locked_slices *locked = arg;
	bool may = slice < atomic_load(&locked->open);

	if (!may)
		gate_pass(&locked->refused);
	return may;
}

static void *
take_behind_gate(void *arg)
{
	struct locked_slices *locked = arg;

	locked->n = take_all(&locked->load, locked->taken);
	return NULL;
}

static void
nothing_of_a_slice_is_taken_before_it_may_be_written(void **state)
{
	struct locked_slices locked = { .refused = GATE_INIT };
	uint64_t wanted, i = 0;
	pthread_t taker;

	(void)state;
	atomic_init(&locked.open, 1);
	read_case_open(&locked.load, NULL);
	piece_queue_gate(locked.load.queue, is_open, &locked);
	wanted = piece_of(&locked.load, "blk.1.ffn_down_exps.weight", 0);
	piece_queue_demand(locked.load.queue, &wanted, 1);
	assert_int_equal(pthread_create(&taker, NULL, take_behind_gate, &locked), 0);
	/* The demand is refused before each piece of slice 0, then it and the next in order. */
	assert_true(gate_wait(&locked.refused, (int)locked.load.pieces.in_slice[0] + 2));
	atomic_store(&locked.open, 3);
	piece_queue_wake(locked.load.queue);
	pthread_join(taker, NULL);
	while (locked.taken[i].whole.slice == 0)
		i++;
	assert_true(i > 0);
	assert_int_equal(locked.taken[i].first, wanted); /* the demand had to wait */
	read_case_close(&locked.load);
}

#define TAKERS 4

struct crowd {
	struct read_case load;
	uint32_t taken[MAX_TAKEN]; /* by piece; each is written by its taker alone */
	uint32_t filled[8];
};

static void *
crowd_taker(void *arg)
{
	struct crowd *crowd = arg;
	struct span span;
	bool filled;

	while (piece_queue_take(crowd->load.queue, &span)) {
		for (uint64_t i = span.first; i < span.first + span.n; i++)
			crowd->taken[i]++;
		piece_queue_done(crowd->load.queue, &span, &filled);
		if (filled)
			crowd->filled[span.whole.slice]++;
	}
	return NULL;
}

static void
a_piece_is_taken_once_whatever_is_demanded_meanwhile(void **state)
{
	struct crowd crowd;
	pthread_t takers[TAKERS];
	uint32_t random = 7;
	struct error err;

	(void)state;
	read_case_open(&crowd.load, NULL);
	assert_true(crowd.load.pieces.n < MAX_TAKEN);
	for (int round = 0; round < 200; round++) {
		memset(crowd.taken, 0, sizeof(crowd.taken));
		memset(crowd.filled, 0, sizeof(crowd.filled));
		piece_queue_close(crowd.load.queue);
		assert_int_equal(piece_queue_open(&crowd.load.queue, &crowd.load.pieces, &err), 0);
		for (int i = 0; i < TAKERS; i++)
			assert_int_equal(pthread_create(&takers[i], NULL, crowd_taker, &crowd), 0);
		for (int i = 0; i < 50; i++) {
			uint64_t wanted[3];

			for (int k = 0; k < 3; k++)
				wanted[k] = random_next(&random) % crowd.load.pieces.n;
			piece_queue_demand(crowd.load.queue, wanted, 3);
		}
		for (int i = 0; i < TAKERS; i++)
			pthread_join(takers[i], NULL);
		for (uint64_t i = 0; i < crowd.load.pieces.n; i++)
			assert_int_equal(crowd.taken[i], 1);
		for (uint32_t i = 0; i < crowd.load.placement.n_slices; i++)
			assert_int_equal(crowd.filled[i], 1);
	}
	read_case_close(&crowd.load);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_taken_once_in_order),
		cmocka_unit_test(a_span_is_large_and_of_one_run),
		cmocka_unit_test(what_is_demanded_is_taken_next),
		cmocka_unit_test(demanded_neighbours_are_taken_together),
		cmocka_unit_test(behind_a_demand_pieces_are_taken_one_by_one),
		cmocka_unit_test(done_is_what_was_said_to_be_done),
		cmocka_unit_test(a_slice_is_filled_with_its_last_piece),
		cmocka_unit_test(a_stopped_queue_gives_nothing),
		cmocka_unit_test(nothing_of_a_slice_is_taken_before_it_may_be_written),
		cmocka_unit_test(a_piece_is_taken_once_whatever_is_demanded_meanwhile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
