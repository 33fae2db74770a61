/* worker/slot_use.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/fake_compute.h"
#include "worker/slot_use.h"

#define LAYERS 2u
#define EXPERTS 3u

struct stage {
	struct model_layer layers[LAYERS];
	struct model model;
	struct compute compute;
	uint64_t used[LAYERS * EXPERTS];
	struct slot_plan slots;
	struct slot_use use;
};

static int
setup(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	stage->model = (struct model){
		.n_layers = LAYERS, .n_experts = EXPERTS, .top_k = 2, .layers = stage->layers
	};
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		for (uint32_t role = 0; role < N_ROLES; role++)
			stage->layers[layer].role[role].bytes = 1 + layer;
	stage->compute.config.model = &stage->model;
	stage->compute.used = stage->used;
	assert_int_equal(slot_plan_open(&stage->slots, 2, LAYERS, EXPERTS), 0);
	assert_int_equal(slot_use_open(&stage->use, &stage->model), 0);
	*state = stage;
	return 0;
}

static int
teardown(void **state)
{
	struct stage *stage = *state;

	slot_use_close(&stage->use);
	slot_plan_close(&stage->slots);
	free(stage);
	return 0;
}

static void
count(struct stage *stage)
{
	assert_int_equal(
	    slot_use_count(&stage->use, &stage->slots, &fake_compute_ops, &stage->compute), 0);
}

static void
a_use_is_a_hit_if_its_expert_was_in_a_slot_then(void **state)
{
	struct stage *stage = *state;

	stage->used[1] = 5;
	count(stage);
	assert_true(slot_plan_hold(&stage->slots, &(struct slot_fill){ 0, 1, 0 }));
	stage->used[1] = 2;
	stage->used[2] = 1;
	count(stage);
	assert_int_equal(stage->use.uses, 8);
	assert_int_equal(stage->use.hits, 2);
	assert_int_equal(slot_use_tokens(&stage->use), 2);
}

static void
bytes_are_those_of_the_layers_experts(void **state)
{
	struct stage *stage = *state;

	assert_true(slot_plan_hold(&stage->slots, &(struct slot_fill){ 1, 0, 1 }));
	stage->used[0] = 1;
	stage->used[EXPERTS] = 10;
	count(stage);
	assert_int_equal(stage->use.bytes_arena, 3);
	assert_int_equal(stage->use.bytes_slots, 60);
}

static void
the_counts_are_of_the_last_time_alone(void **state)
{
	struct stage *stage = *state;

	stage->used[4] = 7;
	count(stage);
	assert_int_equal(stage->use.counts[4], 7);
	count(stage);
	assert_int_equal(stage->use.counts[4], 0);
	assert_int_equal(stage->use.uses, 7);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_use_is_a_hit_if_its_expert_was_in_a_slot_then),
		RULE(bytes_are_those_of_the_layers_experts),
		RULE(the_counts_are_of_the_last_time_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
