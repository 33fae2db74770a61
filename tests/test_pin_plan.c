/* The plan of registration: which slice is next, what is over the cap, when it has ended. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "pinner/pin_plan.h"

#define GIB (1ull << 30)
#define MAX_SLICES 6

static struct arena_slice place[MAX_SLICES];
static struct pin_plan plan;

/* Slices of so many bytes, one after the other; 0 bytes is a slice too. */
static void
open_plan(enum pin_order order, uint64_t cap, uint32_t n, const uint64_t *bytes)
{
	struct pin_config config = { .order = order, .capped = cap != UINT64_MAX, .cap = cap };
	uint64_t at = ARENA_SLICE_ALIGN;

	for (uint32_t i = 0; i < n; i++) {
		place[i] = (struct arena_slice){ .offset = at, .bytes = bytes[i] };
		at += bytes[i] + ARENA_SLICE_ALIGN;
	}
	assert_int_equal(pin_plan_open(&plan, &config, place, n), 0);
}

static int
close_plan(void **state)
{
	(void)state;
	pin_plan_close(&plan);
	return 0;
}

/* Registers all that is due; returns how many slices were. */
static uint32_t
register_due(void)
{
	uint32_t n = 0, i;

	while ((i = pin_plan_next(&plan)) < plan.n) {
		pin_plan_registered(&plan, i);
		n++;
	}
	return n;
}

static void
stops_before_the_slice_over_the_cap(void **state)
{
	static const struct {
		uint64_t cap, bytes[4];
		uint32_t prefix;
	} rows[] = {
		{ UINT64_MAX, { 1 * GIB, 2 * GIB, 2 * GIB, 2 * GIB }, 4 },
		{ 7 * GIB, { 1 * GIB, 2 * GIB, 2 * GIB, 2 * GIB }, 4 },
		{ 7 * GIB - 1, { 1 * GIB, 2 * GIB, 2 * GIB, 2 * GIB }, 3 },
		{ 3 * GIB, { 1 * GIB, 2 * GIB, 2 * GIB, 2 * GIB }, 2 },
		{ 4 * GIB, { 1 * GIB, 2 * GIB, 2 * GIB, 1 * GIB }, 2 }, /* a prefix, not a pick */
		{ 1 * GIB - 1, { 1 * GIB, 4096, 4096, 4096 }, 0 },
		{ 0, { 4096, 4096, 4096, 4096 }, 0 },
		{ 0, { 0, 4096, 4096, 4096 }, 1 },
		{ 8 * GIB, { UINT64_MAX / 2, UINT64_MAX / 2, 1, 1 }, 0 }, /* no sum wraps */
	};

	(void)state;
	for (uint32_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		open_plan(PIN_BEFORE, rows[r].cap, 4, rows[r].bytes);
		assert_int_equal(plan.prefix, rows[r].prefix);
		assert_int_equal(register_due(), rows[r].prefix);
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(plan.slices[i].fate,
					 i < rows[r].prefix ? PIN_REGISTERED : PIN_OVER_CAP);
		pin_plan_close(&plan);
	}
}

static void
after_registers_what_is_filled_and_no_more(void **state)
{
	(void)state;
	open_plan(PIN_AFTER, UINT64_MAX, 3, (uint64_t[]){ GIB, GIB, GIB });
	assert_int_equal(pin_plan_next(&plan), 3);
	pin_plan_note_filled(&plan, 1);
	assert_int_equal(pin_plan_next(&plan), 1);
	pin_plan_note_filled(&plan, 0);
	assert_int_equal(pin_plan_next(&plan), 0);
	assert_int_equal(register_due(), 2);
	assert_false(pin_plan_done(&plan));
	pin_plan_note_filled(&plan, 2);
	assert_false(pin_plan_usable(&plan, 2));
	assert_int_equal(register_due(), 1);
	assert_true(pin_plan_done(&plan));
}

static void
before_registers_all_ahead_and_waits_for_the_bytes(void **state)
{
	(void)state;
	open_plan(PIN_BEFORE, UINT64_MAX, 3, (uint64_t[]){ GIB, GIB, GIB });
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(pin_plan_next(&plan), i);
		pin_plan_registered(&plan, i);
		assert_false(pin_plan_usable(&plan, i));
	}
	for (uint32_t i = 0; i < 3; i++) {
		assert_false(pin_plan_done(&plan));
		pin_plan_note_filled(&plan, i);
		assert_true(pin_plan_usable(&plan, i));
	}
	assert_true(pin_plan_done(&plan));
}

static void
a_refusal_ends_registration(void **state)
{
	(void)state;
	open_plan(PIN_AFTER, 3 * GIB, 5, (uint64_t[]){ GIB, GIB, GIB, GIB, 0 });
	for (uint32_t i = 0; i < 3; i++)
		pin_plan_note_filled(&plan, i);
	pin_plan_registered(&plan, 0);
	pin_plan_refused(&plan, 1);
	assert_true(plan.ended);
	assert_int_equal(pin_plan_next(&plan), 5);
	assert_int_equal(plan.slices[0].fate, PIN_REGISTERED);
	assert_int_equal(plan.slices[1].fate, PIN_REFUSED);
	assert_int_equal(plan.slices[2].fate, PIN_ENDED);
	assert_int_equal(plan.slices[3].fate, PIN_OVER_CAP);
	assert_int_equal(plan.slices[4].fate, PIN_REGISTERED); /* there is nothing of it */
	pin_plan_note_filled(&plan, 3);
	pin_plan_note_filled(&plan, 4);
	assert_int_equal(pin_plan_next(&plan), 5);
	assert_true(pin_plan_done(&plan)); /* and the start goes on */
}

static void
what_is_not_registered_is_locked_once_filled(void **state)
{
	(void)state;
	open_plan(PIN_AFTER, 2 * GIB, 4, (uint64_t[]){ GIB, GIB, GIB, GIB });
	pin_plan_note_filled(&plan, 3);
	assert_int_equal(pin_plan_next_lock(&plan), 3);
	pin_plan_note_filled(&plan, 0);
	assert_int_equal(pin_plan_next_lock(&plan), 4); /* registering goes first */
	pin_plan_registered(&plan, 0);
	assert_int_equal(pin_plan_next_lock(&plan), 3);
	pin_plan_lock_tried(&plan, 3, true);
	assert_int_equal(pin_plan_next_lock(&plan), 4); /* once, and only what is filled */
	pin_plan_note_filled(&plan, 2);
	assert_int_equal(pin_plan_next_lock(&plan), 2);
}

static void
a_refused_lock_is_the_last(void **state)
{
	(void)state;
	open_plan(PIN_AFTER, 0, 2, (uint64_t[]){ GIB, GIB });
	pin_plan_note_filled(&plan, 0);
	pin_plan_note_filled(&plan, 1);
	assert_int_equal(pin_plan_next_lock(&plan), 0);
	pin_plan_lock_tried(&plan, 0, false);
	assert_int_equal(pin_plan_next_lock(&plan), 2);
	assert_true(pin_plan_done(&plan));
}

/* The sizes of all calls for slice 0, as "64 64 2" GiB would be; returns how many. */
static uint32_t
calls(bool serving, uint64_t ret[8])
{
	uint64_t done = 0, n;
	uint32_t i = 0;

	while ((n = pin_plan_call(&plan, 0, done, serving)) > 0) {
		ret[i++] = n;
		done += n;
	}
	assert_int_equal(done, place[0].bytes);
	return i;
}

static void
a_call_is_bounded(void **state)
{
	uint64_t got[8];

	(void)state;
	open_plan(PIN_AFTER, UINT64_MAX, 1, (uint64_t[]){ 130 * GIB });
	assert_int_equal(calls(false, got), 3);
	assert_int_equal(got[0], 64 * GIB);
	assert_int_equal(got[2], 2 * GIB);
	pin_plan_close(&plan);
	open_plan(PIN_AFTER, UINT64_MAX, 1, (uint64_t[]){ (150ull << 20) + 4096 });
	assert_int_equal(calls(true, got), 3);
	assert_int_equal(got[0], 64ull << 20);
	assert_int_equal(got[2], (22ull << 20) + 4096);
	pin_plan_close(&plan);
	open_plan(PIN_AFTER, UINT64_MAX, 1, (uint64_t[]){ (150ull << 20) + 4096 });
	assert_int_equal(calls(false, got), 1);
}

static void
no_call_has_0_bytes(void **state)
{
	uint64_t got[8];

	(void)state;
	open_plan(PIN_AFTER, UINT64_MAX, 2, (uint64_t[]){ 0, 64ull << 20 });
	assert_int_equal(calls(false, got), 0);
	assert_int_equal(pin_plan_call(&plan, 1, 64ull << 20, true), 0);
}

static void
a_copy_stays_within_one_registration(void **state)
{
	uint64_t call = PIN_CALL_BYTES_SERVING, at;

	(void)state;
	open_plan(PIN_AFTER, UINT64_MAX, 2, (uint64_t[]){ 4096, 3 * call });
	at = place[1].offset;
	assert_int_equal(pin_plan_copy_bytes(&plan, 1, at + 5, 2 * call), 2 * call); /* not yet */
	pin_plan_call(&plan, 1, 0, true);
	assert_int_equal(pin_plan_copy_bytes(&plan, 1, at, call), call);
	assert_int_equal(pin_plan_copy_bytes(&plan, 1, at + 100, call), call - 100);
	assert_int_equal(pin_plan_copy_bytes(&plan, 1, at + call, 100), 100);
	assert_int_equal(pin_plan_copy_bytes(&plan, 1, at + 2 * call - 1, 100), 1);
}

static void
slow_pages_are_told_by_more_than_a_few(void **state)
{
	(void)state;
	assert_false(pin_pages_are_slow(64ull << 20, 64ull << 20)); /* 1 GB/s */
	assert_false(pin_pages_are_slow(GIB, 4 * GIB));             /* 250 MB/s */
	assert_true(pin_pages_are_slow(GIB, 5 * GIB));
	assert_false(pin_pages_are_slow(2ull << 20, GIB)); /* one page may be */
	assert_false(pin_pages_are_slow(0, GIB));
}

static void
the_cap_is_auto_or_whole_gib(void **state)
{
	static const char *const bad[] = { "",    "-1",       "+1",
					   " 1",  "1.5",      "4G",
					   "all", "16777217", "99999999999999999999" };
	struct pin_config config = { .cap = 7 };
	struct error err;

	(void)state;
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(pin_config_read(&config, "after", bad[i], &err), -EINVAL);
		assert_non_null(strstr(err.text, "want auto, or 0 to"));
		assert_int_equal(config.cap, 7);
	}
	assert_int_equal(pin_config_read(&config, "before", "12", &err), 0);
	assert_int_equal(config.order, PIN_BEFORE);
	assert_true(config.capped);
	assert_int_equal(config.cap, 12 * GIB);
	assert_int_equal(pin_config_read(&config, "after", "0", &err), 0);
	assert_true(config.capped);
	assert_int_equal(config.cap, 0);
	assert_int_equal(pin_config_read(&config, "after", "auto", &err), 0);
	assert_int_equal(config.order, PIN_AFTER);
	assert_false(config.capped);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(stops_before_the_slice_over_the_cap, close_plan),
		cmocka_unit_test_teardown(after_registers_what_is_filled_and_no_more, close_plan),
		cmocka_unit_test_teardown(before_registers_all_ahead_and_waits_for_the_bytes,
					  close_plan),
		cmocka_unit_test_teardown(a_refusal_ends_registration, close_plan),
		cmocka_unit_test_teardown(what_is_not_registered_is_locked_once_filled, close_plan),
		cmocka_unit_test_teardown(a_refused_lock_is_the_last, close_plan),
		cmocka_unit_test_teardown(a_call_is_bounded, close_plan),
		cmocka_unit_test_teardown(no_call_has_0_bytes, close_plan),
		cmocka_unit_test_teardown(a_copy_stays_within_one_registration, close_plan),
		cmocka_unit_test(slow_pages_are_told_by_more_than_a_few),
		cmocka_unit_test(the_cap_is_auto_or_whole_gib),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
