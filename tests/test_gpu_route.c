/* The router on the GPU: the normed vector, the logits against sums in double on the CPU, and the
 * choice of experts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "proto/limits.h"
#include "tests/gpu.h"
#include "tests/gpu_fixed.h"
#include "tests/gpu_vectors.h"
#include "worker/cuda_kernels.h"

#define EPSILON 1e-6f

static struct device *device;
static uint64_t seed = 1;

struct route {
	struct cuda_moe moe;
	uint32_t tokens; /* room for */
	uint64_t router_bytes, h_bytes, norm_bytes, logits_bytes, chosen_bytes, used_bytes;
	double *x; /* (hidden): the last token's that was asked for */
};

static float *
floats_open(uint64_t *ret_bytes, uint64_t n)
{
	*ret_bytes = n * sizeof(float);
	return gpu_shared(device, *ret_bytes);
}

/* All but the vectors and the router's rows, which are 0. */
static void
route_open(struct route *r, uint32_t type, const uint32_t shape[3], uint32_t tokens)
{
	uint32_t experts = shape[0], top_k = shape[1], hidden = shape[2];
	struct cuda_moe *moe = &r->moe;
	uint64_t row_bytes = 0;

	assert_true(type_row_bytes(type_find(type), hidden, &row_bytes));
	r->tokens = tokens;
	*moe = (struct cuda_moe){
		.hidden = hidden,
		.experts = experts,
		.top_k = top_k,
		.router = { .row_bytes = row_bytes, .type = type, .rows = experts },
		.norm = { .epsilon = EPSILON },
		.x = gpu_vectors_open(device, tokens, hidden),
	};
	r->router_bytes = experts * row_bytes;
	moe->router.at = gpu_shared(device, r->router_bytes);
	moe->h.stride = (hidden + 3) / 4 * 4;
	moe->h.at = floats_open(&r->h_bytes, (uint64_t)tokens * moe->h.stride);
	moe->norm.weight = floats_open(&r->norm_bytes, hidden);
	moe->logits.stride = experts;
	moe->logits.at = floats_open(&r->logits_bytes, (uint64_t)tokens * experts);
	r->chosen_bytes = sizeof(uint32_t) * tokens * top_k;
	moe->chosen = gpu_shared(device, r->chosen_bytes);
	moe->weights = gpu_shared(device, r->chosen_bytes);
	moe->arrived = gpu_shared(device, tokens * sizeof(uint32_t));
	r->used_bytes = experts * sizeof(*moe->used);
	moe->used = gpu_shared(device, r->used_bytes);
	r->x = calloc(hidden, sizeof(*r->x));
}

static void
route_close(struct route *r)
{
	struct cuda_moe *moe = &r->moe;

	gpu_vectors_close(device, &moe->x, r->tokens, moe->hidden);
	gpu_shared_free(device, (void *)moe->router.at, r->router_bytes);
	gpu_shared_free(device, moe->h.at, r->h_bytes);
	gpu_shared_free(device, (void *)moe->norm.weight, r->norm_bytes);
	gpu_shared_free(device, moe->logits.at, r->logits_bytes);
	gpu_shared_free(device, moe->chosen, r->chosen_bytes);
	gpu_shared_free(device, moe->weights, r->chosen_bytes);
	gpu_shared_free(device, moe->arrived, r->tokens * sizeof(uint32_t));
	gpu_shared_free(device, moe->used, r->used_bytes);
	free(r->x);
}

static void
random_fill(const struct route *r)
{
	const struct cuda_moe *moe = &r->moe;
	float *weight = (float *)moe->norm.weight;

	for (uint32_t e = 0; e < moe->experts; e++)
		gpu_random_row(type_find(moe->router.type),
			       (uint8_t *)moe->router.at + e * moe->router.row_bytes, moe->hidden,
			       &seed);
	for (uint64_t i = 0; i < (uint64_t)r->tokens * moe->h.stride; i++)
		moe->h.at[i] = 2 * gpu_random(&seed);
	for (uint32_t i = 0; i < moe->hidden; i++)
		weight[i] = gpu_random(&seed) / 8 + 0.25f;
}

/* The first column alone counts: expert e has the logit scores[e], times what the norm makes of it.
 */
static void
scores_fill(const struct route *r, const float *scores)
{
	for (uint32_t i = 0; i < r->moe.hidden; i++)
		((float *)r->moe.norm.weight)[i] = 1;
	r->moe.h.at[0] = 1;
	for (uint32_t e = 0; e < r->moe.experts; e++)
		((float *)r->moe.router.at)[(size_t)e * r->moe.hidden] = scores[e];
}

/* Tokens `first`.. of those there are.  None is left waiting for the others. */
static void
route_run(const struct route *r, uint32_t first, uint32_t tokens)
{
	struct cuda_moe moe = r->moe;
	struct error err;

	moe.h.at += (uint64_t)first * moe.h.stride;
	moe.x.rows.at += (uint64_t)first * moe.x.rows.stride;
	moe.x.fixed.at += (uint64_t)first * moe.x.fixed.stride;
	moe.logits.at += (uint64_t)first * moe.logits.stride;
	moe.chosen += (uint64_t)first * moe.top_k;
	moe.weights += (uint64_t)first * moe.top_k;
	if (cuda_route(NULL, &moe, tokens, &err) || cuda_finish(NULL, &err))
		fail_msg("%s", err.text);
	for (uint32_t t = 0; t < r->tokens; t++)
		assert_int_equal(moe.arrived[t], 0);
}

static void
check_vector(const struct route *r, uint64_t token)
{
	const struct cuda_moe *moe = &r->moe;
	const float *h = moe->h.at + token * moe->h.stride;
	const float *got = moe->x.rows.at + token * moe->x.rows.stride;
	double squares = 0;

	for (uint32_t i = 0; i < moe->hidden; i++)
		squares += (double)h[i] * h[i];
	for (uint32_t i = 0; i < moe->hidden; i++) {
		r->x[i] = h[i] / sqrt(squares / moe->hidden + EPSILON) * moe->norm.weight[i];
		assert_true(fabs(got[i] - r->x[i]) <= 1e-6 * fabs(r->x[i]));
	}
	if (moe->hidden % 32 == 0)
		gpu_fixed_check(&moe->x, token, moe->hidden);
}

static void
check_logits(const struct route *r, uint64_t token)
{
	const struct cuda_moe *moe = &r->moe;
	const struct type_info *info = type_find(moe->router.type);
	float *row = calloc(moe->hidden, sizeof(*row));

	for (uint32_t e = 0; e < moe->experts; e++) {
		const uint8_t *at = (const uint8_t *)moe->router.at + e * moe->router.row_bytes;
		double got = moe->logits.at[token * moe->logits.stride + e];

		info->unpack(at, row, moe->hidden / info->block_elements);
		assert_true(fabs(got - gpu_product(row, r->x, moe->hidden)) <=
			    gpu_product_error(info->type, row, r->x, moe->hidden));
	}
	free(row);
}

/* Whether one expert is likelier than another by more than shares are rounded. */
static bool
likelier(const float *logits, uint32_t best, uint32_t than, uint32_t e)
{
	double top = logits[best];

	return exp(logits[e] - top) > exp(logits[than] - top) * (1 + 1e-6) + FLT_MIN;
}

static void
check_choice(const struct route *r, uint64_t token)
{
	const struct cuda_moe *moe = &r->moe;
	const float *logits = moe->logits.at + token * moe->logits.stride;
	const uint32_t *chosen = moe->chosen + token * moe->top_k;
	double all = 0;

	for (uint32_t k = 0; k < moe->top_k; k++) {
		assert_true(chosen[k] < moe->experts);
		assert_true(k == 0 || !likelier(logits, chosen[0], chosen[k - 1], chosen[k]));
		all += exp(logits[chosen[k]] - logits[chosen[0]]);
	}
	for (uint32_t k = 0; k < moe->top_k; k++) {
		double want = exp(logits[chosen[k]] - logits[chosen[0]]) / all;

		assert_true(fabs(moe->weights[token * moe->top_k + k] - want) < 1e-6);
	}
	for (uint32_t e = 0, better = 0; e < moe->experts; e++) {
		better += likelier(logits, chosen[0], chosen[moe->top_k - 1], e);
		assert_true(better < moe->top_k);
	}
}

static void
equals_are_chosen_in_the_order_of_their_index(void **state)
{
	static const float scores[8] = { 1, 3, 2, 3, -5, 2, 3, 0 };
	static const uint32_t shape[3] = { 8, 5, 32 }, want[5] = { 1, 3, 6, 2, 5 };
	struct route r;
	float sum = 0;

	(void)state;
	route_open(&r, TYPE_F32, shape, 1);
	scores_fill(&r, scores);
	route_run(&r, 0, 1);
	assert_memory_equal(r.moe.chosen, want, sizeof(want));
	for (int k = 0; k < 5; k++)
		sum += r.moe.weights[k];
	assert_true(fabsf(sum - 1) < 1e-6f);
	check_choice(&r, 0);
	route_close(&r);
}

static void
logits_that_are_no_numbers_still_choose_experts_that_exist(void **state)
{
	static const uint32_t shape[3] = { 40, 6, 32 }, want[6] = { 21, 7, 0, 1, 2, 3 };
	float scores[40];
	struct route r;

	(void)state;
	route_open(&r, TYPE_F32, shape, 1);
	for (int i = 0; i < 40; i++)
		scores[i] = i % 2 ? NAN : INFINITY;
	scores_fill(&r, scores);
	memset(r.moe.chosen, 0xff, r.chosen_bytes);
	route_run(&r, 0, 1);
	/* A NaN makes the sum one, and so all are as likely. */
	for (uint32_t k = 0; k < 6; k++) {
		assert_int_equal(r.moe.chosen[k], k);
		assert_true(fabsf(r.moe.weights[k] - 1.0f / 6) < 1e-6f);
	}
	/* Those of no likelihood come in their order, behind those that have some. */
	scores[7] = 1;
	scores[21] = 2;
	for (int i = 0; i < 40; i++)
		scores[i] = i == 7 || i == 21 ? scores[i] : -INFINITY;
	scores_fill(&r, scores);
	route_run(&r, 0, 1);
	assert_memory_equal(r.moe.chosen, want, sizeof(want));
	route_close(&r);
}

static void
the_largest_numbers_of_experts_are_chosen_from(void **state)
{
	static const uint32_t shapes[][3] = { { 1, 1, 64 },
					      { 128, 8, 2048 },
					      { 257, 31, 96 },
					      { 512, 10, 64 },
					      { MAX_EXPERTS, MAX_EXPERTS, 32 } };

	(void)state;
	for (int s = 0; s < 5; s++) {
		uint64_t used = 0;
		struct route r;

		route_open(&r, TYPE_F32, shapes[s], 2);
		random_fill(&r);
		route_run(&r, 0, 2);
		for (uint64_t t = 0; t < 2; t++) {
			check_vector(&r, t);
			check_logits(&r, t);
			check_choice(&r, t);
		}
		for (uint32_t i = 0; i < 2 * shapes[s][1]; i++)
			used += r.moe.used[r.moe.chosen[i]] > 0;
		for (uint32_t e = 0; e < shapes[s][0]; e++)
			used -= r.moe.used[e];
		assert_int_equal(used, 0);
		route_close(&r);
	}
}

static void
the_router_may_be_of_any_type(void **state)
{
	static const uint32_t types[] = { TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0,
					  TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
	static const uint32_t columns[] = { 3, 100, 256, 1000, 1024 };

	(void)state;
	for (int i = 0; i < 8 * 5; i++) {
		uint32_t shape[3] = { 20, 4, columns[i / 8] }, type = types[i % 8];
		uint64_t row_bytes;
		struct route r;

		if (!type_row_bytes(type_find(type), shape[2], &row_bytes))
			continue;
		route_open(&r, type, shape, 1);
		random_fill(&r);
		route_run(&r, 0, 1);
		check_vector(&r, 0);
		check_logits(&r, 0);
		check_choice(&r, 0);
		route_close(&r);
	}
}

static void
the_choice_does_not_depend_on_the_batch(void **state)
{
	static const uint32_t shape[3] = { 50, 7, 288 }, batches[] = { 1, 2, 7, 64 };
	struct route r;
	float *logits;
	uint32_t *chosen;

	(void)state;
	route_open(&r, TYPE_F32, shape, 64);
	random_fill(&r);
	logits = malloc(r.logits_bytes);
	chosen = malloc(2 * r.chosen_bytes);
	for (int b = 0; b < 4; b++) {
		for (uint32_t first = 0; first < 64; first += batches[b])
			route_run(&r, first, 64 - first < batches[b] ? 64 - first : batches[b]);
		if (b == 0) {
			memcpy(logits, r.moe.logits.at, r.logits_bytes);
			memcpy(chosen, r.moe.chosen, r.chosen_bytes);
			memcpy(chosen + r.chosen_bytes / 4, r.moe.weights, r.chosen_bytes);
		}
		assert_memory_equal(r.moe.logits.at, logits, r.logits_bytes);
		assert_memory_equal(r.moe.chosen, chosen, r.chosen_bytes);
		assert_memory_equal(r.moe.weights, chosen + r.chosen_bytes / 4, r.chosen_bytes);
		memset(r.moe.logits.at, 0, r.logits_bytes);
		memset(r.moe.weights, 0, r.chosen_bytes);
	}
	free(logits);
	free(chosen);
	route_close(&r);
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equals_are_chosen_in_the_order_of_their_index),
		cmocka_unit_test(logits_that_are_no_numbers_still_choose_experts_that_exist),
		cmocka_unit_test(the_largest_numbers_of_experts_are_chosen_from),
		cmocka_unit_test(the_router_may_be_of_any_type),
		cmocka_unit_test(the_choice_does_not_depend_on_the_batch),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
