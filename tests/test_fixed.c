/* Fixed-point vectors and their products: the format in plain C against its own words, and every
 * vector set against plain C, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/random_rows.h"
#include "worker/cpu_kernels.h"

#define MAX_COLUMNS 2048u
#define MAX_BLOCKS (MAX_COLUMNS / FIXED_COLUMNS)

static const uint32_t types[] = { TYPE_Q8_0, TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
static const uint32_t sizes[] = { 32, 64, 160, 224, 256, 288, 512, 768, 1056, 2048 };

#define N_TYPES (sizeof(types) / sizeof(types[0]))
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static int32_t
number_at(const struct fixed_block *blocks, uint32_t i)
{
	const struct fixed_block *block = blocks + i / FIXED_COLUMNS;

	i %= FIXED_COLUMNS;
	return block->high[i] * 16384 + block->middle[i] * 128 + block->low[i];
}

static void
a_number_is_within_half_a_unit(void **state)
{
	static const float tops[] = { FIXED_TOP, 32512.0f };
	struct fixed_block block = { 0 };
	float x[FIXED_COLUMNS];

	(void)state;
	for (int round = 0; round < 200; round++) {
		float top = tops[round % 2], scale = ldexpf(1, round % 90 - 60);
		int32_t sum = 0;

		for (uint32_t i = 0; i < FIXED_COLUMNS; i++)
			x[i] = random_float() * scale;
		fixed_set(x, 0, FIXED_COLUMNS, top, &block);
		for (uint32_t i = 0; i < FIXED_COLUMNS; i++) {
			double unit = block.unit[i / 32], v = number_at(&block, i);

			assert_true(fabs(x[i] - unit * v) <= 0.57 * unit);
			assert_true(fabs(v) <= top);
			assert_in_range(block.low[i] + 64, 0, 127);
			assert_in_range(block.middle[i] + 64, 0, 127);
			assert_in_range(block.high[i] + 32, 0, 64);
			sum += number_at(&block, i);
			if (i % 32 == 31) {
				assert_int_equal(block.sum[i / 32], sum);
				assert_int_equal(block.halves[i / 16] + block.halves[i / 16 - 1],
						 sum);
				assert_true(block.base[i / 32] == -block.unit[i / 32] * (float)sum);
				sum = 0;
			}
		}
	}
}

static void
a_group_of_nothing_or_no_numbers_has_none(void **state)
{
	struct fixed_block block = { 0 };
	float x[FIXED_COLUMNS] = { 0 };

	(void)state;
	x[32] = FIXED_LEAST / 2;
	x[64] = FIXED_LEAST;
	x[96] = INFINITY;
	x[97] = 1;
	x[159] = -NAN;
	x[160] = 3e38f;
	fixed_set(x, 0, FIXED_COLUMNS, FIXED_TOP, &block);
	for (uint32_t i = 0; i < FIXED_COLUMNS; i++)
		assert_int_equal(number_at(&block, i), i == 64 || i == 160 ? (int)FIXED_TOP : 0);
	assert_true(block.unit[0] == 0 && block.unit[1] == 0 && block.unit[2] > 0);
	assert_true(isnan(block.unit[3]) && isnan(block.unit[4]) && isfinite(block.unit[5]));
}

/* A part of a vector is set without a look at the rest. */
static void
a_vector_is_set_in_parts(void **state)
{
	struct fixed_block whole[2] = { 0 }, parts[2] = { 0 };
	float x[512];

	(void)state;
	for (uint32_t i = 0; i < 512; i++)
		x[i] = random_float();
	fixed_set(x, 0, 512, FIXED_TOP, whole);
	fixed_set(x + 96, 96, 416, FIXED_TOP, parts);
	fixed_set(x, 0, 96, FIXED_TOP, parts);
	assert_memory_equal(whole, parts, sizeof(whole));
}

static void
every_set_makes_the_same_numbers(void **state)
{
	static const float odd[] = { 0, -0.0f, FIXED_LEAST, 1e-38f, 3e38f, INFINITY, -INFINITY };
	const struct cpu_kernels *set;
	float x[MAX_COLUMNS];

	(void)state;
	for (uint32_t i = 0; i < MAX_COLUMNS; i++) {
		x[i] = ldexpf(random_float(), (int)(i / 32 * 4) - 126);
		if (i % 97 == 0)
			x[i] = odd[i / 97 % 7];
	}
	for (uint32_t s = 0; (set = cpu_kernels_get(s)); s++) {
		static struct fixed_block want[MAX_BLOCKS], got[MAX_BLOCKS];

		if (!cpu_kernels_usable(set))
			continue;
		fixed_set(x, 0, MAX_COLUMNS, FIXED_TOP, want);
		set->fix(x, 0, MAX_COLUMNS, FIXED_TOP, got);
		assert_memory_equal(got, want, sizeof(want));
	}
}

static void
unpacked_weights_are_those_of_the_type(void **state)
{
	(void)state;
	for (size_t t = 0; t < N_TYPES; t++) {
		const struct fixed_type *type = fixed_type_find(types[t]);
		const struct type_info *info = type_find(types[t]);
		struct fixed_weights weights = { 0 };
		uint8_t row[8 * 34];
		float want[256];

		random_row(info, row, 256);
		info->unpack(row, want, 256 / info->block_elements);
		type->unpack(row, 8, &weights);
		for (uint32_t i = 0; i < 256; i++) {
			uint32_t at = i / (type->kind == FIXED_HALVES ? 16 : 32);
			float value = weights.scale[at] * (float)(weights.quant[i] - type->centre);

			if (type->kind == FIXED_MINIMUM)
				value -= weights.minimum[at];
			assert_true(value == want[i]);
		}
	}
	assert_null(fixed_type_find(TYPE_F16));
}

/* Rows of a type against 6 columns: all sets, one column and several at once. */
static void
check_product(const struct type_info *info, const uint8_t *rows, uint32_t n, const float *x)
{
	const struct fixed_type *type = fixed_type_find(info->type);
	static struct fixed_block fixed[6][MAX_BLOCKS];
	const struct fixed_block *at[6];
	float results[6][3], *y[6];
	const struct cpu_kernels *set;
	struct cpu_dot dot = { .rows = rows, .n_rows = 3, .n = n, .fixed = at, .y = y };

	assert_true(type_row_bytes(info, n, &dot.row_bytes));
	memset(fixed, 0, sizeof(fixed));
	for (uint32_t c = 0; c < 6; c++) {
		fixed_set(x + c * 32, 0, n, FIXED_TOP, fixed[c]);
		at[c] = fixed[c];
		y[c] = results[c];
	}
	for (uint32_t i = 0; (set = cpu_kernels_get(i / 6)); i++) {
		if (!cpu_kernels_usable(set))
			continue;
		dot.n_columns = i % 6 + 1;
		cpu_kernels_dot(set, info->type)(&dot);
		for (uint32_t c = 0; c < dot.n_columns; c++)
			for (uint32_t r = 0; r < 3; r++) {
				float want = fixed_dot(type, rows + r * dot.row_bytes, n, fixed[c]);

				assert_memory_equal(&results[c][r], &want, sizeof(want));
			}
	}
}

static void
every_set_has_the_bits_of_plain_c(void **state)
{
	float x[MAX_COLUMNS + 6 * 32];

	(void)state;
	for (size_t i = 0; i < N_TYPES * N_SIZES; i++) {
		const struct type_info *info = type_find(types[i % N_TYPES]);
		uint32_t n = sizes[i / N_TYPES];
		uint64_t row_bytes;
		uint8_t *rows;

		if (n % info->block_elements)
			continue;
		for (uint32_t j = 0; j < n + 6 * 32; j++)
			x[j] = random_float();
		assert_true(type_row_bytes(info, n, &row_bytes));
		rows = malloc(3 * row_bytes); /* exactly as long as the rows */
		for (int r = 0; r < 3; r++)
			random_row(info, rows + r * row_bytes, n);
		check_product(info, rows, n, x);
		free(rows);
	}
}

/* The greatest sums there can be: no set may saturate or wrap. */
static void
extremes_fit(void **state)
{
	static const uint8_t bytes[] = { 0x00, 0x7f, 0x80, 0xff };
	uint8_t rows[3 * 8 * 34];
	float x[256 + 6 * 32];

	(void)state;
	for (size_t i = 0; i < N_TYPES * 4 * 3; i++) {
		const struct type_info *info = type_find(types[i % N_TYPES]);
		uint32_t bytes_a_row = 256 / info->block_elements * info->block_bytes;
		uint16_t one = type_float_to_half(1);

		for (uint32_t j = 0; j < 256 + 6 * 32; j++) /* all +, all -, by turns */
			x[j] = (i / N_TYPES / 4 + j * (i / N_TYPES / 8)) % 2 ? -1.0f : 1.0f;
		memset(rows, bytes[i / N_TYPES % 4], sizeof(rows));
		for (uint32_t at = 0; at < 3 * bytes_a_row; at += info->block_bytes) {
			memcpy(rows + at + (info->type == TYPE_Q6_K ? 208 : 0), &one, 2);
			if (info->type == TYPE_Q4_K || info->type == TYPE_Q5_K)
				memcpy(rows + at + 2, &one, 2);
		}
		check_product(info, rows, 256, x);
	}
}

/* What is not a number shows in the product: no weight hides it. */
static void
no_number_gives_no_number(void **state)
{
	float x[256] = { 1 }, results[1], *y = results;
	struct fixed_block block = { 0 };
	const struct fixed_block *at = &block;
	uint8_t row[8 * 34] = { 0 };
	const struct cpu_kernels *set;

	(void)state;
	x[40] = INFINITY;
	fixed_set(x, 0, 256, FIXED_TOP, &block);
	for (uint32_t i = 0; (set = cpu_kernels_get(i / N_TYPES)); i++) {
		const struct type_info *info = type_find(types[i % N_TYPES]);
		struct cpu_dot dot = {
			.rows = row, .n_rows = 1, .n = 256, .n_columns = 1, .fixed = &at, .y = &y
		};

		if (!cpu_kernels_usable(set))
			continue;
		dot.row_bytes = 256 / info->block_elements * info->block_bytes;
		cpu_kernels_dot(set, info->type)(&dot);
		assert_true(isnan(results[0]));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_number_is_within_half_a_unit),
		cmocka_unit_test(a_group_of_nothing_or_no_numbers_has_none),
		cmocka_unit_test(a_vector_is_set_in_parts),
		cmocka_unit_test(every_set_makes_the_same_numbers),
		cmocka_unit_test(unpacked_weights_are_those_of_the_type),
		cmocka_unit_test(every_set_has_the_bits_of_plain_c),
		cmocka_unit_test(extremes_fit),
		cmocka_unit_test(no_number_gives_no_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
