/* loader/room.h: too little memory is refused with both numbers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "loader/available.h"
#include "loader/room.h"

#define GIB (1ull << 30)

static void
too_little_is_refused_with_need_and_room(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(room_check(3 * GIB, 3 * GIB, "m.gguf", &err), 0);
	assert_int_equal(room_check(3 * GIB + 1, 3 * GIB, "m.gguf", &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "m.gguf: needs 3073 MiB of memory, 3072 MiB are"));
	assert_int_equal(error_exit_code(-EOVERFLOW), EXIT_INPUT);
}

static void
a_machine_that_says_nothing_has_room(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(room_check(3 * GIB, AVAILABLE_UNKNOWN, "m.gguf", &err), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(too_little_is_refused_with_need_and_room),
		cmocka_unit_test(a_machine_that_says_nothing_has_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
