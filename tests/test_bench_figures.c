#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/bench_figures.h"

static const char *
target_of(const json_t *all, size_t i)
{
	const json_t *figure = json_array_get(json_object_get(all, "figures"), i);

	return json_string_value(json_object_get(figure, "target"));
}

static void
a_figure_says_whether_its_floor_and_its_aim_are_met(void **state)
{
	struct figures figures;
	json_t *all;

	(void)state;
	figures_open(&figures);
	figures_add_aim(&figures, "rate", 1000, "tokens/s", 450, 1000);
	figures_add_aim(&figures, "rate", 450, "tokens/s", 450, 1000);
	figures_add_aim(&figures, "rate", 449, "tokens/s", 450, 1000);
	figures_add_aim(&figures, "time", 0.2, "s", 0.5, 0.25);
	figures_add_aim(&figures, "time", 0.5, "s", 0.5, 0.25);
	figures_add_aim(&figures, "time", 0.6, "s", 0.5, 0.25);
	figures_add(&figures, "free", 7, "", FIGURE_FREE, 0);
	all = figures_json(&figures, "m.gguf", "cuda");
	assert_string_equal(target_of(all, 0), ">= 450, aim 1000  aim met");
	assert_string_equal(target_of(all, 1), ">= 450, aim 1000");
	assert_string_equal(target_of(all, 2), ">= 450, aim 1000  MISSED");
	assert_string_equal(target_of(all, 3), "<= 0.5, aim 0.25  aim met");
	assert_string_equal(target_of(all, 4), "<= 0.5, aim 0.25");
	assert_string_equal(target_of(all, 5), "<= 0.5, aim 0.25  MISSED");
	assert_string_equal(target_of(all, 6), "");
	assert_string_equal(json_string_value(json_object_get(all, "model")), "m.gguf");
	json_decref(all);
	json_decref(figures.list);
}

static void
what_is_there_so_far_can_be_had_again_and_again(void **state)
{
	struct figures figures;
	json_t *first, *second;

	(void)state;
	figures_open(&figures);
	figures_add(&figures, "one", 1, "", FIGURE_FREE, 0);
	first = figures_json(&figures, "m", "cpu");
	json_decref(first);
	figures_add(&figures, "two", 2, "", FIGURE_FREE, 0);
	second = figures_json(&figures, "m", "cpu");
	assert_int_equal(json_array_size(json_object_get(second, "figures")), 2);
	json_decref(second);
	json_decref(figures.list);
}

static void
the_median_is_the_middle_one(void **state)
{
	double values[] = { 5, 1, 3 };

	(void)state;
	assert_true(figures_median(values, 3) == 3);
	assert_true(values[2] == 5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_figure_says_whether_its_floor_and_its_aim_are_met),
		cmocka_unit_test(what_is_there_so_far_can_be_had_again_and_again),
		cmocka_unit_test(the_median_is_the_middle_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
