/* How many slots, which experts in them, and what is taken over from the worker before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "worker/slot_plan.h"

#define MIB (1ull << 20)
#define LAYERS 3u
#define EXPERTS 4u

static const bool all[LAYERS] = { true, true, true };

static void
the_cap_less_what_is_lent_and_the_cache_is_for_slots(void **state)
{
	struct slot_room room = { .cap = 100 * MIB, .lent = 30 * MIB, .kv = 20 * MIB };

	(void)state;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 5);
	assert_int_equal(slot_plan_fit(&room, 60 * MIB, 12), 0);
	room.lent = 200 * MIB;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 0);
}

static void
scratch_and_staging_are_within_the_cap_too(void **state)
{
	struct slot_room room = {
		.cap = 100 * MIB, .lent = 30 * MIB, .kv = 20 * MIB, .own = 25 * MIB
	};

	(void)state;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 2);
	assert_int_equal(slot_plan_need(&room), 75 * MIB);
	room.lent = 70 * MIB; /* with the cache and slots of the worker before in it */
	room.kv_now = 20 * MIB;
	room.slots_now = 20 * MIB;
	assert_int_equal(slot_plan_need(&room), 75 * MIB);
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 2);
}

/* Whatever the figures: all together is no more than the cap, and one slot more would be. */
static void
all_device_memory_is_within_the_cap(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (uint32_t i = 0; i < 10000; i++) {
		uint64_t random[6], total;
		struct slot_room room;
		uint32_t n;

		for (uint32_t r = 0; r < 6; r++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			random[r] = seed >> 33;
		}
		room = (struct slot_room){ .cap = 1 + random[0],
					   .lent = random[1] / 4 + random[2] / 4 + random[3] / 4,
					   .kv_now = random[2] / 4,
					   .slots_now = random[3] / 4,
					   .kv = random[4] / 4,
					   .own = random[5] / 8 };
		n = slot_plan_fit(&room, 1000003, 500);
		total = slot_plan_need(&room) + n * 1000003ull;
		assert_true(n == 0 || total <= room.cap);
		assert_true(n == 500 || room.slots_now % 1000003 == 0 ||
			    total + 1000003 > room.cap);
	}
}

static void
never_more_slots_than_experts(void **state)
{
	struct slot_room room = { .cap = 1000 * MIB };

	(void)state;
	assert_int_equal(slot_plan_fit(&room, MIB, 12), 12);
}

static void
free_memory_less_a_reserve_and_the_steps_own_is_for_slots(void **state)
{
	struct slot_room room = { .free = SLOTS_RESERVE_BYTES + 100 * MIB,
				  .lent = 1000 * MIB,
				  .kv = 20 * MIB,
				  .own = 30 * MIB };

	(void)state;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 5);
	room.free = SLOTS_RESERVE_BYTES;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 0);
}

static void
a_cap_over_what_is_free_gives_what_is_free(void **state)
{
	struct slot_room room = { .cap = 1000 * MIB, .free = SLOTS_RESERVE_BYTES + 30 * MIB };

	(void)state;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 3);
}

static void
warm_slots_stay_as_they_are_while_they_fit(void **state)
{
	/* With its 40 MiB of slots and 20 of cache lent, the same cap must not be counted twice. */
	struct slot_room room = { .cap = 100 * MIB,
				  .lent = 90 * MIB,
				  .kv_now = 20 * MIB,
				  .slots_now = 40 * MIB,
				  .kv = 20 * MIB };

	(void)state;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 4);
	room.kv = 10 * MIB; /* there would be room for five now: what is warm counts more */
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 4);
	room.kv = 40 * MIB;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 3);
	room.kv = 20 * MIB;
	assert_int_equal(slot_plan_fit(&room, 11 * MIB, 12), 4); /* slots of another model */
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 3), 3);
}

/* The memory is theirs already: what a reserve is for has come meanwhile. */
static void
warm_slots_stay_where_less_than_the_reserve_is_free(void **state)
{
	struct slot_room room = { .free = 60 * MIB,
				  .lent = 60 * MIB,
				  .kv_now = 20 * MIB,
				  .slots_now = 40 * MIB,
				  .kv = 20 * MIB,
				  .own = 50 * MIB };

	(void)state;
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 4);
	room.own = 75 * MIB; /* now some must make room */
	assert_int_equal(slot_plan_fit(&room, 10 * MIB, 12), 2);
}

static void
each_layer_gets_an_equal_share(void **state)
{
	struct slot_plan plan;
	struct slot_fill moves[8];

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 7, LAYERS, EXPERTS), 0);
	assert_int_equal(slot_plan_next(&plan, all, moves, 8), 7);
	for (uint32_t i = 0; i < 7; i++) {
		assert_int_equal(moves[i].layer, i % LAYERS);
		assert_int_equal(moves[i].expert, i / LAYERS);
		assert_int_equal(moves[i].slot, i);
	}
	slot_plan_close(&plan);
}

static void
ranked_by_heat_the_hottest_are_wanted_and_equals_as_before(void **state)
{
	const float heat[LAYERS * EXPERTS] = { [1 * EXPERTS + 3] = 2, [2 * EXPERTS + 1] = 5 };
	struct slot_plan plan;
	struct slot_fill moves[4];

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 4, LAYERS, EXPERTS), 0);
	slot_plan_rank(&plan, heat);
	assert_int_equal(slot_plan_next(&plan, all, moves, 4), 4);
	assert_int_equal(moves[0].layer, 2);
	assert_int_equal(moves[0].expert, 1);
	assert_int_equal(moves[1].layer, 1);
	assert_int_equal(moves[1].expert, 3);
	for (uint32_t i = 2; i < 4; i++) {
		assert_int_equal(moves[i].layer, i - 2);
		assert_int_equal(moves[i].expert, 0);
	}
	slot_plan_close(&plan);
}

static void
a_slot_that_is_let_go_is_free_and_its_expert_without(void **state)
{
	const struct slot_fill move = { 1, 2, 0 };
	struct slot_plan plan;

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 2, LAYERS, EXPERTS), 0);
	assert_true(slot_plan_hold(&plan, &move));
	slot_plan_free(&plan, 0);
	slot_plan_free(&plan, 1); /* was empty */
	assert_int_equal(plan.filled, 0);
	assert_int_equal(plan.in_layer[1], 0);
	assert_int_equal(plan.slot_of[1 * EXPERTS + 2], SLOT_NONE);
	assert_true(slot_plan_hold(&plan, &move));
	slot_plan_close(&plan);
}

static void
only_experts_of_usable_layers_are_moved(void **state)
{
	const bool some[LAYERS] = { true, false, true };
	struct slot_plan plan;
	struct slot_fill moves[8];

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 6, LAYERS, EXPERTS), 0);
	assert_int_equal(slot_plan_next(&plan, some, moves, 8), 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_not_equal(moves[i].layer, 1);
		assert_true(slot_plan_hold(&plan, &moves[i]));
	}
	assert_int_equal(slot_plan_next(&plan, some, moves, 8), 0);
	assert_int_equal(slot_plan_next(&plan, all, moves, 8), 2);
	slot_plan_close(&plan);
}

static void
goes_on_in_pieces_until_all_are_filled(void **state)
{
	struct slot_plan plan;
	struct slot_fill moves[5];
	uint32_t n, rounds = 0;

	(void)state;
	assert_int_equal(slot_plan_open(&plan, LAYERS * EXPERTS, LAYERS, EXPERTS), 0);
	while ((n = slot_plan_next(&plan, all, moves, 5)) != 0) {
		for (uint32_t i = 0; i < n; i++)
			assert_true(slot_plan_hold(&plan, &moves[i]));
		rounds++;
	}
	assert_int_equal(rounds, 3);
	assert_int_equal(plan.filled, LAYERS * EXPERTS);
	for (uint32_t i = 0; i < LAYERS; i++)
		assert_int_equal(plan.in_layer[i], EXPERTS);
	slot_plan_close(&plan);
}

static void
takes_over_what_the_slots_hold(void **state)
{
	struct slot_plan plan;
	struct slot_fill moves[8];

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 4, LAYERS, EXPERTS), 0);
	assert_true(slot_plan_hold(&plan, &(struct slot_fill){ 0, 0, 2 }));
	assert_true(slot_plan_hold(&plan, &(struct slot_fill){ 2, 3, 0 })); /* not in the plan */
	assert_int_equal(slot_plan_next(&plan, all, moves, 8), 2);
	assert_int_equal(moves[0].layer, 1);
	assert_int_equal(moves[0].expert, 0);
	assert_int_equal(moves[0].slot, 1);
	assert_int_equal(moves[1].layer, 2);
	assert_int_equal(moves[1].expert, 0);
	assert_int_equal(moves[1].slot, 3);
	slot_plan_close(&plan);
}

static void
what_makes_no_sense_is_not_taken_over(void **state)
{
	const struct slot_fill wrong[] = {
		{ 0, 0, 4 },
		{ LAYERS, 0, 0 },
		{ 0, EXPERTS, 0 },
		{ UINT32_MAX, 0, 0 },
		{ 0, UINT32_MAX, 0 },
		{ 0, 0, UINT32_MAX },
		{ 1, 1, 2 } /* slot taken */,
		{ 0, 1, 3 } /* expert taken */,
	};
	struct slot_plan plan;

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 4, LAYERS, EXPERTS), 0);
	assert_true(slot_plan_hold(&plan, &(struct slot_fill){ 0, 1, 2 }));
	for (uint32_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_false(slot_plan_hold(&plan, &wrong[i]));
	assert_int_equal(plan.filled, 1);
	assert_int_equal(plan.in_layer[0], 1);
	slot_plan_close(&plan);
}

static void
no_slots_is_a_plan_too(void **state)
{
	struct slot_plan plan;
	struct slot_fill move;

	(void)state;
	assert_int_equal(slot_plan_open(&plan, 0, LAYERS, EXPERTS), 0);
	assert_int_equal(slot_plan_next(&plan, all, &move, 1), 0);
	assert_false(slot_plan_hold(&plan, &(struct slot_fill){ 0, 0, 0 }));
	slot_plan_close(&plan);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_cap_less_what_is_lent_and_the_cache_is_for_slots),
		cmocka_unit_test(scratch_and_staging_are_within_the_cap_too),
		cmocka_unit_test(all_device_memory_is_within_the_cap),
		cmocka_unit_test(warm_slots_stay_where_less_than_the_reserve_is_free),
		cmocka_unit_test(never_more_slots_than_experts),
		cmocka_unit_test(free_memory_less_a_reserve_and_the_steps_own_is_for_slots),
		cmocka_unit_test(a_cap_over_what_is_free_gives_what_is_free),
		cmocka_unit_test(warm_slots_stay_as_they_are_while_they_fit),
		cmocka_unit_test(each_layer_gets_an_equal_share),
		cmocka_unit_test(ranked_by_heat_the_hottest_are_wanted_and_equals_as_before),
		cmocka_unit_test(a_slot_that_is_let_go_is_free_and_its_expert_without),
		cmocka_unit_test(only_experts_of_usable_layers_are_moved),
		cmocka_unit_test(goes_on_in_pieces_until_all_are_filled),
		cmocka_unit_test(takes_over_what_the_slots_hold),
		cmocka_unit_test(what_makes_no_sense_is_not_taken_over),
		cmocka_unit_test(no_slots_is_a_plan_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
