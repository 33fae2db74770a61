/* worker/slot_policy.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "worker/slot_policy.h"

#define LAYERS 2u
#define EXPERTS 5u
#define ALL (LAYERS * EXPERTS)

static const bool both[LAYERS] = { true, true };

/* Slots 0..3 hold the experts 0 and 1 of each layer, layer by layer. */
struct stage {
	float heat[ALL];
	struct slot_policy policy;
	struct slot_plan slots;
	struct slot_fill moves[SLOT_POLICY_MAX + 1];
};

static int
setup(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	stage->policy = (struct slot_policy){ .layers = LAYERS,
					      .experts = EXPERTS,
					      .half_life = 10,
					      .margin = 2,
					      .heat = stage->heat };
	assert_int_equal(slot_plan_open(&stage->slots, 4, LAYERS, EXPERTS), 0);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(slot_plan_hold(&stage->slots, &(struct slot_fill){ i / 2, i % 2, i }));
	*state = stage;
	return 0;
}

static int
teardown(void **state)
{
	struct stage *stage = *state;

	slot_plan_close(&stage->slots);
	free(stage);
	return 0;
}

static uint32_t
next(struct stage *stage, const bool *allowed, uint32_t max)
{
	return slot_policy_next(&stage->policy, &stage->slots, allowed, stage->moves, max);
}

static void
is(const struct slot_fill *move, uint32_t layer, uint32_t expert, uint32_t slot)
{
	assert_int_equal(move->layer, layer);
	assert_int_equal(move->expert, expert);
	assert_int_equal(move->slot, slot);
}

static void
a_use_counts_half_after_the_half_life(void **state)
{
	uint64_t counts[ALL] = { [3] = 8 };
	struct stage *stage = *state;

	slot_policy_age(&stage->policy, counts, 1);
	assert_true(stage->heat[3] == 8);
	counts[3] = 1;
	slot_policy_age(&stage->policy, counts, 10);
	assert_true(stage->heat[3] == 5);
	assert_true(stage->heat[2] == 0);
}

static void
a_profile_is_as_if_its_use_had_gone_on_for_ever(void **state)
{
	const uint64_t counts[ALL] = { [2] = 50, [7] = 100 };
	uint64_t one[ALL] = { 0 };
	struct stage *stage = *state;
	float begun;

	slot_policy_begin(&stage->policy, counts, 100);
	begun = stage->heat[7];
	assert_true(begun == 2 * stage->heat[2]);
	one[7] = 1;
	for (uint32_t token = 0; token < 50; token++)
		slot_policy_age(&stage->policy, one, 1);
	assert_true(stage->heat[7] > 0.999f * begun && stage->heat[7] < 1.001f * begun);
	slot_policy_begin(&stage->policy, counts, 0);
	assert_true(stage->heat[7] == 0);
}

static void
the_hottest_outside_takes_the_place_of_the_coldest_inside(void **state)
{
	struct stage *stage = *state;

	for (uint32_t i = 0; i < 4; i++)
		stage->heat[stage->slots.expert_of[i]] = (float)(5 - i);
	stage->heat[4] = 9;
	stage->heat[EXPERTS + 2] = 20;
	assert_int_equal(next(stage, both, 8), 2);
	is(&stage->moves[0], 1, 2, 3);
	is(&stage->moves[1], 0, 4, 2);
}

/* Else two that are used alike would push each other out for ever. */
static void
who_does_not_lead_by_the_margin_stays_outside(void **state)
{
	struct stage *stage = *state;

	for (uint32_t i = 0; i < 4; i++)
		stage->heat[stage->slots.expert_of[i]] = 10;
	stage->heat[2] = 12;
	assert_int_equal(next(stage, both, 8), 0);
	stage->heat[2] = 12.5f;
	assert_int_equal(next(stage, both, 8), 1);
}

static void
no_more_than_asked_for(void **state)
{
	struct stage *stage = *state;

	for (uint32_t i = 2; i < EXPERTS; i++)
		stage->heat[i] = stage->heat[EXPERTS + i] = 50 + (float)i;
	assert_int_equal(next(stage, both, 0), 0);
	assert_int_equal(next(stage, both, 3), 3);
	is(&stage->moves[0], 0, 4, 0);
	is(&stage->moves[1], 1, 4, 1);
	is(&stage->moves[2], 0, 3, 2);
	assert_int_equal(next(stage, both, UINT32_MAX), 4);
}

static void
neither_barred_experts_nor_layers_that_are_not_allowed_move(void **state)
{
	const bool second[LAYERS] = { false, true };
	struct stage *stage = *state;

	stage->heat[2] = 100;
	stage->heat[EXPERTS + 2] = 90;
	stage->heat[EXPERTS + 3] = 80;
	stage->slots.barred[EXPERTS + 2] = true;
	assert_int_equal(next(stage, second, 8), 1);
	is(&stage->moves[0], 1, 3, 2);
}

static void
a_free_slot_is_nobodys_place(void **state)
{
	struct stage *stage = *state;

	slot_plan_free(&stage->slots, 0);
	stage->heat[2] = 100;
	assert_int_equal(next(stage, both, 8), 1);
	is(&stage->moves[0], 0, 2, 1);
	for (uint32_t i = 1; i < 4; i++)
		slot_plan_free(&stage->slots, i);
	assert_int_equal(next(stage, both, 8), 0);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_use_counts_half_after_the_half_life),
		RULE(a_profile_is_as_if_its_use_had_gone_on_for_ever),
		RULE(the_hottest_outside_takes_the_place_of_the_coldest_inside),
		RULE(who_does_not_lead_by_the_margin_stays_outside),
		RULE(no_more_than_asked_for),
		RULE(neither_barred_experts_nor_layers_that_are_not_allowed_move),
		RULE(a_free_slot_is_nobodys_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
