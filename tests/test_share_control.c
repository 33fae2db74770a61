/* How the CPU's share finds its place, against machines made of a few numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "worker/share_control.h"

#define LAYERS 48u

/* Nanoseconds an expert takes. */
struct machine {
	double gpu, cpu;
	double fixed; /* a layer's other time */
	uint32_t seed;
	uint32_t least, most; /* misses of a layer */
};

static uint32_t
draw(struct machine *m)
{
	m->seed = m->seed * 1664525 + 1013904223;
	return m->least + (m->seed >> 16) % (m->most - m->least + 1);
}

static struct share_token
token_of(struct machine *m, float share)
{
	struct share_token ret = { 0 };
	double ns = 0;

	for (uint32_t i = 0; i < LAYERS; i++) {
		uint32_t misses = draw(m), given = (uint32_t)((float)misses * share + 0.5f);
		double gpu = (misses - given) * m->gpu, cpu = given * m->cpu;

		given = given > misses ? misses : given;
		ret.misses += misses;
		ret.orders += given > 0;
		ret.late += given > 0 && cpu > gpu;
		ns += m->fixed + (cpu > gpu ? cpu : gpu);
	}
	ret.ns = (uint64_t)ns;
	return ret;
}

/* The mean time of `n` tokens. */
static double
run(struct share_control *control, struct machine *m, uint32_t n)
{
	double ns = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct share_token token = token_of(m, share_control_now(control));

		share_control_saw(control, &token);
		ns += (double)token.ns;
	}
	return ns / n;
}

/* Of all fixed shares. */
static double
best(const struct machine *m)
{
	double ret = 1e30;

	for (int i = 0; i <= 50; i++) {
		struct machine same = *m;
		struct share_control fixed;
		double ns;

		share_control_open(&fixed, (float)i / 50);
		ns = run(&fixed, &same, 64);
		ret = ns < ret ? ns : ret;
	}
	return ret;
}

static void
comes_near_the_best_fixed_share(void **state)
{
	static const double cpus[] = { 20e3, 40e3, 56e3, 80e3, 150e3, 400e3 };

	(void)state;
	for (int i = 0; i < 6; i++) {
		struct machine m = { 56e3, cpus[i], 50e3, 7, 2, 8 };
		struct share_control control;

		share_control_open(&control, SHARE_AUTO);
		run(&control, &m, 400);
		assert_true(run(&control, &m, 2000) < 1.07 * best(&m));
	}
}

/* As a worker's first answer is.  A trial of the GPU alone takes a window each. */
static void
is_there_within_the_first_answer(void **state)
{
	struct machine m = { 62e3, 48e3, 46e3, 7, 5, 8 };
	struct share_control control;

	(void)state;
	share_control_open(&control, SHARE_AUTO);
	assert_true(run(&control, &m, 128) < 1.07 * best(&m));
	assert_true(run(&control, &m, 1024) < 1.03 * best(&m));
}

static void
stays_off_where_it_does_not_win(void **state)
{
	struct machine m = { 20e3, 2000e3, 50e3, 7, 3, 8 };
	struct share_control control;

	(void)state;
	share_control_open(&control, SHARE_AUTO);
	run(&control, &m, 1000);
	assert_true(run(&control, &m, 4000) < 1.1 * best(&m));
	assert_int_equal(control.phase, SHARE_ALONE);
}

static void
follows_a_machine_that_changes(void **state)
{
	struct machine m = { 56e3, 40e3, 50e3, 7, 2, 8 };
	struct share_control control;
	double before;

	(void)state;
	share_control_open(&control, SHARE_AUTO);
	run(&control, &m, 1000);
	before = (double)control.both;
	m.cpu = 160e3; /* somebody else computes */
	run(&control, &m, 1000);
	assert_true((double)control.both < before - 0.2);
	assert_true(run(&control, &m, 1000) < 1.1 * best(&m));
	m.cpu = 40e3;
	run(&control, &m, 1000);
	assert_true(run(&control, &m, 1000) < 1.07 * best(&m));
}

static void
fewer_misses_do_not_end_it(void **state)
{
	struct machine m = { 56e3, 56e3, 50e3, 7, 6, 8 };
	struct share_control control;

	(void)state;
	share_control_open(&control, SHARE_AUTO);
	for (; m.least > 1; m.least--, m.most--)
		run(&control, &m, 300);
	assert_true(run(&control, &m, 2000) < 1.07 * best(&m));
}

static void
a_fixed_share_stays(void **state)
{
	struct machine m = { 20e3, 2000e3, 50e3, 7, 3, 8 };
	struct share_control control;

	(void)state;
	share_control_open(&control, 0.25f);
	run(&control, &m, 100);
	assert_true(share_control_now(&control) == 0.25f);
	share_control_open(&control, 0);
	run(&control, &m, 100);
	assert_true(share_control_now(&control) == 0);
}

static void
tokens_without_misses_say_nothing(void **state)
{
	struct share_token token = { .ns = 1000 };
	struct share_control control, before;

	(void)state;
	share_control_open(&control, SHARE_AUTO);
	before = control;
	for (int i = 0; i < 100; i++)
		share_control_saw(&control, &token);
	assert_memory_equal(&control, &before, sizeof(control));
}

static void
shares_are_auto_or_0_to_1(void **state)
{
	static const char *const wrong[] = { "", "1.01", "-0.1", "nan", "0.5x", "half", "inf" };
	struct error err = { "" };
	float share = 7;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(share_control_parse(wrong[i], &share, &err), -EINVAL);
	assert_string_equal(err.text, "--cpu-share inf: want auto, or 0 to 1");
	assert_true(share == 7);
	assert_int_equal(share_control_parse("auto", &share, &err), 0);
	assert_true(share == SHARE_AUTO);
	assert_int_equal(share_control_parse("0.25", &share, &err), 0);
	assert_true(share == 0.25f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(comes_near_the_best_fixed_share),
		cmocka_unit_test(is_there_within_the_first_answer),
		cmocka_unit_test(stays_off_where_it_does_not_win),
		cmocka_unit_test(follows_a_machine_that_changes),
		cmocka_unit_test(fewer_misses_do_not_end_it),
		cmocka_unit_test(a_fixed_share_stays),
		cmocka_unit_test(tokens_without_misses_say_nothing),
		cmocka_unit_test(shares_are_auto_or_0_to_1),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
