#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/progress.h"

#define SECOND 1000000000ull

static Hearth__State state;
static Hearth__Reader reader;
static Hearth__Pinning pinning;
static Hearth__Slice slices[4], *list[4];
static char bar[PROGRESS_BYTES];

static int
setup(void **unused)
{
	(void)unused;
	hearth__state__init(&state);
	hearth__reader__init(&reader);
	hearth__pinning__init(&pinning);
	state.phase = HEARTH__PHASE__PHASE_LOADING;
	for (uint32_t i = 0; i < 4; i++) {
		hearth__slice__init(&slices[i]);
		list[i] = &slices[i];
	}
	return 0;
}

static void
a_loader_shows_share_speed_and_time_left(void **unused)
{
	(void)unused;
	state.reader = &reader;
	reader.begin_ns = 10 * SECOND;
	reader.bytes = 2000000000;
	reader.total_bytes = 8000000000;
	assert_true(progress_bar(bar, &state, 12 * SECOND));
	assert_non_null(strstr(bar, "[#######.......................]  25 % of 7.45 GiB"));
	assert_non_null(strstr(bar, "1.00 GB/s, 6.0 s left"));
}

static void
a_loader_that_has_read_nothing_promises_nothing(void **unused)
{
	(void)unused;
	state.reader = &reader;
	reader.begin_ns = 10 * SECOND;
	reader.total_bytes = 8000000000;
	assert_true(progress_bar(bar, &state, 10 * SECOND));
	assert_null(strstr(bar, "left"));
	assert_non_null(strstr(bar, "  0 %"));
}

static void
other_stages_count_their_slices(void **unused)
{
	(void)unused;
	state.pinning = &pinning;
	state.n_slices = 4;
	state.slices = list;
	slices[0].state = slices[1].state = HEARTH__SLICE_STATE__SLICE_REGISTERED;
	slices[2].state = HEARTH__SLICE_STATE__SLICE_FILLED;
	assert_true(progress_bar(bar, &state, SECOND));
	assert_non_null(strstr(bar, " 50 % of 4 slices"));
}

static void
who_is_ready_or_knows_no_end_has_no_bar(void **unused)
{
	(void)unused;
	state.pinning = &pinning;
	assert_false(progress_bar(bar, &state, SECOND));
	state.reader = &reader;
	assert_false(progress_bar(bar, &state, SECOND));
	reader.total_bytes = 5;
	state.phase = HEARTH__PHASE__PHASE_READY;
	assert_false(progress_bar(bar, &state, SECOND));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_loader_shows_share_speed_and_time_left, setup),
		cmocka_unit_test_setup(a_loader_that_has_read_nothing_promises_nothing, setup),
		cmocka_unit_test_setup(other_stages_count_their_slices, setup),
		cmocka_unit_test_setup(who_is_ready_or_knows_no_end_has_no_bar, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
