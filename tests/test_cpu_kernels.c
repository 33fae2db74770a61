/* Every kernel set that this CPU can run against sums in double over rows that plain C unpacked. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/random_rows.h"
#include "worker/cpu_kernels.h"

#define MAX_ELEMENTS 4096
#define MAX_ROWS 5
#define MAX_COLUMNS 64

static const uint32_t types[] = { TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0,
				  TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
static const uint32_t sizes[] = {
	1,  2,  7,   8,   15,  16,  17,  31,  32,  33,  63,   64,   65,
	96, 97, 128, 160, 191, 256, 288, 512, 768, 800, 1024, 2048, 4096
};

#define N_TYPES 8
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* The next set that this CPU can run. */
static const struct cpu_kernels *
next_set(uint32_t *index)
{
	const struct cpu_kernels *set;

	do
		set = cpu_kernels_get((*index)++);
	while (set && !cpu_kernels_usable(set));
	return set;
}

struct fixture {
	const struct type_info *info;
	uint32_t n, n_columns;
	uint64_t row_bytes;
	uint8_t *rows; /* exactly as long as the rows, at an odd address */
	uint8_t *rows_at;
	float *columns[MAX_COLUMNS];            /* each exactly n long */
	struct fixed_block *fixed[MAX_COLUMNS]; /* the same; NULL for rows of floats */
	float *results[MAX_COLUMNS];
	float *scratch;
};

static void
fixture_open(struct fixture *f, uint32_t type, uint32_t n, uint32_t n_columns)
{
	*f = (struct fixture){ .info = type_find(type), .n = n, .n_columns = n_columns };
	assert_true(type_row_bytes(f->info, n, &f->row_bytes));
	f->rows_at = malloc(MAX_ROWS * f->row_bytes + 1);
	f->rows = f->rows_at + 1;
	for (int r = 0; r < MAX_ROWS; r++)
		random_row(f->info, f->rows + (uint64_t)r * f->row_bytes, n);
	for (uint32_t c = 0; c < n_columns; c++) {
		f->columns[c] = malloc(n * sizeof(float));
		f->results[c] = malloc(MAX_ROWS * sizeof(float));
		for (uint32_t i = 0; i < n; i++)
			f->columns[c][i] = random_float();
		if (fixed_type_find(type)) {
			f->fixed[c] = calloc(fixed_blocks(n), sizeof(*f->fixed[c]));
			fixed_set(f->columns[c], 0, n, FIXED_TOP, f->fixed[c]);
		}
	}
	f->scratch = malloc((size_t)CPU_SCRATCH_ROWS * n * sizeof(float));
}

static void
fixture_close(struct fixture *f)
{
	for (uint32_t c = 0; c < f->n_columns; c++) {
		free(f->columns[c]);
		free(f->fixed[c]);
		free(f->results[c]);
	}
	free(f->rows_at);
	free(f->scratch);
}

/* Columns first .. first + n - 1 of the fixture. */
static void
run(const struct fixture *f, const struct cpu_kernels *set, uint32_t first, uint32_t n)
{
	struct cpu_dot dot = { .rows = f->rows,
			       .row_bytes = f->row_bytes,
			       .n_rows = MAX_ROWS,
			       .n = f->n,
			       .n_columns = n,
			       .x = (const float *const *)f->columns + first,
			       .fixed = (const struct fixed_block *const *)f->fixed + first,
			       .y = (float *const *)f->results + first,
			       .scratch = f->scratch };

	cpu_kernels_dot(set, f->info->type)(&dot);
}

/* How far a product may be from the exact one: the rounding of float sums, a few for each of a
 * partial sum's terms; and of each fixed-point number half a unit, and a little for the rounding of
 * top / most.  `size`: the sum of all parts' sizes. */
static double
allowed(const struct fixture *f, const float *row, uint32_t c, double size)
{
	double ret = size * (f->n / 128.0 + 8) * 0x1p-24;

	for (uint32_t i = 0; f->fixed[c] && i < f->n; i++)
		ret += 0.57 * fabs(row[i]) * f->fixed[c][i / 256].unit[i % 256 / 32];
	return ret;
}

/* |scale * quant| + |minimum| of each element of a row; of floats their size. */
static void
unpack_sizes(const struct fixture *f, const uint8_t *at, const float *row, float *ret)
{
	const struct fixed_type *type = fixed_type_find(f->info->type);
	struct fixed_weights weights;

	for (uint32_t i = 0; i < f->n; i++)
		ret[i] = fabsf(row[i]);
	for (uint32_t i = 0; type && type->kind == FIXED_MINIMUM && i < f->n; i++) {
		if (i % 256 == 0)
			type->unpack(at + i / 256 * f->info->block_bytes, 8, &weights);
		ret[i] = fabsf(row[i] + weights.minimum[i % 256 / 32]) +
			 fabsf(weights.minimum[i % 256 / 32]);
	}
}

static void
check_against_double(const struct fixture *f)
{
	float row[MAX_ELEMENTS], sizes_of[MAX_ELEMENTS];

	for (int r = 0; r < MAX_ROWS; r++) {
		const uint8_t *at = f->rows + (uint64_t)r * f->row_bytes;

		f->info->unpack(at, row, f->n / f->info->block_elements);
		unpack_sizes(f, at, row, sizes_of);
		for (uint32_t c = 0; c < f->n_columns; c++) {
			double sum = 0, size = 0;

			for (uint32_t i = 0; i < f->n; i++) {
				sum += (double)row[i] * f->columns[c][i];
				size += (double)sizes_of[i] * fabsf(f->columns[c][i]);
			}
			assert_true(fabs(f->results[c][r] - sum) <= allowed(f, row, c, size));
		}
	}
}

static void
products_agree_with_plain_sums(void **state)
{
	const struct cpu_kernels *set;
	uint32_t next = 0, n_sets = 0;

	(void)state;
	while ((set = next_set(&next))) {
		n_sets++;
		for (size_t i = 0; i < N_TYPES * N_SIZES; i++) {
			uint32_t n = sizes[i / N_TYPES];
			struct fixture f;

			if (n % type_find(types[i % N_TYPES])->block_elements)
				continue;
			random_begin(i);
			fixture_open(&f, types[i % N_TYPES], n, 7);
			run(&f, set, 0, 7);
			check_against_double(&f);
			fixture_close(&f);
		}
	}
	assert_true(n_sets >= 1);
}

static void
a_column_alone_has_the_bits_it_has_in_company(void **state)
{
	const struct cpu_kernels *set;
	uint32_t next = 0;

	(void)state;
	while ((set = next_set(&next))) {
		for (size_t i = 0; i < N_TYPES * N_SIZES; i++) {
			uint32_t n = sizes[i / N_TYPES];
			float alone[10][MAX_ROWS];
			struct fixture f;

			if (n % type_find(types[i % N_TYPES])->block_elements)
				continue;
			random_begin(i);
			fixture_open(&f, types[i % N_TYPES], n, 10);
			for (uint32_t c = 0; c < 10; c++) {
				run(&f, set, c, 1);
				memcpy(alone[c], f.results[c], sizeof(alone[c]));
			}
			for (uint32_t first = 0; first < 3; first++)
				for (uint32_t many = 2; first + many <= 10; many++) {
					run(&f, set, first, many);
					for (uint32_t c = first; c < first + many; c++)
						assert_memory_equal(f.results[c], alone[c],
								    sizeof(alone[c]));
				}
			fixture_close(&f);
		}
	}
}

static void
a_whole_batch_agrees_too(void **state)
{
	const struct cpu_kernels *set;
	uint32_t next = 0;

	(void)state;
	while ((set = next_set(&next))) {
		struct fixture f;

		random_begin(5);
		fixture_open(&f, TYPE_Q4_K, 768, MAX_COLUMNS);
		run(&f, set, 0, MAX_COLUMNS);
		check_against_double(&f);
		fixture_close(&f);
	}
}

static void
check_mix(const struct cpu_kernels *set, uint32_t n)
{
	float v[19 * 200], weights[19], y[201];

	for (uint32_t i = 0; i < 19 * n; i++)
		v[i] = random_float();
	for (uint32_t p = 0; p < 19; p++)
		weights[p] = random_float();
	y[n] = 7;
	set->mix(v, weights, 19, n, y);
	assert_true(y[n] == 7);
	for (uint32_t i = 0; i < n; i++) {
		double sum = 0;

		for (uint32_t p = 0; p < 19; p++)
			sum += (double)weights[p] * v[p * n + i];
		assert_true(fabs(y[i] - sum) < 1e-5);
	}
}

static void
mixes_values_by_their_weights(void **state)
{
	static const uint32_t dims[] = { 1, 7, 32, 33, 64, 72, 80, 96, 128, 200 };
	const struct cpu_kernels *set;
	uint32_t next = 0;

	(void)state;
	while ((set = next_set(&next)))
		for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
			check_mix(set, dims[i]);
}

static void
finds_sets_by_name_and_the_best_one(void **state)
{
	const struct cpu_kernels *set;

	(void)state;
	assert_non_null(cpu_kernels_find("c"));
	assert_null(cpu_kernels_find("sse9"));
	assert_ptr_equal(cpu_kernels_find(cpu_kernels_best()->name), cpu_kernels_best());
	assert_null(cpu_kernels_dot(cpu_kernels_find("c"), 3));
	for (uint32_t s = 0; (set = cpu_kernels_get(s)); s++) /* each knows each type */
		for (int t = 0; t < N_TYPES; t++)
			assert_non_null(cpu_kernels_dot(set, types[t]));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_agree_with_plain_sums),
		cmocka_unit_test(a_column_alone_has_the_bits_it_has_in_company),
		cmocka_unit_test(a_whole_batch_agrees_too),
		cmocka_unit_test(mixes_values_by_their_weights),
		cmocka_unit_test(finds_sets_by_name_and_the_best_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
