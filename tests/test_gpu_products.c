/* Products of matrices of every type, plain, scaled as a norm wants it and added to the hidden
 * state, against sums in double on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/gpu.h"
#include "tests/gpu_fixed.h"
#include "tests/gpu_vectors.h"
#include "worker/cuda_kernels.h"

#define N_TYPES 8
#define ROWS 37u
#define TOKENS 3u
#define MAX_COLUMNS 4096u
#define EPSILON 1e-6f

static struct device *device;
static uint64_t seed = 1;

static const uint32_t types[N_TYPES] = { TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0,
					 TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
static const uint32_t columns_of[] = { 1, 3, 7, 32, 33, 96, 160, 256, 260, 768, 1000, 2048, 4096 };

struct product {
	uint8_t *weights; /* ROWS rows and room to lie oddly */
	struct cuda_hidden from;
	float *norm;               /* (MAX_COLUMNS) */
	float *y;                  /* (tokens, 2 * ROWS) */
	struct cuda_hidden added;  /* (tokens, ROWS) */
	double *want, *off, *root; /* (tokens, ROWS); off: how far a product may be from it */
	uint32_t tokens;
};

#define WEIGHT_BYTES (4ull * ROWS * MAX_COLUMNS + 64)
#define NORM_BYTES (sizeof(float) * MAX_COLUMNS)
#define Y_BYTES(tokens) (sizeof(float) * (tokens)*2 * ROWS)

static void
product_open(struct product *p, uint32_t tokens)
{
	p->tokens = tokens;
	p->weights = gpu_shared(device, WEIGHT_BYTES);
	p->from = gpu_hidden_open(device, tokens, MAX_COLUMNS);
	p->norm = gpu_shared(device, NORM_BYTES);
	p->y = gpu_shared(device, Y_BYTES(tokens));
	p->added = gpu_hidden_open(device, tokens, ROWS);
	p->want = calloc((size_t)tokens * ROWS, sizeof(double));
	p->off = calloc((size_t)tokens * ROWS, sizeof(double));
	p->root = calloc(tokens, sizeof(double));
	for (uint32_t i = 0; i < tokens * MAX_COLUMNS; i++)
		p->from.h.at[i] = gpu_random(&seed) * (i % 97 == 0 ? 30.0f : 1.0f);
	for (uint32_t i = 0; i < MAX_COLUMNS; i++)
		p->norm[i] = gpu_random(&seed) + 1.5f;
}

static void
product_close(struct product *p)
{
	gpu_shared_free(device, p->weights, WEIGHT_BYTES);
	gpu_hidden_close(device, &p->from, p->tokens, MAX_COLUMNS);
	gpu_shared_free(device, p->norm, NORM_BYTES);
	gpu_shared_free(device, p->y, Y_BYTES(p->tokens));
	gpu_hidden_close(device, &p->added, p->tokens, ROWS);
	free(p->want);
	free(p->off);
	free(p->root);
}

/* h times the norm's weights, and the root of its mean square, in double. */
static double
product_x(const struct product *p, size_t token, uint32_t columns, double *ret)
{
	const float *h = p->from.h.at + token * MAX_COLUMNS;
	double squares = 0;

	for (uint32_t i = 0; i < columns; i++) {
		squares += (double)h[i] * h[i];
		ret[i] = (double)h[i] * p->norm[i];
	}
	return sqrt(squares / columns + (double)EPSILON);
}

/* Fills the rows at `at` and what they are to give. */
static void
product_make(struct product *p, const struct type_info *info, uint8_t *at, uint32_t columns,
	     uint64_t row_bytes)
{
	static float row[MAX_COLUMNS];
	static double x[MAX_COLUMNS];

	for (uint32_t r = 0; r < ROWS; r++)
		gpu_random_row(info, at + r * row_bytes, columns, &seed);
	for (uint32_t t = 0; t < p->tokens; t++) {
		p->root[t] = product_x(p, t, columns, x);
		for (uint32_t r = 0; r < ROWS; r++) {
			info->unpack(at + r * row_bytes, row, columns / info->block_elements);
			p->want[t * ROWS + r] = gpu_product(row, x, columns);
			p->off[t * ROWS + r] = gpu_product_error(info->type, row, x, columns);
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

enum { PLAIN, ADDED, SCALED };

#define BEFORE 0.5f /* what lies in h */

static void
multiply(const struct cuda_matrices *m, const struct product *p, size_t token, uint32_t tokens,
	 int how)
{
	const struct cuda_hidden from = gpu_hidden_from(&p->from, token);
	const struct cuda_scale scale = { from.squares, m->columns, EPSILON };
	struct cuda_rows to = { p->y + token * 2 * ROWS, 2 * ROWS };
	struct error err = { "" };
	int r;

	gpu_hidden_make(device, &from, p->norm, m->columns, tokens);
	if (how == ADDED)
		r = cuda_multiply_add(NULL, &m->of[0], m->columns, from.x,
				      gpu_hidden_from(&p->added, token), p->norm, tokens, &err);
	else
		r = cuda_multiply(NULL, m, from.x, how == SCALED ? &scale : NULL, to, tokens, &err);
	if (!r)
		r = cuda_finish(NULL, &err);
	if (r)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
}

/* The largest part of what is allowed. */
static double
product_error(const struct product *p, int how)
{
	double worst = 0;

	for (uint32_t i = 0; i < p->tokens * ROWS; i++) {
		uint32_t t = i / ROWS, r = i % ROWS;
		double by = how == SCALED ? p->root[t] : 1, plus = how == ADDED ? BEFORE : 0;
		const struct cuda_rows *h = &p->added.h;
		float got = how == ADDED ? h->at[t * h->stride + r] : p->y[2 * ROWS * t + r];
		double error =
		    fabs((got - plus) * by - p->want[i]) / (p->off[i] + 1e-6 * fabs(plus));

		if (!(error <= worst))
			worst = error;
	}
	return worst;
}

/* What the next norm wants of the sums. */
static void
added_check(const struct product *p)
{
	const struct cuda_hidden *to = &p->added;

	for (uint32_t t = 0; t < p->tokens; t++) {
		const float *h = to->h.at + t * to->h.stride, *x = to->x.rows.at + t * to->h.stride;
		double squares[CUDA_SQUARES(ROWS)] = { 0 };

		for (uint32_t i = 0; i < ROWS; i++) {
			assert_true(x[i] == h[i] * p->norm[i]);
			squares[i / 16] += (double)h[i] * h[i];
		}
		for (uint32_t i = 0; i < CUDA_SQUARES(ROWS); i++)
			assert_true(fabs(to->squares.at[t * to->squares.stride + i] - squares[i]) <=
				    1e-6 * squares[i]);
		gpu_fixed_check(&to->x, t, ROWS / 32 * 32);
	}
}

static void
every_type_multiplies_as_its_unpacked_row_does(void **state)
{
	struct product p;

	(void)state;
	product_open(&p, TOKENS);
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);
		double worst = 0;
		uint64_t row_bytes;

		for (size_t c = 0; c < sizeof(columns_of) / sizeof(columns_of[0]); c++) {
			struct cuda_matrices m;

			if (!type_row_bytes(info, columns_of[c], &row_bytes))
				continue;
			product_make(&p, info, p.weights, columns_of[c], row_bytes);
			m = one_matrix(p.weights, info->type, columns_of[c], row_bytes);
			for (int how = PLAIN; how <= SCALED; how++) {
				for (uint32_t i = 0; i < TOKENS * 2 * ROWS; i++)
					p.y[i] = NAN;
				for (uint32_t i = 0; i < TOKENS * p.added.h.stride; i++)
					p.added.h.at[i] = BEFORE;
				multiply(&m, &p, 0, TOKENS, how);
				worst = fmax(worst, product_error(&p, how));
				assert_true(worst <= 1);
				if (how == ADDED)
					added_check(&p);
				for (uint32_t i = 0; i < TOKENS * 2 * ROWS; i++)
					assert_true(how != ADDED && i % (2 * ROWS) < ROWS
							? !isnan(p.y[i])
							: isnan(p.y[i]));
			}
		}
		printf("%-5s largest error of a product %.2f of what is allowed\n", info->name,
		       worst);
	}
	product_close(&p);
}

static void
bits_depend_neither_on_the_batch_nor_on_where_a_matrix_lies(void **state)
{
	static const uint32_t shifts[] = { 0, 2, 4, 6, 8, 16, 18, 30 };
	static const uint32_t batches[] = { 64, 7, 2, 1 };
	struct product p;
	float *first;

	(void)state;
	product_open(&p, 64);
	first = malloc(Y_BYTES(64));
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);
		uint64_t row_bytes;

		assert_true(type_row_bytes(info, 512, &row_bytes));
		for (uint32_t r = 0; r < ROWS; r++)
			gpu_random_row(info, p.weights + r * row_bytes, 512, &seed);
		for (size_t s = 0; s < sizeof(shifts) / sizeof(shifts[0]); s++) {
			struct cuda_matrices m =
			    one_matrix(p.weights + shifts[s], info->type, 512, row_bytes);
			uint32_t before = s == 0 ? 0 : shifts[s - 1], step = batches[s % 4];
			uint32_t tokens = step == 64 ? 64 : 2 * step;

			memmove(p.weights + shifts[s], p.weights + before, ROWS * row_bytes);
			memset(p.y, 0, Y_BYTES(64));
			for (uint32_t token = 0; token < tokens; token += step)
				multiply(&m, &p, token, step, SCALED);
			if (s == 0)
				memcpy(first, p.y, Y_BYTES(64));
			assert_memory_equal(first, p.y, Y_BYTES(tokens));
		}
	}
	free(first);
	product_close(&p);
}

static void
matrices_of_different_types_lie_side_by_side(void **state)
{
	static const uint32_t three[] = { TYPE_Q4_K, TYPE_Q6_K, TYPE_F32 };
	struct cuda_matrices m = { .n = 2, .columns = 512 };
	static float apart[TOKENS * 2 * ROWS];
	struct product p;

	(void)state;
	product_open(&p, TOKENS);
	for (int second = 1; second < 3; second++) {
		uint8_t *at = p.weights;

		for (size_t i = 0; i < 2; i++) {
			const struct type_info *info = type_find(three[i * second]);
			struct cuda_matrices one;
			uint64_t row_bytes = 0;

			assert_true(type_row_bytes(info, 512, &row_bytes));
			product_make(&p, info, at, 512, row_bytes);
			one = one_matrix(at, info->type, 512, row_bytes);
			m.of[i] = one.of[0];
			at += ROWS * row_bytes;
			multiply(&one, &p, 0, TOKENS, SCALED);
			for (size_t t = 0; t < TOKENS; t++)
				memcpy(apart + (2 * t + i) * ROWS, p.y + 2 * t * ROWS,
				       ROWS * sizeof(float));
		}
		memset(p.y, 0xff, Y_BYTES(TOKENS));
		multiply(&m, &p, 0, TOKENS, SCALED);
		assert_memory_equal(apart, p.y, Y_BYTES(TOKENS));
	}
	product_close(&p);
}

/* Many rows are multiplied two by a warp, and come one chunk after the other. */
static void
bits_do_not_depend_on_how_many_rows_a_matrix_has(void **state)
{
	const uint32_t all = 16387, part = 8194, columns = 256;
	float *weight = gpu_shared(device, columns * sizeof(float));
	struct cuda_hidden from = gpu_hidden_open(device, 1, columns);
	float *y = gpu_shared(device, 2 * all * sizeof(float));
	struct cuda_rows to = { y, all };
	struct error err;

	(void)state;
	for (uint32_t i = 0; i < columns; i++) {
		from.h.at[i] = gpu_random(&seed);
		weight[i] = 1;
	}
	gpu_hidden_make(device, &from, weight, columns, 1);
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);
		struct cuda_matrices m;
		uint64_t row_bytes;
		uint8_t *weights;

		assert_true(type_row_bytes(info, columns, &row_bytes));
		weights = gpu_shared(device, all * row_bytes + 64);
		for (uint32_t r = 0; r < all; r++)
			gpu_random_row(info, weights + 2 + r * row_bytes, columns, &seed);
		m = one_matrix(weights + 2, info->type, columns, row_bytes);
		m.of[0].rows = all;
		to.at = y;
		assert_int_equal(cuda_multiply(NULL, &m, from.x, NULL, to, 1, &err), 0);
		m.of[0].rows = part;
		to.at = y + all;
		assert_int_equal(cuda_multiply(NULL, &m, from.x, NULL, to, 1, &err), 0);
		m.of[0].at = weights + 2 + part * row_bytes;
		m.of[0].rows = all - part;
		to.at = y + all + part;
		assert_int_equal(cuda_multiply(NULL, &m, from.x, NULL, to, 1, &err), 0);
		assert_int_equal(cuda_finish(NULL, &err), 0);
		assert_memory_equal(y, y + all, all * sizeof(float));
		assert_true(y[0] != 0 && y[all - 1] != 0);
		gpu_shared_free(device, weights, all * row_bytes + 64);
	}
	gpu_hidden_close(device, &from, 1, columns);
	gpu_shared_free(device, y, 2 * all * sizeof(float));
	gpu_shared_free(device, weight, columns * sizeof(float));
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_multiplies_as_its_unpacked_row_does),
		cmocka_unit_test(bits_depend_neither_on_the_batch_nor_on_where_a_matrix_lies),
		cmocka_unit_test(matrices_of_different_types_lie_side_by_side),
		cmocka_unit_test(bits_do_not_depend_on_how_many_rows_a_matrix_has),
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
