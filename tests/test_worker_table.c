/* worker/table.h: slots filled by the pinner and kept for the next worker, layers waited for. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/attach_stage.h"

static void
check_places(struct attach_stage *stage)
{
	const struct model *model = &stage->attached.model;
	const struct table *table = &stage->attached.table;

	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		for (uint32_t expert = 0; expert < model->n_experts; expert++)
			for (int role = 0; role < N_ROLES; role++) {
				const struct experts *at = &model->layers[layer].role[role];
				uint32_t which = layer * model->n_experts + expert;
				const uint8_t *in_arena =
				    stage->attached.arena.base + at->offset + expert * at->stride;
				const void *place = table->places[which].role[role];

				assert_int_equal(place == in_arena,
						 table->slots.slot_of[which] == SLOT_NONE);
				assert_memory_equal(place, in_arena, at->bytes);
			}
}

static void
without_a_cap_the_cpu_computes_from_the_arena(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill_all(stage);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_int_equal(stage->attached.n_slots, 0);
	assert_false(table_choose(&stage->attached.table, SLOT_POLICY_MAX));
	check_places(stage);
	worker_leave(stage);
}

static void
slots_are_filled_and_hold_what_the_arena_holds(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_int_equal(stage->attached.n_slots, 11);
	worker_move(stage, 0);
	assert_int_equal(stage->attached.table.slots.filled, 11);
	assert_int_equal(pinner_moved(stage), 11);
	check_places(stage);
	worker_leave(stage);
}

static void
experts_of_a_layer_that_is_not_there_are_not_moved(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill(stage, 0);
	loader_fill(stage, 1);
	pinner_cap(stage, 16);
	worker_attach(stage);
	worker_follow(stage, first_layer_usable);
	worker_move(stage, 0);
	assert_int_equal(stage->attached.table.slots.in_layer[0], 8);
	assert_int_equal(stage->attached.table.slots.in_layer[1], 0);
	loader_fill(stage, 2);
	worker_follow(stage, all_usable);
	worker_move(stage, 0);
	assert_int_equal(stage->attached.table.slots.in_layer[1], 8);
	check_places(stage);
	worker_leave(stage);
}

static bool
slots_on_the_board(const struct attach_stage *stage)
{
	return upstream_region_bytes(stage->upstream.state, "slots") != 0;
}

static void
the_next_worker_takes_over_filled_slots(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	worker_move(stage, 0);
	worker_follow(stage, slots_on_the_board);
	worker_leave(stage);
	worker_attach(stage);
	assert_int_equal(stage->attached.n_slots, 11);
	assert_int_equal(stage->attached.table.slots.filled, 11);
	worker_follow(stage, all_usable);
	assert_int_equal(worker_move(stage, 0), 0);
	assert_int_equal(pinner_moved(stage), 11);
	check_places(stage);
	worker_leave(stage);
}

static void
a_larger_cache_takes_its_room_from_the_slots(void **state)
{
	struct attach_stage *stage = *state;
	uint64_t slot_bytes;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, slots_on_the_board);
	slot_bytes = stage->attached.table.slot_bytes;
	worker_leave(stage);
	worker_prepare(stage);
	stage->config.context = CONTEXT + (uint32_t)(2 * slot_bytes / sizeof(uint64_t));
	if (attach_open(&stage->attached, &stage->config, &stage->err) < 0)
		fail_msg("%s", stage->err.text);
	assert_int_equal(stage->attached.n_slots, 9);
	assert_int_equal(pinner_lent(stage, "slots"), 9 * slot_bytes);
	worker_leave(stage);
}

static void
a_cap_that_has_no_room_for_what_must_be_is_refused_with_the_least_that_does(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 0);
	stage->pinner.lending.cap--;
	desk_publish(&stage->pinner);
	worker_prepare(stage);
	assert_int_equal(attach_open(&stage->attached, &stage->config, &stage->err), -EOVERFLOW);
	assert_non_null(strstr(stage->err.text, "want 1 at least"));
	worker_leave(stage);
}

static void
moves_that_are_refused_leave_the_arena_in_use(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	stage->attached.table.slot_bytes++; /* as a worker of another build might ask */
	assert_int_equal(worker_move(stage, 0), 1);
	assert_true(stage->attached.table.fill_refused);
	assert_int_equal(stage->attached.table.slots.filled, 0);
	check_places(stage);
	worker_leave(stage);
}

static void *
forward_thread(void *arg)
{
	struct attach_stage *stage = arg;
	const uint32_t ids[] = { 1, 2, 3 };

	return (void *)(intptr_t)fake_compute_ops.forward(stage->attached.compute, ids, 3, 0, NULL,
							  NULL, &stage->err);
}

static void
the_first_prompt_runs_while_later_layers_still_load(void **state)
{
	struct attach_stage *stage = *state;
	struct error err;
	pthread_t thread;
	void *rc;

	loader_fill(stage, 0);
	worker_attach(stage);
	worker_follow(stage, trunk_usable);
	assert_int_equal(table_wait_slice(&stage->attached.table, 0, &err), 0);
	assert_int_equal(pthread_create(&thread, NULL, forward_thread, stage), 0);
	fake_compute_wait_entered(fake_compute_opened, 1);
	loader_fill(stage, 1);
	assert_int_equal(fake_compute_opened->forwards, 0);
	loader_fill(stage, 2);
	pthread_join(thread, &rc);
	assert_int_equal((intptr_t)rc, 0);
	worker_leave(stage);
}

static int
need_all(struct table *table, uint32_t layer)
{
	uint32_t experts[64], n = table->model->n_experts;

	for (uint32_t i = 0; i < n; i++)
		experts[i] = i;
	return table_need(table, layer, experts, n);
}

static bool
always(void *arg)
{
	(void)arg;
	return true;
}

static void
an_order_the_end_or_the_pinners_loss_ends_the_wait_for_a_layer(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;

	loader_fill(stage, 0);
	worker_attach(stage);
	table->interrupted = always;
	assert_int_equal(need_all(table, 0), -ECANCELED);
	table->interrupted = NULL;
	service_leave(&stage->service);
	assert_int_equal(need_all(table, 0), -ECANCELED);
	worker_leave(stage);
	worker_attach(stage);
	pinner_stop(stage);
	assert_int_equal(need_all(table, 0), -ECANCELED);
	worker_leave(stage);
	pinner_start(stage);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, attach_setup, attach_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(without_a_cap_the_cpu_computes_from_the_arena),
		RULE(slots_are_filled_and_hold_what_the_arena_holds),
		RULE(experts_of_a_layer_that_is_not_there_are_not_moved),
		RULE(the_next_worker_takes_over_filled_slots),
		RULE(a_larger_cache_takes_its_room_from_the_slots),
		RULE(a_cap_that_has_no_room_for_what_must_be_is_refused_with_the_least_that_does),
		RULE(moves_that_are_refused_leave_the_arena_in_use),
		RULE(the_first_prompt_runs_while_later_layers_still_load),
		RULE(an_order_the_end_or_the_pinners_loss_ends_the_wait_for_a_layer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
