/* The CPU's products in the GPU's form against the GPU's kernels: bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/gpu.h"
#include "tests/gpu_vectors.h"
#include "worker/cpu_lanes.h"
#include "worker/cuda_kernels.h"

#define ROWS 21u

static struct device *device;
static uint64_t seed = 5;

static const uint32_t types[] = { TYPE_Q8_0, TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
static const uint32_t columns_of[] = { 32, 96, 160, 256, 288, 768, 1024, 1312, 2048, 2304 };

/* Of a random vector. */
static struct cuda_vectors
vector_open(uint32_t columns)
{
	struct cuda_vectors h = gpu_vectors_open(device, 1, columns);
	struct cuda_vectors x = gpu_vectors_open(device, 1, columns);
	float *weight = gpu_shared(device, columns * sizeof(float));
	struct cuda_norm norm = { weight, 1e-6f };
	struct error err = { "" };

	for (uint32_t i = 0; i < columns; i++) {
		h.rows.at[i] = gpu_random(&seed) * (i % 97 == 0 ? 30.0f : 1.0f);
		weight[i] = i / 16 % 7 == 3 ? 0 : gpu_random(&seed) + 1.5f;
	}
	assert_int_equal(cuda_normed(NULL, h.rows, &norm, columns, x, 1, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
	gpu_shared_free(device, weight, columns * sizeof(float));
	gpu_vectors_close(device, &h, 1, columns);
	return x;
}

static void
by_the_gpu(const struct cuda_vectors *x, const struct lanes_rows *rows, float *y)
{
	struct cuda_matrices m = { .of = { { rows->rows, rows->row_bytes, rows->type, ROWS } },
				   .n = 1,
				   .columns = rows->columns };
	struct cuda_rows to = { y, ROWS };
	struct error err = { "" };

	assert_int_equal(cuda_multiply(NULL, &m, *x, to, false, 1, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
}

/* By each set, the rows at an odd address too. */
static void
by_the_cpu(struct lanes_rows rows, const float *want)
{
	uint64_t bytes = ROWS * rows.row_bytes;
	uint8_t *odd = malloc(bytes + 1);
	const uint8_t *at[] = { rows.rows, odd + 1 };
	const struct lanes_kernels *set;
	float y[ROWS];

	memcpy(odd + 1, rows.rows, bytes);
	rows.y = y;
	for (uint32_t i = 0; (set = lanes_kernels_get(i)) != NULL; i++)
		for (int o = 0; o < 2 && lanes_kernels_usable(set); o++) {
			rows.rows = at[o];
			memset(y, 0x7f, sizeof(y));
			set->rows(&rows);
			assert_memory_equal(y, want, sizeof(y));
		}
	free(odd);
}

static void
one_product(uint32_t type, uint32_t columns)
{
	const struct type_info *info = type_find(type);
	struct lanes_block *x = aligned_alloc(64, lanes_blocks(columns) * sizeof(*x));
	float *y = gpu_shared(device, ROWS * sizeof(float));
	struct lanes_rows rows = { .type = type, .columns = columns, .n_rows = ROWS, .x = x };
	struct cuda_vectors vector;
	uint8_t *weights;

	if (columns % info->block_elements == 0) {
		vector = vector_open(columns);
		assert_true(type_row_bytes(info, columns, &rows.row_bytes));
		weights = gpu_shared(device, ROWS * rows.row_bytes);
		for (uint32_t r = 0; r < ROWS; r++)
			gpu_random_row(info, weights + r * rows.row_bytes, columns, &seed);
		rows.rows = weights;
		by_the_gpu(&vector, &rows, y);
		memset(x, 0xff, lanes_blocks(columns) * sizeof(*x));
		lanes_set(type, (const void *)vector.fixed.at, columns, x);
		by_the_cpu(rows, y);
		gpu_shared_free(device, weights, ROWS * rows.row_bytes);
		gpu_vectors_close(device, &vector, 1, columns);
	}
	gpu_shared_free(device, y, ROWS * sizeof(float));
	free(x);
}

static void
a_product_has_the_gpu_s_bits_in_every_set(void **state)
{
	(void)state;
	assert_int_equal(sizeof(struct lanes_fixed), CUDA_FIXED_BLOCK_BYTES);
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (size_t c = 0; c < sizeof(columns_of) / sizeof(columns_of[0]); c++)
			one_product(types[t], columns_of[c]);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_product_has_the_gpu_s_bits_in_every_set),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
