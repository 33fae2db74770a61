/* loader/fill.h and the queue's batches: how a resident set is read. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/batch.h"
#include "loader/fill.h"

#define LAYERS 2
#define EXPERTS 100
#define EXPERT_BYTES 600000 /* a piece to itself, and two of them more than a MiB */
#define TENSORS (LAYERS * N_ROLES + 1)
#define MOST 1024

/* A model of which the experts of `in` are resident. */
static struct {
	struct arena_tensor tensors[TENSORS];
	bool in[LAYERS * EXPERTS];
	struct resident resident;
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	struct piece_queue *queue;
	uint32_t *batch;
	struct span taken[MOST];
	struct error err;
} t;

static void
open_set(bool merge)
{
	static const char *const roles[] = { "gate", "up", "down" };
	uint64_t at = 4096;

	for (uint32_t i = 0; i < TENSORS; i++) {
		struct arena_tensor *tensor = &t.tensors[i];

		*tensor = (struct arena_tensor){ .bytes = 5000, .dims[2] = 1, .file_offset = at };
		snprintf(tensor->name, sizeof(tensor->name), "token_embd.weight");
		if (i) {
			snprintf(tensor->name, sizeof(tensor->name), "blk.%u.ffn_%s_exps.weight",
				 (i - 1) / N_ROLES, roles[(i - 1) % N_ROLES]);
			tensor->bytes = EXPERTS * (uint64_t)EXPERT_BYTES;
			tensor->dims[2] = EXPERTS;
		}
		at += tensor->bytes + (2ull << 20);
	}
	t.resident = (struct resident){ .n_layers = LAYERS, .n_experts = EXPERTS, .in = t.in };
	assert_int_equal(
	    placement_open_resident(&t.placement, t.tensors, TENSORS, 100, &t.resident, &t.err), 0);
	assert_int_equal(
	    checksum_plan_open(&t.plan, t.tensors, TENSORS, t.placement.n_slices, &t.err), 0);
	checksum_plan_keep(&t.plan, t.tensors, t.placement.experts, NULL);
	assert_int_equal(pieces_open(&t.pieces, &t.placement, &t.plan, NULL, &t.err), 0);
	assert_int_equal(piece_queue_open(&t.queue, &t.pieces, &t.err), 0);
	assert_int_equal(fill_batches(&t.batch, &t.placement, &t.pieces, &t.err), 0);
	assert_int_equal(piece_queue_batches(t.queue, t.batch, merge), 0);
}

/* Every `step`th expert is resident. */
static int
setup_every(uint32_t step, bool merge)
{
	memset(&t, 0, sizeof(t));
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i += step)
		t.in[i] = true;
	open_set(merge);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	piece_queue_close(t.queue);
	free(t.batch);
	pieces_close(&t.pieces);
	checksum_plan_close(&t.plan);
	placement_close(&t.placement);
	return 0;
}

static void
a_batch_is_64_pairs_in_the_order_of_layers(void **state)
{
	uint64_t pairs = 0;

	(void)state;
	setup_every(1, true);
	for (uint64_t which = 0; which < LAYERS * EXPERTS; which++, pairs++)
		for (uint32_t role = 0; role < N_ROLES; role++) {
			uint64_t place = t.placement.experts[which].role_offset[role];
			uint64_t piece = pieces_find(&t.pieces, place);

			assert_true(piece != PIECE_NONE);
			assert_int_equal(t.batch[piece], pairs / FILL_PAIRS);
		}
	assert_int_equal(t.batch[0], 0); /* the trunk */
}

/* Takes and, of the same batch, is done with what was taken.  Returns how many spans. */
static uint64_t
take_all(void)
{
	uint64_t n = 0;
	bool filled;

	while (piece_queue_take(t.queue, &t.taken[n])) {
		piece_queue_done(t.queue, &t.taken[n], &filled);
		assert_true(++n < MOST);
	}
	return n;
}

static void
batches_come_one_after_the_other_and_each_piece_once(void **state)
{
	uint8_t seen[MOST] = { 0 };
	uint64_t n;

	(void)state;
	setup_every(1, true);
	n = take_all();
	for (uint64_t i = 0; i < n; i++)
		for (uint64_t k = 0; k < t.taken[i].n; k++) {
			uint64_t piece = t.taken[i].first + k;

			assert_int_equal(seen[piece]++, 0);
			assert_int_equal(t.batch[piece], t.batch[t.taken[i].first]);
			assert_true(i == 0 || t.batch[piece] >= t.batch[t.taken[i - 1].first]);
		}
	for (uint64_t i = 0; i < t.pieces.n; i++)
		assert_int_equal(seen[i], 1);
}

/* Every other expert: 600000 bytes between two windows. */
static void
windows_less_than_a_mib_apart_are_one_read(void **state)
{
	uint64_t merged, apart;

	(void)state;
	setup_every(2, true);
	merged = take_all();
	for (uint64_t i = 0; i < merged; i++) {
		const struct piece *first = &t.pieces.list[t.taken[i].first];
		const struct piece *last = first + t.taken[i].n - 1;

		assert_int_equal(last->slice, first->slice);
		assert_true(last->file_offset + last->bytes - first->file_offset <= BATCH_REQUEST);
		assert_true(t.taken[i].whole.bytes <= SPAN_BYTES);
	}
	teardown(NULL);
	setup_every(2, false);
	apart = take_all();
	assert_int_equal(apart, 1 + LAYERS * EXPERTS / 2 * N_ROLES);
	/* 13 windows are 8 MiB */
	assert_true(merged <= apart / 13 + 2ull * LAYERS * N_ROLES + 1);
	teardown(NULL);
	setup_every(3, true); /* 1200000 between them: too far */
	assert_int_equal(take_all(), 1 + (LAYERS * EXPERTS + 2) / 3 * N_ROLES);
}

struct taker {
	struct span span;
	atomic_bool may;
	bool might;
};

static void *
take_one(void *arg)
{
	struct taker *taker = arg;

	assert_true(piece_queue_take(t.queue, &taker->span));
	taker->might = atomic_load(&taker->may);
	return NULL;
}

static void
the_next_batch_is_in_flight_with_this_one_and_no_third(void **state)
{
	struct taker taker = { 0 };
	pthread_t thread;
	uint64_t n = 0, pieces = 0, of_two = 0;
	bool filled;

	(void)state;
	setup_every(1, true);
	for (uint64_t i = 0; i < t.pieces.n; i++)
		of_two += t.batch[i] < 2;
	for (; pieces < of_two; n++) { /* nothing of them is done */
		assert_true(piece_queue_take(t.queue, &t.taken[n]));
		assert_true(t.batch[t.taken[n].first] < 2);
		pieces += t.taken[n].n;
	}
	assert_int_equal(pthread_create(&thread, NULL, take_one, &taker), 0);
	for (uint64_t i = n; i-- > 0;) { /* the first batch's first span is the last */
		atomic_store(&taker.may, i == 0);
		piece_queue_done(t.queue, &t.taken[i], &filled);
	}
	pthread_join(thread, NULL);
	assert_true(taker.might);
	assert_int_equal(t.batch[taker.span.first], 2);
}

static void
what_is_demanded_waits_for_no_batch(void **state)
{
	struct span span;
	uint64_t last;

	(void)state;
	setup_every(1, true);
	last = t.pieces.n - 1;
	assert_int_equal(t.batch[last], LAYERS * EXPERTS / FILL_PAIRS);
	piece_queue_demand(t.queue, &last, 1);
	assert_true(piece_queue_take(t.queue, &span));
	assert_int_equal(span.first, last);
	assert_int_equal(span.n, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_batch_is_64_pairs_in_the_order_of_layers, teardown),
		cmocka_unit_test_teardown(batches_come_one_after_the_other_and_each_piece_once,
					  teardown),
		cmocka_unit_test_teardown(windows_less_than_a_mib_apart_are_one_read, teardown),
		cmocka_unit_test_teardown(the_next_batch_is_in_flight_with_this_one_and_no_third,
					  teardown),
		cmocka_unit_test_teardown(what_is_demanded_waits_for_no_batch, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
