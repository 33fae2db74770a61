/* worker/table.h beside the pinner's own mover: slots refilled by use, and workers that die in the
 * midst of it.  The pinner is told what to carry out and when. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/attach_stage.h"

#define SLOTS 11u
#define ROUNDS 60u

static const uint8_t *
home_of(const struct attach_stage *stage, uint32_t which, uint32_t role)
{
	const struct model *model = &stage->attached.model;
	const struct experts *at = &model->layers[which / model->n_experts].role[role];

	return stage->attached.arena.base + at->offset + which % model->n_experts * at->stride;
}

/* Every expert is read where its bytes are: in its slot, else at home. */
static void
check_places(const struct attach_stage *stage)
{
	const struct table *table = &stage->attached.table;
	const struct model *model = &stage->attached.model;

	for (uint32_t which = 0; which < model->n_layers * model->n_experts; which++)
		for (uint32_t role = 0; role < N_ROLES; role++) {
			const uint8_t *home = home_of(stage, which, role);
			const void *place = table->places[which].role[role];
			uint64_t bytes = model->layers[which / model->n_experts].role[role].bytes;

			assert_int_equal(place == home, table->slots.slot_of[which] == SLOT_NONE);
			assert_memory_equal(place, home, bytes);
		}
}

static void
mover_halt(struct attach_stage *stage)
{
	mover_stop(&stage->pinner, stage->mover);
	stage->pinner.stopping = false;
}

static void
mover_go_on(struct attach_stage *stage)
{
	assert_int_equal(mover_start(&stage->pinner, &stage->mover), 0);
}

static void
attach_restless(struct attach_stage *stage)
{
	worker_attach(stage);
	worker_follow(stage, all_usable);
	stage->attached.table.policy.margin = 0;
}

/* All slots are filled, with the experts that come first. */
static void
begin(struct attach_stage *stage)
{
	loader_fill_all(stage);
	pinner_cap(stage, SLOTS);
	attach_restless(stage);
	worker_move(stage, 0);
	assert_int_equal(stage->attached.table.slots.filled, SLOTS);
}

static uint32_t
an_expert_without_slot(const struct attach_stage *stage)
{
	uint32_t which = 0;

	while (stage->attached.table.slots.slot_of[which] != SLOT_NONE)
		which++;
	return which;
}

static void
wait_for_moves(struct attach_stage *stage)
{
	int rc;

	while ((rc = table_moved(&stage->attached.table, &stage->err)) == 0)
		assert_int_equal(upstream_wait(&stage->upstream, &stage->err), 0);
	assert_int_equal(rc, 1);
}

/* The desk has taken it on: what the slots hold is said by the pinner's table from here on. */
static void
wait_for_order(struct attach_stage *stage)
{
	bool there = false;

	while (!there) {
		pthread_mutex_lock(&stage->pinner.lock);
		there = stage->pinner.first != NULL;
		pthread_mutex_unlock(&stage->pinner.lock);
		sched_yield();
	}
}

static void
a_victim_is_read_at_home_at_once_and_a_newcomer_in_its_slot_once_it_is_there(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;
	uint32_t newcomer, victim;

	begin(stage);
	mover_halt(stage);
	newcomer = an_expert_without_slot(stage);
	table->policy.heat[newcomer] = 5;
	assert_true(table_choose(table, 1));
	assert_int_equal(table->slots.filled, SLOTS - 1);
	victim = table->moves[0].slot;
	assert_int_equal(table->slots.expert_of[victim], SLOT_NONE);
	check_places(stage);
	assert_int_equal(table_move(table, &stage->err), 0);
	assert_int_equal(table_moved(table, &stage->err), 0);
	check_places(stage);
	mover_go_on(stage);
	wait_for_moves(stage);
	assert_int_equal(table->slots.expert_of[victim], newcomer);
	check_places(stage);
	worker_leave(stage);
}

static void
a_successor_takes_no_slot_that_a_dead_workers_move_is_to_overwrite(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;
	uint32_t slot, newcomer;

	begin(stage);
	mover_halt(stage);
	newcomer = an_expert_without_slot(stage);
	table->policy.heat[newcomer] = 5;
	assert_true(table_choose(table, 1));
	slot = table->moves[0].slot;
	assert_int_equal(table_move(table, &stage->err), 0);
	wait_for_order(stage);
	worker_leave(stage); /* dead */
	attach_restless(stage);
	assert_int_equal(table->slots.filled, SLOTS - 1);
	assert_int_equal(table->slots.expert_of[slot], SLOT_NONE);
	check_places(stage);
	/* What it asks for comes behind what the dead one did. */
	assert_true(table_choose(table, 0));
	assert_int_equal(table_move(table, &stage->err), 0);
	mover_go_on(stage);
	wait_for_moves(stage);
	assert_int_equal(table->slots.filled, SLOTS);
	check_places(stage);
	worker_leave(stage);
	attach_restless(stage);
	assert_int_equal(table->slots.filled, SLOTS);
	check_places(stage);
	worker_leave(stage);
}

/* At whatever step a worker ends, and however far the pinner has come then. */
static void
many_deaths_in_the_midst_of_moves_leave_no_wrong_expert_in_a_slot(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;
	uint32_t all;

	begin(stage);
	all = stage->attached.model.n_layers * stage->attached.model.n_experts;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t step = round % 4;

		for (uint32_t i = 0; i < all; i++) /* another order each round */
			table->policy.heat[i] = (float)((i + 1) * (round + 7) * 2654435761u >> 24);
		check_places(stage);
		if (step > 0)
			table_choose(table, 1 + round % SLOTS);
		check_places(stage);
		if (step > 1 && table->n_moves != 0)
			assert_int_equal(table_move(table, &stage->err), 0);
		if (step > 2 && table->n_moves != 0)
			wait_for_moves(stage);
		check_places(stage);
		worker_leave(stage);
		attach_restless(stage);
	}
	assert_true(pinner_moved(stage) > SLOTS + ROUNDS / 4);
	worker_leave(stage);
}

static void
a_pinner_that_goes_ends_the_wait_for_moves(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;
	int rc;

	begin(stage);
	mover_halt(stage);
	table->policy.heat[an_expert_without_slot(stage)] = 5;
	assert_true(table_choose(table, 1));
	assert_int_equal(table_move(table, &stage->err), 0);
	wait_for_order(stage);
	stage->pinner.stopping = true; /* its mover begins with nothing any more */
	mover_go_on(stage);
	pinner_stop(stage);
	while ((rc = table_moved(table, &stage->err)) == 0)
		upstream_wait(&stage->upstream, &stage->err);
	assert_int_equal(rc, -ECANCELED);
	worker_leave(stage);
	pinner_start(stage);
}

static void
the_next_worker_knows_how_hot_the_experts_are(void **state)
{
	struct attach_stage *stage = *state;

	begin(stage);
	stage->attached.table.policy.heat[3] = 12;
	worker_leave(stage);
	attach_restless(stage);
	assert_true(stage->attached.table.policy.heat[3] == 12);
	worker_leave(stage);
}

static void
slots_are_filled_by_the_profile_if_there_is_one(void **state)
{
	struct attach_stage *stage = *state;
	uint64_t counts[64] = { 0 };
	struct profile_shape shape;
	char path[160];
	uint32_t all;

	loader_fill_all(stage);
	worker_attach(stage);
	shape = (struct profile_shape){ .fingerprint = stage->arena.head->fingerprint,
					.layers = stage->attached.model.n_layers,
					.experts = stage->attached.model.n_experts };
	worker_leave(stage);
	all = shape.layers * shape.experts;
	for (uint32_t i = 0; i < all; i++)
		counts[i] = i;
	snprintf(path, sizeof(path), "%s/profile", stage->scratch.dir);
	assert_int_equal(profile_write(path, &shape, counts, &stage->err), 0);
	pinner_cap(stage, SLOTS);
	worker_prepare(stage);
	stage->config.profile = path;
	if (attach_open(&stage->attached, &stage->config, &stage->err) < 0)
		fail_msg("%s", stage->err.text);
	worker_follow(stage, all_usable);
	worker_move(stage, 0);
	for (uint32_t i = 0; i < all; i++)
		assert_int_equal(stage->attached.table.slots.slot_of[i] != SLOT_NONE,
				 i >= all - SLOTS);
	check_places(stage);
	worker_leave(stage);
}

static void
where_all_experts_have_slots_there_is_nothing_to_choose(void **state)
{
	struct attach_stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 64);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_null(stage->attached.table.policy.heat);
	assert_int_equal(pinner_lent(stage, "heat"), 0);
	worker_move(stage, SLOT_POLICY_MAX);
	assert_int_equal(stage->attached.table.slots.filled, stage->attached.n_slots);
	worker_leave(stage);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, attach_setup, attach_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_victim_is_read_at_home_at_once_and_a_newcomer_in_its_slot_once_it_is_there),
		RULE(a_successor_takes_no_slot_that_a_dead_workers_move_is_to_overwrite),
		RULE(many_deaths_in_the_midst_of_moves_leave_no_wrong_expert_in_a_slot),
		RULE(a_pinner_that_goes_ends_the_wait_for_moves),
		RULE(the_next_worker_knows_how_hot_the_experts_are),
		RULE(slots_are_filled_by_the_profile_if_there_is_one),
		RULE(where_all_experts_have_slots_there_is_nothing_to_choose),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
