/* tests/route_trace.h: made-up routers are what they are said to be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/slot_sim.h"

#define LAYERS 3u
#define EXPERTS 16u
#define TOP_K 4u
#define TOKENS 800u

static void
make(struct route_trace *ret, const struct route_maker *maker)
{
	route_trace_open(ret, maker->name, LAYERS, EXPERTS, TOP_K, TOKENS);
	route_trace_make(ret, maker);
}

static void
a_token_has_different_experts_in_a_layer_and_a_seed_one_trace(void **state)
{
	const struct route_maker maker = { .skew = 1, .stays = 0.3, .drift = 50, .seed = 3 };
	struct route_trace first, again;

	(void)state;
	make(&first, &maker);
	make(&again, &maker);
	assert_memory_equal(first.chosen, again.chosen,
			    sizeof(*first.chosen) * TOKENS * LAYERS * TOP_K);
	for (uint32_t i = 0; i < TOKENS * LAYERS; i++) {
		uint32_t seen = 0;

		for (uint32_t k = 0; k < TOP_K; k++) {
			assert_in_range(first.chosen[i * TOP_K + k], 0, EXPERTS - 1);
			seen |= 1u << first.chosen[i * TOP_K + k];
		}
		assert_int_equal(__builtin_popcount(seen), TOP_K);
	}
	route_trace_close(&first);
	route_trace_close(&again);
}

static double
hits(const struct route_maker *maker, enum sim_kind kind)
{
	const struct sim_policy policy = { .kind = kind, .half_life = 32, .margin = 2, .every = 4 };
	struct route_trace trace;
	struct sim_result result;

	make(&trace, maker);
	result = slot_sim(&trace, &policy, LAYERS * EXPERTS / 4);
	route_trace_close(&trace);
	assert_true(result.uses == LAYERS * TOP_K);
	return result.hits;
}

static void
a_profile_helps_where_routing_is_skewed_and_use_where_it_drifts(void **state)
{
	const struct route_maker uniform = { .seed = 1 }, skewed = { .skew = 1, .seed = 2 };
	const struct route_maker drifts = { .skew = 1.5, .drift = 200, .seed = 3 };

	(void)state;
	assert_true(hits(&uniform, SIM_STATIC) < 0.3);
	assert_true(hits(&skewed, SIM_STATIC) > 0.4);
	assert_true(hits(&skewed, SIM_IN_ORDER) < 0.4);
	assert_true(hits(&drifts, SIM_LFU) > hits(&drifts, SIM_STATIC) + 0.1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_has_different_experts_in_a_layer_and_a_seed_one_trace),
		cmocka_unit_test(a_profile_helps_where_routing_is_skewed_and_use_where_it_drifts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
