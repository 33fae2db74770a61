/* Products of matrices of every type, with and without a norm before them, against sums in double
 * on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/gpu.h"
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
	float *h;         /* (tokens, MAX_COLUMNS) */
	float *norm;      /* (MAX_COLUMNS) */
	struct cuda_vectors x;
	float *y;           /* (tokens, 2 * ROWS) */
	double *want, *off; /* (tokens, ROWS); off: how far a product may be from it */
	uint32_t tokens;
};

#define WEIGHT_BYTES (4ull * ROWS * MAX_COLUMNS + 64)
#define H_BYTES(tokens) (sizeof(float) * (tokens)*MAX_COLUMNS)
#define Y_BYTES(tokens) (sizeof(float) * (tokens)*2 * ROWS)

static void
product_open(struct product *p, uint32_t tokens)
{
	p->tokens = tokens;
	p->weights = gpu_shared(device, WEIGHT_BYTES);
	p->h = gpu_shared(device, H_BYTES(tokens));
	p->norm = gpu_shared(device, H_BYTES(1));
	p->x = gpu_vectors_open(device, tokens, MAX_COLUMNS);
	p->y = gpu_shared(device, Y_BYTES(tokens));
	p->want = calloc((size_t)tokens * ROWS, sizeof(double));
	p->off = calloc((size_t)tokens * ROWS, sizeof(double));
	for (uint32_t i = 0; i < tokens * MAX_COLUMNS; i++)
		p->h[i] = gpu_random(&seed) * (i % 97 == 0 ? 30.0f : 1.0f);
	for (uint32_t i = 0; i < MAX_COLUMNS; i++)
		p->norm[i] = gpu_random(&seed) + 1.5f;
}

static void
product_close(struct product *p)
{
	gpu_shared_free(device, p->weights, WEIGHT_BYTES);
	gpu_shared_free(device, p->h, H_BYTES(p->tokens));
	gpu_shared_free(device, p->norm, H_BYTES(1));
	gpu_vectors_close(device, &p->x, p->tokens, MAX_COLUMNS);
	gpu_shared_free(device, p->y, Y_BYTES(p->tokens));
	free(p->want);
	free(p->off);
}

/* h normed, in double. */
static void
product_x(const struct product *p, size_t token, uint32_t columns, double *ret)
{
	const float *h = p->h + token * MAX_COLUMNS;
	double squares = 0;

	for (uint32_t i = 0; i < columns; i++)
		squares += (double)h[i] * h[i];
	for (uint32_t i = 0; i < columns; i++)
		ret[i] = h[i] / sqrt(squares / columns + (double)EPSILON) * p->norm[i];
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
		product_x(p, t, columns, x);
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

enum { FROM_X, ADDED, NORMED };

static void
multiply(const struct cuda_matrices *m, const struct product *p, size_t token, uint32_t tokens,
	 int how)
{
	const struct cuda_norm norm = { p->norm, EPSILON };
	struct cuda_rows from = { p->h + token * MAX_COLUMNS, MAX_COLUMNS };
	struct cuda_rows to = { p->y + token * 2 * ROWS, 2 * ROWS };
	struct error err = { "" };
	int r = 0;

	if (how == NORMED) {
		r = cuda_multiply_normed(NULL, m, from, &norm, to, tokens, &err);
	} else {
		r = cuda_normed(NULL, from, &norm, m->columns, p->x, tokens, &err);
		if (!r)
			r = cuda_multiply(NULL, m, p->x, to, how == ADDED, tokens, &err);
	}
	if (!r)
		r = cuda_finish(NULL, &err);
	if (r)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
}

/* The largest part of what is allowed. */
static double
product_error(const struct product *p, double plus)
{
	double worst = 0;

	for (uint32_t i = 0; i < p->tokens * ROWS; i++) {
		double got = p->y[i / ROWS * 2 * ROWS + i % ROWS] - plus;
		double error = fabs(got - p->want[i]) / (p->off[i] + 1e-6 * fabs(plus));

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
			for (int how = FROM_X; how <= NORMED; how++) {
				for (uint32_t i = 0; i < TOKENS * 2 * ROWS; i++)
					p.y[i] = how == ADDED ? 0.5f : NAN;
				multiply(&m, &p, 0, TOKENS, how);
				worst = fmax(worst, product_error(&p, how == ADDED ? 0.5 : 0));
				assert_true(worst <= 1);
				for (uint32_t i = 0; i < TOKENS * 2 * ROWS; i++)
					if (i % (2 * ROWS) >= ROWS)
						assert_true(how == ADDED ? p.y[i] == 0.5f
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
	/* What is there before is 0. */
	static const int hows[] = { FROM_X, NORMED, ADDED, ADDED, ADDED, NORMED, FROM_X, NORMED };
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
				multiply(&m, &p, token, step, hows[s]);
			if (s == 0)
				memcpy(first, p.y, Y_BYTES(64));
			assert_memory_equal(first, p.y, Y_BYTES(tokens));
		}
	}
	free(first);
	product_close(&p);
}

/* Rows that a block has no room for whole, and more tokens than are multiplied at once. */
static void
bits_of_long_rows_do_not_depend_on_the_batch(void **state)
{
	const uint32_t tokens = 7;
	struct product p;
	float *first;

	(void)state;
	product_open(&p, tokens);
	first = malloc(Y_BYTES(tokens));
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);
		struct cuda_matrices m;
		uint64_t row_bytes;

		assert_true(type_row_bytes(info, MAX_COLUMNS, &row_bytes));
		for (uint32_t r = 0; r < ROWS; r++)
			gpu_random_row(info, p.weights + r * row_bytes, MAX_COLUMNS, &seed);
		m = one_matrix(p.weights, info->type, MAX_COLUMNS, row_bytes);
		memset(p.y, 0, Y_BYTES(tokens));
		for (uint32_t token = 0; token < tokens; token++)
			multiply(&m, &p, token, 1, FROM_X);
		memcpy(first, p.y, Y_BYTES(tokens));
		memset(p.y, 0, Y_BYTES(tokens));
		multiply(&m, &p, 0, tokens, FROM_X);
		assert_memory_equal(first, p.y, Y_BYTES(tokens));
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
			multiply(&one, &p, 0, TOKENS, FROM_X);
			for (size_t t = 0; t < TOKENS; t++)
				memcpy(apart + (2 * t + i) * ROWS, p.y + 2 * t * ROWS,
				       ROWS * sizeof(float));
		}
		for (int how = FROM_X; how <= NORMED; how += NORMED) {
			memset(p.y, 0xff, Y_BYTES(TOKENS));
			multiply(&m, &p, 0, TOKENS, how);
			assert_memory_equal(apart, p.y, Y_BYTES(TOKENS));
		}
	}
	product_close(&p);
}

/* A matrix that is multiplied at once, and in two parts. */
struct parts {
	uint32_t columns, all, first; /* rows, in all and of the first part */
	uint32_t at;                  /* how oddly it lies */
};

#define PARTS_COLUMNS 2048u
#define PARTS_ROOM 64u

static void
multiply_in_parts(const struct type_info *info, struct cuda_vectors x, struct parts parts)
{
	const uint32_t all = parts.all, first = parts.first;
	float *y = gpu_shared(device, 2 * all * sizeof(float));
	struct cuda_rows to = { y, all };
	struct cuda_matrices m;
	struct error err;
	uint64_t row_bytes;
	uint8_t *weights;

	assert_true(type_row_bytes(info, parts.columns, &row_bytes));
	weights = gpu_shared(device, all * row_bytes + PARTS_ROOM);
	for (uint32_t r = 0; r < all; r++)
		gpu_random_row(info, weights + parts.at + r * row_bytes, parts.columns, &seed);
	m = one_matrix(weights + parts.at, info->type, parts.columns, row_bytes);
	m.of[0].rows = all;
	assert_int_equal(cuda_multiply(NULL, &m, x, to, false, 1, &err), 0);
	m.of[0].rows = first;
	to.at = y + all;
	assert_int_equal(cuda_multiply(NULL, &m, x, to, false, 1, &err), 0);
	m.of[0].at = weights + parts.at + first * row_bytes;
	m.of[0].rows = all - first;
	to.at = y + all + first;
	assert_int_equal(cuda_multiply(NULL, &m, x, to, false, 1, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
	assert_memory_equal(y, y + all, all * sizeof(float));
	assert_true(y[0] != 0 && y[all - 1] != 0);
	gpu_shared_free(device, y, 2 * all * sizeof(float));
	gpu_shared_free(device, weights, all * row_bytes + PARTS_ROOM);
}

/* Many rows are multiplied two by a warp, very many piece by piece: of 132 processors from 16,896
 * on.  Those of Q6_K are read otherwise where they are whole 16 bytes. */
static void
bits_do_not_depend_on_how_many_rows_a_matrix_has(void **state)
{
	const struct cuda_norm norm = { gpu_shared(device, H_BYTES(1)), EPSILON };
	float *h = gpu_shared(device, H_BYTES(1));
	struct cuda_vectors x = gpu_vectors_open(device, 1, PARTS_COLUMNS);
	struct cuda_rows from = { h, PARTS_COLUMNS };
	struct error err;

	(void)state;
	for (uint32_t i = 0; i < PARTS_COLUMNS; i++) {
		h[i] = gpu_random(&seed);
		((float *)norm.weight)[i] = 1;
	}
	assert_int_equal(cuda_normed(NULL, from, &norm, PARTS_COLUMNS, x, 1, &err), 0);
	for (int t = 0; t < N_TYPES; t++) {
		const struct type_info *info = type_find(types[t]);

		multiply_in_parts(info, x, (struct parts){ 256, 4099, 2050, 2 });
		multiply_in_parts(info, x, (struct parts){ 256, 40963, 16000, 2 });
		if (info->type == TYPE_Q6_K)
			multiply_in_parts(info, x, (struct parts){ 2048, 17003, 8000, 0 });
	}
	gpu_vectors_close(device, &x, 1, PARTS_COLUMNS);
	gpu_shared_free(device, h, H_BYTES(1));
	gpu_shared_free(device, (void *)norm.weight, H_BYTES(1));
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_multiplies_as_its_unpacked_row_does),
		cmocka_unit_test(bits_depend_neither_on_the_batch_nor_on_where_a_matrix_lies),
		cmocka_unit_test(bits_of_long_rows_do_not_depend_on_the_batch),
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
