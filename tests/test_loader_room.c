/* loader/room.h: too little memory is refused with both numbers and what would fit. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loader/room.h"

#define GIB (1ull << 30)

static int
check(uint64_t bytes, uint64_t floor, uint64_t there, struct error *err)
{
	const struct room_need need = { .model = "m.gguf", .bytes = bytes, .floor = floor };
	const struct available available = { .bytes = there, .limit = "/sys/fs/cgroup/a" };

	return room_check(&need, &available, err);
}

static void
too_little_is_refused_with_need_and_room(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(check(3 * GIB, 0, 3 * GIB, &err), 0);
	assert_int_equal(check(3 * GIB + 1, 0, 3 * GIB, &err), -EOVERFLOW);
	assert_string_equal(err.text, "m.gguf: needs 3073 MiB of memory, 3072 MiB are available "
				      "(/sys/fs/cgroup/a): a smaller model or quant would fit");
	assert_int_equal(error_exit_code(-EOVERFLOW), EXIT_INPUT);
}

static void
a_budget_that_fits_is_named(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(check(20 * GIB, 2 * GIB, 12 * GIB, &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "--resident-gib 10 would fit"));
	assert_int_equal(check(20 * GIB, 2 * GIB, 3 * GIB - 1, &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "a smaller model"));
	assert_int_equal(check(20 * GIB, 4 * GIB, 3 * GIB, &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "a smaller model"));
}

static void
a_machine_that_says_nothing_has_room(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(check(3 * GIB, 0, AVAILABLE_UNKNOWN, &err), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_little_is_refused_with_need_and_room),
		cmocka_unit_test(a_budget_that_fits_is_named),
		cmocka_unit_test(a_machine_that_says_nothing_has_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
