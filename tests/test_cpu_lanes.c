/* What lies between an expert's halves, in the GPU's form: each set against the others, and silu
 * against double. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "tests/random_rows.h"
#include "worker/cpu_lanes.h"
#include "worker/silu.h"

static void
silu_is_that_of_double(void **state)
{
	(void)state;
	for (int i = -870000; i <= 870000; i += 37) {
		float x = (float)i * 1e-4f;
		double want = (double)x / (1 + exp(-(double)x));

		assert_true(fabs(silu(x) - want) <= 3e-7 * fabs(want));
	}
}

static void
silu_of_what_is_far_off_is_a_number(void **state)
{
	(void)state;
	assert_true(silu(-1e30f) <= 0 && isfinite(silu(-1e30f)));
	assert_true(silu(-500) <= 0 && silu(-500) > -1e-30f);
	assert_true(silu(1e30f) == 1e30f);
	assert_true(silu(0) == 0);
	assert_true(isnan(silu(NAN)));
}

/* 48 columns, behind the middle of a block. */
static void
make_act(const struct lanes_kernels *set, const float *gate, const float *up,
	 struct lanes_fixed *ret)
{
	struct lanes_act act = { .gate = gate, .up = up, .weight = 0.3f, .n = 32, .first = 128 };

	memset(ret, 0, sizeof(*ret));
	set->act(&act, ret);
	act = (struct lanes_act){ gate + 32, up + 32, 0.3f, 16, 160 };
	set->act(&act, ret);
}

static void
column_is(const struct lanes_fixed *fixed, uint32_t column, float x)
{
	uint32_t place = column ^ 112;
	float unit = fixed->group[column / 16].unit;
	int v = fixed->low[place] + 256 * fixed->high[place];

	assert_true(fabsf((float)v * unit - x) <= 0.51f * unit);
}

static void
act_is_the_same_in_every_set(void **state)
{
	const struct lanes_kernels *set;
	struct lanes_fixed first, other;
	float gate[48], up[48];
	uint32_t usable = 0;

	(void)state;
	random_begin(9);
	for (int i = 0; i < 48; i++) {
		gate[i] = 8 * random_float();
		up[i] = i / 16 == 1 ? 0 : random_float();
	}
	for (uint32_t i = 0; (set = lanes_kernels_get(i)) != NULL; i++) {
		if (!lanes_kernels_usable(set))
			continue;
		make_act(set, gate, up, usable++ == 0 ? &first : &other);
		if (usable > 1)
			assert_memory_equal(&first, &other, sizeof(first));
	}
	for (uint32_t i = 0; usable > 0 && i < 48; i++)
		column_is(&first, 128 + i, silu(gate[i]) * up[i] * 0.3f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(silu_is_that_of_double),
		cmocka_unit_test(silu_of_what_is_far_off_is_a_number),
		cmocka_unit_test(act_is_the_same_in_every_set),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
