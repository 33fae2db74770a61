/* worker/heat.h */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/heat.h"

static const struct profile_shape shape = { 0x1234, 2, 3 };

static int
setup(void **state)
{
	struct heat_page *page = calloc(1, heat_bytes(&shape));

	*state = page;
	return heat_open(page, &shape) ? -1 : 0;
}

static int
teardown(void **state)
{
	free(*state);
	return 0;
}

static void
the_next_worker_finds_what_the_last_one_left(void **state)
{
	struct heat_page *page = *state;

	page->heat[5] = 7.5f;
	assert_true(heat_open(page, &shape));
	assert_true(page->heat[5] == 7.5f);
}

static void
another_models_heat_is_not_taken(void **state)
{
	const struct profile_shape other = { 0x1235, 2, 3 };
	struct heat_page *page = *state;

	page->heat[5] = 7.5f;
	assert_false(heat_open(page, &other));
	assert_true(page->heat[5] == 0);
}

static void
what_is_no_heat_is_not_taken(void **state)
{
	const float wrong[] = { NAN, INFINITY, -1 };
	struct heat_page *page = *state;

	for (uint32_t i = 0; i < 3; i++) {
		page->heat[2] = 3;
		page->heat[4] = wrong[i];
		assert_false(heat_open(page, &shape));
		assert_true(page->heat[2] == 0);
		assert_true(page->heat[4] == 0);
	}
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(the_next_worker_finds_what_the_last_one_left),
		RULE(another_models_heat_is_not_taken),
		RULE(what_is_no_heat_is_not_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
