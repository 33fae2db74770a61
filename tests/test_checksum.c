/* common/checksum.h: the same bytes give the same checksum wherever they lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/checksum.h"

#define EXPERTS 4
#define MATRIX 600ull

static const char *const names[] = { "token_embd.weight", "blk.0.ffn_gate_exps.weight",
				     "blk.0.ffn_down_exps.weight", "output.weight" };

static struct arena_tensor
tensor(int which, uint64_t offset)
{
	struct arena_tensor t = { .offset = offset, .n_dims = 3, .dims = { 1, 1, 1, 1 } };
	bool experts = which == 1 || which == 2;

	snprintf(t.name, sizeof(t.name), "%s", names[which]);
	t.slice = experts;
	t.dims[2] = experts ? EXPERTS : 1;
	t.bytes = experts ? EXPERTS * MATRIX : which == 0 ? CHECKSUM_TRUNK_UNIT * 2 + 5 : 77;
	return t;
}

static void
fill(uint8_t *base, const struct arena_tensor *t)
{
	uint32_t x = (uint32_t)t->bytes;

	for (uint64_t i = 0; i < t->bytes; i++) {
		x = x * 1664525 + 1013904223;
		base[t->offset + i] = (uint8_t)(x >> 24);
	}
}

/* Checksums of the four tensors, listed in `order` with `gap` bytes between them. */
static void
sums(const int order[4], uint64_t gap, uint64_t ret[2], struct checksum_plan *plan)
{
	struct arena_tensor tensors[4];
	uint8_t *base = calloc(1, CHECKSUM_TRUNK_UNIT * 3 + 8 * gap);
	struct error err;
	uint64_t at = gap;

	assert_non_null(base);
	for (int i = 0; i < 4; i++) {
		tensors[i] = tensor(order[i], at);
		fill(base, &tensors[i]);
		at += tensors[i].bytes + gap;
	}
	assert_int_equal(checksum_plan_open(plan, tensors, 4, 2, &err), 0);
	for (uint64_t i = 0; i < plan->n_units; i++)
		plan->units[i].hash = checksum_unit_hash(&plan->units[i], base);
	ret[0] = checksum_slice(plan, 0);
	ret[1] = checksum_slice(plan, 1);
	free(base);
}

static void
order_and_place_of_tensors_do_not_matter(void **state)
{
	static const int one[4] = { 0, 1, 2, 3 }, other[4] = { 3, 2, 1, 0 };
	struct checksum_plan plan;
	uint64_t a[2], b[2];

	(void)state;
	sums(one, 0, a, &plan);
	checksum_plan_close(&plan);
	sums(other, 4096, b, &plan);
	checksum_plan_close(&plan);
	assert_true(a[0] == b[0] && a[1] == b[1]);
	assert_true(a[0] != a[1]);
	assert_true(checksum_whole(a, 2) == checksum_whole(b, 2));
}

static void
units_are_an_experts_matrix_or_a_mebibyte(void **state)
{
	static const int order[4] = { 0, 1, 2, 3 };
	struct checksum_plan plan;
	uint64_t ret[2];

	(void)state;
	sums(order, 0, ret, &plan);
	assert_int_equal(plan.n_units, 3 + 1 + 2 * EXPERTS);
	assert_int_equal(plan.first[0], 0);
	assert_int_equal(plan.first[1], 4);
	assert_int_equal(plan.first[2], 4 + 2 * EXPERTS);
	assert_int_equal(plan.units[0].bytes, 77); /* "output" before "token_embd" */
	assert_int_equal(plan.units[1].bytes, CHECKSUM_TRUNK_UNIT);
	assert_int_equal(plan.units[3].bytes, 5);
	for (uint64_t i = plan.first[1]; i < plan.first[2]; i++) {
		assert_int_equal(plan.units[i].bytes, MATRIX);
		assert_int_equal(plan.units[i].tensor, i < plan.first[1] + EXPERTS ? 2 : 1);
	}
	checksum_plan_close(&plan);
}

static void
units_cover_each_tensor_once(void **state)
{
	static const int order[4] = { 2, 0, 3, 1 };
	struct checksum_plan plan;
	uint64_t ret[2], seen[4] = { 0 };

	(void)state;
	sums(order, 64, ret, &plan);
	for (uint64_t i = 0; i < plan.n_units; i++) {
		struct arena_tensor t = tensor(order[plan.units[i].tensor], 0);

		assert_true(plan.units[i].slice == t.slice);
		seen[plan.units[i].tensor] += plan.units[i].bytes;
	}
	for (int i = 0; i < 4; i++)
		assert_int_equal(seen[i], tensor(order[i], 0).bytes);
	checksum_plan_close(&plan);
}

/* The same experts, side by side and as a pack has them. */
static void
a_stride_between_experts_does_not_matter(void **state)
{
	struct arena_tensor dense = tensor(1, 0), strided = dense;
	static uint8_t base[EXPERTS * MATRIX], wide[EXPERTS * 4096 + 100];
	struct checksum_plan one, other;
	struct error err;

	(void)state;
	fill(base, &dense);
	strided.offset = 100;
	strided.stride = 4096;
	for (int i = 0; i < EXPERTS; i++)
		memcpy(wide + 100 + i * 4096, base + i * MATRIX, MATRIX);
	assert_int_equal(checksum_plan_open(&one, &dense, 1, 2, &err), 0);
	assert_int_equal(checksum_plan_open(&other, &strided, 1, 2, &err), 0);
	assert_int_equal(other.n_units, EXPERTS);
	for (uint64_t i = 0; i < EXPERTS; i++)
		assert_true(checksum_unit_hash(&one.units[i], base) ==
			    checksum_unit_hash(&other.units[i], wide));
	checksum_plan_close(&one);
	checksum_plan_close(&other);
}

static void
one_changed_byte_changes_slice_and_whole(void **state)
{
	uint64_t hashes[2] = { 1, 2 }, changed[2] = { 1, 3 };
	struct checksum_unit units[2] = { { .hash = 5 }, { .hash = 6 } };
	uint64_t first[2] = { 0, 2 };
	struct checksum_plan plan = { .n_units = 2, .units = units, .n_slices = 1, .first = first };
	uint64_t before = checksum_slice(&plan, 0);

	(void)state;
	units[1].hash ^= 1;
	assert_true(checksum_slice(&plan, 0) != before);
	assert_true(checksum_whole(hashes, 2) != checksum_whole(changed, 2));
}

static void
experts_that_do_not_divide_the_tensor_are_refused(void **state)
{
	struct arena_tensor t = tensor(1, 0);
	struct checksum_plan plan;
	struct error err;

	(void)state;
	t.bytes++;
	assert_int_equal(checksum_plan_open(&plan, &t, 1, 2, &err), -EINVAL);
	t = tensor(1, 0);
	assert_int_equal(checksum_plan_open(&plan, &t, 1, 1, &err), -EINVAL);
	assert_non_null(strstr(err.text, "blk.0.ffn_gate_exps.weight"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(order_and_place_of_tensors_do_not_matter),
		cmocka_unit_test(units_are_an_experts_matrix_or_a_mebibyte),
		cmocka_unit_test(units_cover_each_tensor_once),
		cmocka_unit_test(a_stride_between_experts_does_not_matter),
		cmocka_unit_test(one_changed_byte_changes_slice_and_whole),
		cmocka_unit_test(experts_that_do_not_divide_the_tensor_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
