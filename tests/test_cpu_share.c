/* Orders of a layer's experts, given by a pretended GPU: any number of threads answers each, with
 * the same bits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <sched.h>

#include "tests/golden.h"
#include "tests/random_rows.h"
#include "worker/cpu_lanes.h"
#include "worker/cpu_share.h"

#define ORDERS 200u

static struct golden_model golden;
static struct share_order *order;
static struct share_answer *answer;
static struct cpu_share *share;

static int
setup(void **state)
{
	(void)state;
	golden_model_open(&golden, "tests/data/kjv-16x1m.gguf");
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	golden_model_close(&golden);
	return 0;
}

static void
open_share(uint32_t threads)
{
	uint64_t order_bytes = cpu_share_order_bytes(&golden.model);
	uint64_t answer_bytes = cpu_share_answer_bytes(&golden.model);
	struct cpu_share_config config = { .model = &golden.model,
					   .places = golden.places,
					   .threads = threads };
	struct error err = { "" };

	order = aligned_alloc(64, order_bytes);
	answer = aligned_alloc(64, answer_bytes);
	memset(order, 0, order_bytes);
	memset(answer, 0, answer_bytes);
	config.order = order;
	config.answer = answer;
	if (cpu_share_open(&share, &config, &err) < 0)
		fail_msg("%s", err.text);
}

static void
close_share(void)
{
	cpu_share_close(share);
	free(order);
	free(answer);
}

/* A vector of ordinary columns. */
static void
make_x(struct lanes_fixed *x)
{
	uint32_t hidden = golden.model.hidden;

	for (uint32_t i = 0; i < hidden; i++) {
		struct lanes_fixed *block = &x[i / 256];
		uint32_t column = i % 256, place = column ^ (column & 128 ? 112 : 0);
		int v = (int)(random_u32() % 60000) - 30000;

		if (column % 16 == 0)
			block->group[column / 16].sum = 0;
		block->group[column / 16].unit = 1e-4f;
		block->group[column / 16].sum += v;
		block->low[place] = (int8_t)(v & 255);
		block->high[place] = (int8_t)((v + 128) >> 8);
	}
}

static const float *
answer_floats(void)
{
	return (const float *)(const void *)((const uint8_t *)answer + SHARE_ANSWER_BYTES);
}

/* Order `number`, with the fields a GPU may write while late threads look.  Returns its experts. */
static uint32_t
order_give(uint64_t number)
{
	const struct model *model = &golden.model;
	uint32_t n = 1 + random_u32() % model->top_k;

	__atomic_store_n(&order->layer, random_u32() % model->n_layers, __ATOMIC_RELAXED);
	__atomic_store_n(&order->n, n, __ATOMIC_RELAXED);
	for (uint32_t i = 0; i < n; i++)
		order->experts[i] =
		    (struct share_expert){ random_u32() % model->n_experts, random_float() };
	make_x((void *)((uint8_t *)order + SHARE_ORDER_BYTES));
	__atomic_store_n(&order->sequence, number, __ATOMIC_RELEASE);
	return n;
}

/* The same, and the answer is there. */
static uint32_t
give(uint64_t number)
{
	uint32_t n = order_give(number);

	while (__atomic_load_n(&answer->sequence, __ATOMIC_ACQUIRE) != number)
		sched_yield();
	return n;
}

/* All answers' floats; sequences run over 31 bits. */
static float *
answers_of(uint32_t threads, bool rests)
{
	uint64_t all = (uint64_t)golden.model.top_k * golden.model.hidden, experts = 0;
	float *ret = calloc(ORDERS * all, sizeof(*ret));

	open_share(threads);
	random_begin(77);
	cpu_share_wake(share);
	for (uint32_t i = 0; i < ORDERS; i++) {
		uint32_t n = give(INT32_MAX - ORDERS / 2 + i);

		experts += n;
		memcpy(ret + i * all, answer_floats(),
		       (size_t)n * golden.model.hidden * sizeof(*ret));
		if (rests) {
			cpu_share_rest(share);
			cpu_share_wake(share);
		}
	}
	cpu_share_rest(share);
	assert_int_equal(cpu_share_experts(share), experts);
	close_share();
	return ret;
}

static void
threads_change_no_bit(void **state)
{
	uint64_t n = (uint64_t)ORDERS * golden.model.top_k * golden.model.hidden;
	float *first = answers_of(1, false), *other;
	double size = 0;

	(void)state;
	for (uint64_t i = 0; i < n; i++)
		size += fabs((double)first[i]);
	assert_true(size > 0 && isfinite(size));
	for (uint32_t threads = 2; threads < 5; threads++) {
		other = answers_of(threads, threads % 2 == 0);
		assert_memory_equal(first, other, n * sizeof(*first));
		free(other);
	}
	free(first);
}

/* Threads that sleep are woken by the next wake, or by the end. */
static void
sleeping_threads_are_woken(void **state)
{
	(void)state;
	open_share(2);
	for (uint64_t i = 1; i <= 20; i++) {
		cpu_share_wake(share);
		give(i);
		cpu_share_rest(share);
		sched_yield();
	}
	close_share();
}

/* Who gives up what it ordered waits all the same, so that the next order finds nobody at work. */
static void
settles_when_the_last_order_is_answered(void **state)
{
	(void)state;
	open_share(3);
	cpu_share_settle(share); /* there was none */
	for (uint64_t i = 1; i <= 50; i++) {
		cpu_share_wake(share);
		order_give(i);
		cpu_share_settle(share);
		assert_int_equal(__atomic_load_n(&answer->sequence, __ATOMIC_ACQUIRE), i);
		cpu_share_rest(share);
	}
	close_share();
}

/* Forwards count on while none leaves anything to the CPU. */
static void
an_order_long_after_the_last_is_answered(void **state)
{
	(void)state;
	open_share(2);
	cpu_share_wake(share);
	for (uint64_t i = 1; i < UINT64_C(1) << 38; i += i)
		give(i);
	close_share();
}

static void
refuses_no_threads(void **state)
{
	struct cpu_share_config config = { .model = &golden.model, .places = golden.places };
	struct error err = { "" };

	(void)state;
	assert_int_equal(cpu_share_open(&share, &config, &err), -EINVAL);
}

static void
refuses_a_model_of_floats(void **state)
{
	struct golden_model floats = golden;
	struct model_layer *layers = calloc(golden.model.n_layers, sizeof(*golden.model.layers));
	struct cpu_share_config config = { .model = &floats.model,
					   .places = golden.places,
					   .threads = 1 };
	struct error err = { "" };

	(void)state;
	memcpy(layers, golden.model.layers, golden.model.n_layers * sizeof(*layers));
	for (uint32_t i = 0; i < golden.model.n_layers; i++)
		layers[i].role[ROLE_DOWN].type = TYPE_F16;
	floats.model.layers = layers;
	assert_false(cpu_share_possible(&floats.model));
	assert_int_equal(cpu_share_open(&share, &config, &err), -ENOTSUP);
	free(layers);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_change_no_bit),
		cmocka_unit_test(sleeping_threads_are_woken),
		cmocka_unit_test(settles_when_the_last_order_is_answered),
		cmocka_unit_test(an_order_long_after_the_last_is_answered),
		cmocka_unit_test(refuses_no_threads),
		cmocka_unit_test(refuses_a_model_of_floats),
	};

	if (lanes_kernels_best() == NULL)
		return 77;
	return cmocka_run_group_tests(tests, setup, teardown);
}
