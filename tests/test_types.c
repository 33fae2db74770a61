/* The plain C unpacking of each tensor type against blocks that the public gguf Python package
 * unpacked (tests/data/make_types.py), and the half-precision conversions over all their values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/types.h"

#define MAX_BYTES 65536

static size_t
read_data(const char *type, const char *what, void *ret)
{
	char path[128];
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "tests/data/types.%s.%s", type, what);
	file = fopen(path, "rb");
	assert_non_null(file);
	n = fread(ret, 1, MAX_BYTES, file);
	fclose(file);
	return n;
}

static void
equals_the_reference_bit_for_bit(void **state)
{
	static const uint32_t types[] = { TYPE_F32,  TYPE_F16,  TYPE_BF16, TYPE_Q8_0,
					  TYPE_Q4_0, TYPE_Q4_K, TYPE_Q5_K, TYPE_Q6_K };
	static uint8_t blocks[MAX_BYTES + 1];
	static float want[MAX_BYTES / 4], got[MAX_BYTES / 4];

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const struct type_info *info = type_find(types[i]);
		size_t bytes, n;

		assert_non_null(info);
		assert_int_equal(info->type, types[i]);
		bytes = read_data(info->name, "blocks", blocks + 1); /* at an odd address */
		n = read_data(info->name, "floats", want) / sizeof(float);
		assert_true(n >= 256);
		assert_int_equal(bytes % info->block_bytes, 0);
		assert_int_equal(bytes / info->block_bytes * info->block_elements, n);
		memset(got, 0xff, sizeof(got));
		info->unpack(blocks + 1, got, bytes / info->block_bytes);
		assert_memory_equal(got, want, n * sizeof(float));
		assert_true(isnan(got[n])); /* and not one more */
	}
}

static void
unpacks_no_blocks_to_nothing(void **state)
{
	float out = 1;

	(void)state;
	type_find(TYPE_Q4_K)->unpack(&out, &out, 0);
	assert_true(out == 1);
}

static void
does_not_know_other_types(void **state)
{
	(void)state;
	assert_null(type_find(3)); /* Q4_1 */
	assert_null(type_find(31));
	assert_null(type_find(UINT32_MAX));
	assert_string_equal(type_supported_names(), "F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K");
}

static void
a_row_is_whole_blocks_and_fits_64_bits(void **state)
{
	const struct type_info *q4_k = type_find(TYPE_Q4_K);
	uint64_t bytes = 7;

	(void)state;
	assert_true(type_row_bytes(q4_k, 512, &bytes));
	assert_int_equal(bytes, 288);
	assert_false(type_row_bytes(q4_k, 500, &bytes));
	assert_false(type_row_bytes(type_find(TYPE_Q8_0), 31, &bytes));
	assert_false(type_row_bytes(type_find(TYPE_F32), UINT64_MAX / 2, &bytes));
	assert_int_equal(bytes, 288);
	assert_true(type_row_bytes(type_find(TYPE_BF16), 3, &bytes));
	assert_int_equal(bytes, 6);
}

/* What a half means by its definition. */
static double
half_value(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double mantissa = half & 1023;
	double value = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);

	return half & 0x8000 ? -value : value;
}

static void
every_half_becomes_its_float_and_comes_back(void **state)
{
	(void)state;
	for (uint32_t half = 0; half < 65536; half++) {
		float value = type_half_to_float((uint16_t)half);

		if ((half & 0x7c00) != 0x7c00) {
			assert_true(value == (float)half_value((uint16_t)half));
			assert_int_equal(signbit(value) != 0, half >> 15);
		} else if (half & 1023) {
			assert_true(isnan(value));
			assert_true(isnan(type_half_to_float(type_float_to_half(value))));
			continue;
		} else {
			assert_true(isinf(value));
		}
		assert_int_equal(type_float_to_half(value), half);
	}
}

static void
rounds_to_the_nearest_half_and_ties_to_even(void **state)
{
	(void)state;
	for (uint16_t half = 0; half < 0x7bff; half++) {
		float low = (float)half_value(half), high = (float)half_value(half + 1);
		float middle = (low + high) / 2; /* exact */

		assert_int_equal(type_float_to_half(middle), half % 2 ? half + 1 : half);
		assert_int_equal(type_float_to_half(nextafterf(middle, 0)), half);
		assert_int_equal(type_float_to_half(-nextafterf(middle, 1e9f)),
				 (half + 1) | 0x8000);
	}
	assert_int_equal(type_float_to_half(65519.996f), 0x7bff);
	assert_int_equal(type_float_to_half(65520), 0x7c00);
	assert_int_equal(type_float_to_half(-1e38f), 0xfc00);
	assert_int_equal(type_float_to_half(0x1p-25f), 0);
	assert_int_equal(type_float_to_half(1e-45f), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equals_the_reference_bit_for_bit),
		cmocka_unit_test(unpacks_no_blocks_to_nothing),
		cmocka_unit_test(does_not_know_other_types),
		cmocka_unit_test(a_row_is_whole_blocks_and_fits_64_bits),
		cmocka_unit_test(every_half_becomes_its_float_and_comes_back),
		cmocka_unit_test(rounds_to_the_nearest_half_and_ties_to_even),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
