#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/golden.h"
#include "tests/synthetic_model.h"
#include "tests/synthetic_router.h"

#define BATCHES 8u
#define TOKENS (BATCHES * COMPUTE_BATCH)
#define MAX_CHOICE 64u

/* How often each expert of each layer was chosen for TOKENS random tokens, of 1. */
struct routing {
	uint32_t layers, experts, top_k;
	double often[8][MAX_CHOICE]; /* (layers, experts), descending in each layer */
};

static int
descending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x < y) - (x > y);
}

static void
run_tokens(const struct golden_model *golden, uint64_t *counts)
{
	struct compute_config config = { .model = &golden->model,
					 .arena = golden->bytes,
					 .trunk = golden->bytes,
					 .context = TOKENS,
					 .threads = 2,
					 .places = golden->places };
	uint64_t random = 1;
	struct compute *compute;
	struct error err;

	config.kv = calloc(1, compute_cpu.kv_bytes(&golden->model, TOKENS));
	assert_non_null(config.kv);
	assert_int_equal(compute_cpu.open(&compute, &config, &err), 0);
	for (uint32_t batch = 0; batch < BATCHES; batch++) {
		uint32_t ids[COMPUTE_BATCH];

		for (uint32_t i = 0; i < COMPUTE_BATCH; i++) {
			random = random * 6364136223846793005ull + 1442695040888963407ull;
			ids[i] = (uint32_t)(random >> 33) % golden->model.vocabulary;
		}
		assert_int_equal(compute_cpu.forward(compute, ids, COMPUTE_BATCH,
						     batch * COMPUTE_BATCH, NULL, NULL, &err),
				 0);
	}
	assert_int_equal(compute_cpu.usage(compute, counts), 0);
	compute_cpu.close(compute);
	free(config.kv);
}

static void
measure(struct routing *ret, double zipf)
{
	struct synthetic synthetic = {
		.shape = "small", .layers = 3, .zipf = zipf, .seed = 5, .threads = 2
	};
	uint64_t counts[8 * MAX_CHOICE] = { 0 };
	char path[] = "/tmp/hearth-synthetic-XXXXXX";
	struct golden_model golden;
	struct synthetic_made made;
	struct error err;

	close(mkstemp(path));
	assert_int_equal(synthetic_write(&synthetic, path, &made, &err), 0);
	assert_int_equal(made.layers, 3);
	golden_model_open(&golden, path);
	unlink(path);
	assert_int_equal(made.bytes, golden.n_bytes);
	*ret = (struct routing){
		golden.model.n_layers, golden.model.n_experts, golden.model.top_k, { { 0 } }
	};
	run_tokens(&golden, counts);
	golden_model_close(&golden);
	for (uint32_t layer = 0; layer < ret->layers; layer++) {
		for (uint32_t e = 0; e < ret->experts; e++)
			ret->often[layer][e] = (double)counts[layer * ret->experts + e] / TOKENS;
		qsort(ret->often[layer], ret->experts, sizeof(double), descending);
	}
}

/* Of the choice's distribution, of that of equal experts. */
static double
entropy(const double *often, uint32_t experts, uint32_t top_k)
{
	double bits = 0;

	for (uint32_t e = 0; e < experts; e++)
		if (often[e] > 0)
			bits -= often[e] / top_k * log2(often[e] / top_k);
	return bits / log2(experts);
}

static void
an_even_router_chooses_each_expert_equally_often(void **state)
{
	struct routing routing;

	(void)state;
	measure(&routing, 0);
	for (uint32_t layer = 0; layer < routing.layers; layer++)
		assert_true(entropy(routing.often[layer], routing.experts, routing.top_k) > 0.98);
}

static void
a_skewed_router_chooses_as_often_as_asked(void **state)
{
	double wanted[MAX_CHOICE];
	struct routing routing;

	(void)state;
	measure(&routing, 1);
	synthetic_frequencies(wanted, routing.experts, routing.top_k, 1);
	for (uint32_t layer = 0; layer < routing.layers; layer++) {
		double hot = 0, hot_wanted = 0;

		for (uint32_t e = 0; e < routing.experts / 4; e++) {
			hot += routing.often[layer][e];
			hot_wanted += wanted[e];
		}
		assert_true(fabs(hot / hot_wanted - 1) < 0.1);
		assert_true(fabs(entropy(routing.often[layer], routing.experts, routing.top_k) -
				 entropy(wanted, routing.experts, routing.top_k)) < 0.03);
	}
}

static void
frequencies_fall_with_the_rank_and_give_top_k_together(void **state)
{
	double wanted[128], sum = 0;

	(void)state;
	synthetic_frequencies(wanted, 128, 8, 1);
	for (uint32_t rank = 0; rank < 128; rank++) {
		sum += wanted[rank];
		assert_true(wanted[rank] <= SYNTHETIC_HOTTEST);
		assert_true(rank == 0 || wanted[rank] <= wanted[rank - 1]);
	}
	assert_true(fabs(sum - 8) < 1e-9);
	assert_true(fabs(wanted[127] * 128 - wanted[63] * 64) < 1e-9);
	synthetic_frequencies(wanted, 128, 8, 0);
	assert_true(fabs(wanted[0] - 8.0 / 128) < 1e-9 && fabs(wanted[127] - 8.0 / 128) < 1e-9);
}

static void
the_hot_ones_lie_elsewhere_in_each_layer(void **state)
{
	float first[128], second[128];
	double squares = 0;

	(void)state;
	synthetic_gains(first, 128, 8, 1, 1);
	synthetic_gains(second, 128, 8, 1, 2);
	for (uint32_t i = 0; i < 128; i++)
		squares += (double)first[i] * first[i];
	assert_true(fabs(squares / 128 - 1) < 1e-5);
	assert_memory_not_equal(first, second, sizeof(first));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_even_router_chooses_each_expert_equally_often),
		cmocka_unit_test(a_skewed_router_chooses_as_often_as_asked),
		cmocka_unit_test(frequencies_fall_with_the_rank_and_give_top_k_together),
		cmocka_unit_test(the_hot_ones_lie_elsewhere_in_each_layer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
