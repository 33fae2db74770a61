/* loader/window.h: what stays in a budget's window. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loader/window.h"

static struct window window;

static int
setup(void **state)
{
	(void)state;
	return window_open(&window, 3, 10);
}

static int
teardown(void **state)
{
	(void)state;
	window_close(&window);
	return 0;
}

static uint32_t
take(uint32_t expert, bool want_fresh)
{
	bool fresh;
	uint32_t slot = window_take(&window, expert, &fresh);

	assert_int_equal(fresh, want_fresh);
	return slot;
}

static void
the_one_unused_for_longest_makes_room(void **state)
{
	uint32_t two;

	(void)state;
	for (uint32_t expert = 1; expert <= 3; expert++) {
		window_begin(&window);
		take(expert, true);
	}
	window_begin(&window);
	take(1, false);
	two = window.slot_of[2];
	window_begin(&window);
	assert_int_equal(take(4, true), two);
	assert_int_equal(window.slot_of[2], WINDOW_NONE);
	take(1, false);
	take(3, false);
}

static void
what_this_fetch_got_makes_room_for_nothing(void **state)
{
	bool fresh;

	(void)state;
	window_begin(&window);
	for (uint32_t expert = 1; expert <= 3; expert++)
		assert_int_not_equal(take(expert, true), WINDOW_NONE);
	assert_int_equal(window_take(&window, 4, &fresh), WINDOW_NONE);
	take(2, false);
}

static void
what_did_not_come_is_fresh_the_next_time(void **state)
{
	(void)state;
	window_begin(&window);
	take(5, true);
	window_forget(&window, 5);
	window_forget(&window, 6);
	window_begin(&window);
	take(5, true);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_one_unused_for_longest_makes_room, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_this_fetch_got_makes_room_for_nothing, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_did_not_come_is_fresh_the_next_time, setup,
						teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
