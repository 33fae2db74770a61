/* Which stages can be missed, and which cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/away.h"

static Hearth__State stages[N_STAGES], *heard[N_STAGES];
static Hearth__Arena arena;
static Hearth__Slice slices[2], *list[] = { &slices[0], &slices[1] };
static struct error why;

/* All are heard, the pinner has the whole arena. */
static int
setup(void **state)
{
	(void)state;
	hearth__arena__init(&arena);
	arena.path = (char *)"/proc/1/fd/9";
	for (uint32_t i = 0; i < N_STAGES; i++) {
		hearth__state__init(&stages[i]);
		stages[i].stage = (char *)stage_names[i];
		stages[i].reason = (char *)"out of luck";
		heard[i] = &stages[i];
	}
	for (uint32_t i = 0; i < 2; i++) {
		hearth__slice__init(&slices[i]);
		slices[i].name = (char *)"layer";
		slices[i].checksum = 1;
	}
	stages[PINNER].arena = &arena;
	stages[PINNER].slices = list;
	stages[PINNER].n_slices = 2;
	return 0;
}

static void
a_stage_that_fails_and_comes_again_is_waited_for(void **state)
{
	(void)state;
	stages[WORKER].phase = HEARTH__PHASE__PHASE_FAILED;
	assert_false(away_find(heard, &why));
	memset(heard, 0, sizeof(heard)); /* nobody is heard */
	assert_false(away_find(heard, &why));
}

static void
a_worker_or_a_pinner_that_stays_away_is_missed(void **state)
{
	(void)state;
	stages[WORKER].stays_away = true;
	assert_true(away_find(heard, &why));
	assert_string_equal(why.text, "the worker has left and stays away: out of luck; once that "
				      "is mended: ./run.sh restart worker");
	stages[PINNER].stays_away =
	    true; /* what is before it in the order of the data comes first */
	assert_true(away_find(heard, &why));
	assert_non_null(strstr(why.text, "the pinner has left"));
}

static void
a_loader_is_not_missed_where_the_pinner_has_all_it_read(void **state)
{
	(void)state;
	stages[LOADER].stays_away = true;
	assert_false(away_find(heard, &why));
	heard[WORKER] = NULL; /* starts again */
	assert_false(away_find(heard, &why));
	heard[PINNER] = NULL; /* it is not known yet what it has */
	assert_false(away_find(heard, &why));
}

static void
a_loader_is_missed_where_something_is_still_to_be_read(void **state)
{
	(void)state;
	stages[LOADER].stays_away = true;
	slices[1].checksum = 0;
	assert_true(away_find(heard, &why));
	assert_non_null(strstr(why.text, "restart loader"));
	slices[1].checksum = 1;
	slices[1].name = (char *)"window"; /* of a resident budget */
	assert_true(away_find(heard, &why));
	slices[1].name = (char *)"layer";
	stages[PINNER].arena = NULL; /* restarted: it waits for the loader's */
	assert_true(away_find(heard, &why));
}

#define RULE(test) cmocka_unit_test_setup(test, setup)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_stage_that_fails_and_comes_again_is_waited_for),
		RULE(a_worker_or_a_pinner_that_stays_away_is_missed),
		RULE(a_loader_is_not_missed_where_the_pinner_has_all_it_read),
		RULE(a_loader_is_missed_where_something_is_still_to_be_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
