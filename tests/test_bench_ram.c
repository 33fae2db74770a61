#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/bench_ram.h"

#define BYTES (8u << 20)

static void
a_range_is_read_and_let_go(void **state)
{
	void *at = bench_ram_map(BYTES);

	(void)state;
	assert_non_null(at);
	assert_true(bench_ram_rate(at, BYTES, 1) > 0);
	assert_true(bench_ram_rate(at, BYTES, 5) > 0);
	bench_ram_unmap(at, BYTES);
}

static void
reading_beside_something_else_ends_when_it_is_told_to(void **state)
{
	void *at = bench_ram_map(BYTES);
	struct bench_ram *ram;
	struct error err;

	(void)state;
	assert_non_null(at);
	assert_int_equal(bench_ram_begin(&ram, at, BYTES, 3, &err), 0);
	assert_true(bench_ram_end(ram) >= 0);
	bench_ram_unmap(at, BYTES);
}

static void
no_threads_and_less_than_a_piece_are_refused(void **state)
{
	struct bench_ram *ram;
	struct error err;
	char little[64] = "";

	(void)state;
	assert_true(bench_ram_begin(&ram, little, sizeof(little), 1, &err) < 0);
	assert_true(bench_ram_begin(&ram, little, BYTES, 0, &err) < 0);
	assert_true(bench_ram_rate(little, sizeof(little), 1) < 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_range_is_read_and_let_go),
		cmocka_unit_test(reading_beside_something_else_ends_when_it_is_told_to),
		cmocka_unit_test(no_threads_and_less_than_a_piece_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
