/* Products and the router's choice, kernel by kernel, against sums in double on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "common/types.h"
#include "proto/limits.h"
#include "tests/gpu.h"
#include "worker/cuda_kernels.h"

#define N_TYPES 8
#define ROWS 37u
#define TOKENS 3u
#define MAX_COLUMNS 4096u

static struct device *device;
static uint64_t seed = 1;

static const uint32_t types[N_TYPES] = { TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0,
					 TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
static const uint32_t columns_of[] = { 1, 3, 7, 32, 33, 96, 160, 256, 260, 768, 1000, 2048, 4096 };

struct product {
	uint8_t *weights; /* ROWS rows and room to lie oddly */
	float *x;         /* (TOKENS, MAX_COLUMNS) */
	float *y;         /* (TOKENS, 2 * ROWS) */
	double *want, *size;
};

#define WEIGHT_BYTES (4ull * ROWS * MAX_COLUMNS + 64)
#define X_BYTES (sizeof(float) * TOKENS * MAX_COLUMNS)
#define Y_BYTES (sizeof(float) * TOKENS * 2 * ROWS)

static void
product_open(struct product *p)
{
	p->weights = gpu_shared(device, WEIGHT_BYTES);
	p->x = gpu_shared(device, X_BYTES);
	p->y = gpu_shared(device, Y_BYTES);
	p->want = calloc((size_t)TOKENS * ROWS, sizeof(double));
	p->size = calloc((size_t)TOKENS * ROWS, sizeof(double));
	for (uint32_t i = 0; i < TOKENS * MAX_COLUMNS; i++)
		p->x[i] = gpu_random(&seed);
}

static void
product_close(struct product *p)
{
	gpu_shared_free(device, p->weights, WEIGHT_BYTES);
	gpu_shared_free(device, p->x, X_BYTES);
	gpu_shared_free(device, p->y, Y_BYTES);
	free(p->want);
	free(p->size);
}

/* Fills the rows at `at` and the sums in double. */
static void
product_make(struct product *p, const struct type_info *info, uint8_t *at, uint32_t columns,
	     uint64_t row_bytes)
{
	static float row[MAX_COLUMNS];

	for (uint32_t r = 0; r < ROWS; r++) {
		gpu_random_row(info, at + r * row_bytes, columns, &seed);
		info->unpack(at + r * row_bytes, row, columns / info->block_elements);
		for (uint32_t t = 0; t < TOKENS; t++) {
			double sum = 0, size = 0;

			for (uint32_t i = 0; i < columns; i++) {
				double part = (double)row[i] * p->x[t * MAX_COLUMNS + i];

				sum += part;
				size += fabs(part);
			}
			p->want[t * ROWS + r] = sum;
			p->size[t * ROWS + r] = size;
		}
	}
}

static struct cuda_matrices
one_matrix(const uint8_t *at, uint32_t type, uint32_t columns, uint64_t row_bytes)
{
	return (struct cuda_matrices){
		.of = { { .at = at, .row_bytes = row_bytes, .type = type, .rows = ROWS } },
		.n = 1,
		.columns = columns,
	};
}

static void
multiply(const struct cuda_matrices *m, const struct product *p, size_t token, uint32_t tokens,
	 bool add)
{
	struct cuda_rows from = { p->x + token * MAX_COLUMNS, MAX_COLUMNS };
	struct cuda_rows to = { p->y + token * 2 * ROWS, 2 * ROWS };
	struct error err;

	assert_int_equal(cuda_multiply(NULL, m, from, to, add, tokens, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
}

/* A sum of n products in float, in any order of this depth, stays within this of the exact one. */
#define SUM_ERROR 2e-6

static double
product_error(const struct product *p, double plus)
{
	double worst = 0;

	for (uint32_t i = 0; i < TOKENS * ROWS; i++) {
		double got = p->y[i / ROWS * 2 * ROWS + i % ROWS] - plus;
		double error = fabs(got - p->want[i]) / (p->size[i] + fabs(plus));

		if (!(error <= worst))
			worst = error;
	}
	return worst;
}

static void
every_type_multiplies_as_its_unpacked_row_does(void **state)
{
	struct product p;

	(void)state;
	product_open(&p);
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);
		double worst = 0;
		uint64_t row_bytes;

		for (size_t c = 0; c < sizeof(columns_of) / sizeof(columns_of[0]); c++) {
			struct cuda_matrices m;

			if (!type_row_bytes(info, columns_of[c], &row_bytes))
				continue;
			product_make(&p, info, p.weights, columns_of[c], row_bytes);
			memset(p.y, 0xff, Y_BYTES);
			m = one_matrix(p.weights, info->type, columns_of[c], row_bytes);
			multiply(&m, &p, 0, TOKENS, false);
			worst = fmax(worst, product_error(&p, 0));
			assert_true(worst <= SUM_ERROR);
			for (uint32_t i = 0; i < TOKENS * 2 * ROWS; i++)
				if (i % (2 * ROWS) < ROWS)
					p.y[i] = 0.5f;
			multiply(&m, &p, 0, TOKENS, true);
			assert_true(product_error(&p, 0.5) <= SUM_ERROR);
		}
		printf("%-5s largest error of a sum %.1e of its terms\n", info->name, worst);
	}
	product_close(&p);
}

static void
bits_depend_neither_on_the_batch_nor_on_where_a_matrix_lies(void **state)
{
	static const uint32_t shifts[] = { 0, 2, 4, 6, 8, 16, 18, 30 };
	static float first[TOKENS * 2 * ROWS];
	struct product p;

	(void)state;
	product_open(&p);
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);
		uint64_t row_bytes;

		assert_true(type_row_bytes(info, 768, &row_bytes));
		product_make(&p, info, p.weights, 768, row_bytes);
		for (size_t s = 0; s < sizeof(shifts) / sizeof(shifts[0]); s++) {
			struct cuda_matrices m =
			    one_matrix(p.weights + shifts[s], info->type, 768, row_bytes);
			uint32_t before = s == 0 ? 0 : shifts[s - 1];

			memmove(p.weights + shifts[s], p.weights + before, ROWS * row_bytes);
			memset(p.y, 0, Y_BYTES);
			if (s == 0)
				multiply(&m, &p, 0, TOKENS, false);
			else
				for (uint32_t token = 0; token < TOKENS; token++)
					multiply(&m, &p, token, 1, false);
			if (s == 0)
				memcpy(first, p.y, Y_BYTES);
			assert_memory_equal(first, p.y, Y_BYTES);
		}
	}
	product_close(&p);
}

static void
matrices_of_different_types_lie_side_by_side(void **state)
{
	const struct type_info *a = type_find(TYPE_Q4_K), *b = type_find(TYPE_Q6_K);
	struct cuda_matrices m = { .n = 2, .columns = 512 };
	static float apart[TOKENS * 2 * ROWS];
	uint64_t a_row = 0, b_row = 0;
	struct product p;

	(void)state;
	product_open(&p);
	assert_true(type_row_bytes(a, 512, &a_row) && type_row_bytes(b, 512, &b_row));
	product_make(&p, a, p.weights, 512, a_row);
	product_make(&p, b, p.weights + ROWS * a_row, 512, b_row);
	m.of[0] = one_matrix(p.weights, a->type, 512, a_row).of[0];
	m.of[1] = one_matrix(p.weights + ROWS * a_row, b->type, 512, b_row).of[0];
	for (size_t i = 0; i < 2; i++) {
		struct cuda_matrices one = { .of = { m.of[i] }, .n = 1, .columns = 512 };

		multiply(&one, &p, 0, TOKENS, false);
		for (size_t t = 0; t < TOKENS; t++)
			memcpy(apart + (2 * t + i) * ROWS, p.y + 2 * t * ROWS,
			       ROWS * sizeof(float));
	}
	memset(p.y, 0xff, Y_BYTES);
	multiply(&m, &p, 0, TOKENS, false);
	assert_memory_equal(apart, p.y, Y_BYTES);
	product_close(&p);
}

/* -- the router's choice -- */

struct choice {
	struct cuda_moe moe;
	uint64_t bytes, chosen_bytes;
	float *room; /* logits, then weights */
};

static void
choice_open(struct choice *c, uint32_t experts, uint32_t top_k, uint32_t tokens)
{
	c->bytes = sizeof(float) * tokens * (experts + top_k);
	c->chosen_bytes = sizeof(uint32_t) * tokens * top_k;
	c->room = gpu_shared(device, c->bytes);
	c->moe = (struct cuda_moe){
		.experts = experts,
		.top_k = top_k,
		.logits = { c->room, experts },
		.weights = c->room + (size_t)tokens * experts,
		.chosen = gpu_shared(device, c->chosen_bytes),
	};
}

static void
choice_close(struct choice *c)
{
	gpu_shared_free(device, c->moe.chosen, c->chosen_bytes);
	gpu_shared_free(device, c->room, c->bytes);
}

static void
choice_run(struct choice *c, uint32_t tokens)
{
	struct error err;

	assert_int_equal(cuda_choose(NULL, &c->moe, tokens, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
}

static void
equals_are_chosen_in_the_order_of_their_index(void **state)
{
	static const float logits[8] = { 1, 3, 2, 3, -5, 2, 3, 0 };
	static const uint32_t want[5] = { 1, 3, 6, 2, 5 };
	struct choice c;
	float sum = 0;

	(void)state;
	choice_open(&c, 8, 5, 1);
	memcpy(c.room, logits, sizeof(logits));
	choice_run(&c, 1);
	assert_memory_equal(c.moe.chosen, want, sizeof(want));
	for (int k = 0; k < 5; k++)
		sum += c.moe.weights[k];
	assert_true(fabsf(sum - 1) < 1e-6f);
	assert_true(fabsf(c.moe.weights[0] / c.moe.weights[3] - expf(1)) < 1e-5f);
	choice_close(&c);
}

static void
the_largest_numbers_of_experts_are_chosen_from(void **state)
{
	static const uint32_t shapes[][2] = {
		{ 1, 1 }, { 128, 8 }, { 257, 31 }, { 512, 10 }, { MAX_EXPERTS, MAX_EXPERTS }
	};

	(void)state;
	for (int s = 0; s < 5; s++) {
		uint32_t experts = shapes[s][0], top_k = shapes[s][1];
		struct choice c;

		choice_open(&c, experts, top_k, 2);
		for (uint32_t i = 0; i < 2 * experts; i++)
			c.room[i] = 4 * gpu_random(&seed);
		choice_run(&c, 2);
		for (size_t t = 0; t < 2; t++) {
			const float *logits = c.room + t * experts;
			const uint32_t *chosen = c.moe.chosen + t * top_k;
			double all = 0;

			for (uint32_t k = 0; k < top_k; k++)
				all += exp(logits[chosen[k]]);
			for (uint32_t k = 0; k < top_k; k++) {
				double want = exp(logits[chosen[k]]) / all;

				assert_true(chosen[k] < experts);
				assert_true(fabs(c.moe.weights[t * top_k + k] - want) < 1e-6);
				assert_true(k == 0 || logits[chosen[k]] <= logits[chosen[k - 1]]);
			}
			for (uint32_t e = 0, better = 0; e < experts; e++) {
				better += logits[e] > logits[chosen[top_k - 1]];
				assert_true(better < top_k);
			}
		}
		choice_close(&c);
	}
}

static void
logits_that_are_no_numbers_still_choose_experts_that_exist(void **state)
{
	struct choice c;

	(void)state;
	choice_open(&c, 40, 6, 1);
	for (int i = 0; i < 40; i++)
		c.room[i] = i % 2 ? NAN : INFINITY;
	memset(c.moe.chosen, 0xff, c.chosen_bytes);
	choice_run(&c, 1);
	for (int k = 0; k < 6; k++)
		assert_int_equal(c.moe.chosen[k], k);
	choice_close(&c);
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_multiplies_as_its_unpacked_row_does),
		cmocka_unit_test(bits_depend_neither_on_the_batch_nor_on_where_a_matrix_lies),
		cmocka_unit_test(matrices_of_different_types_lie_side_by_side),
		cmocka_unit_test(equals_are_chosen_in_the_order_of_their_index),
		cmocka_unit_test(the_largest_numbers_of_experts_are_chosen_from),
		cmocka_unit_test(logits_that_are_no_numbers_still_choose_experts_that_exist),
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
