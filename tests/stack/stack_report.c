/* `report` tells one start, whoever is restarted after it: as a table, JSON, a picture, a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define NAME "story"

/* One report in all its forms. */
struct told {
	json_t *json;
	char *table, *svg, *trace;
};

static char *
file_text(const char *path)
{
	char *text = calloc(1, 1 << 20);
	FILE *file = fopen(path, "re");

	assert_non_null(text);
	assert_non_null(file);
	text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
	fclose(file);
	unlink(path);
	return text;
}

static void
tell(struct told *ret)
{
	char svg[128], trace[128];

	snprintf(svg, sizeof(svg), "%s/svg", stack_runtime);
	snprintf(trace, sizeof(trace), "%s/trace", stack_runtime);
	ret->json = run_json(WORDS("report", "--name", NAME, "--json"));
	ret->table = run_text(WORDS("report", "--name", NAME));
	run_do(WORDS("report", "--name", NAME, "--svg", svg, "--trace", trace));
	ret->svg = file_text(svg);
	ret->trace = file_text(trace);
}

static void
told_close(struct told *told)
{
	json_decref(told->json);
	free(told->table);
	free(told->svg);
	free(told->trace);
}

static const json_t *
stage_of(const struct told *told, const char *stage)
{
	return json_object_get(json_object_get(told->json, "stages"), stage);
}

/* A worker that is started while its pinner is, too, may need another try: `restarts` at least. */
static void
assert_part(const struct told *told, const char *stage, const char *part, json_int_t restarts)
{
	json_int_t n = json_integer_value(json_object_get(stage_of(told, stage), "restarts"));

	assert_string_equal(json_string_value(json_object_get(stage_of(told, stage), "part")),
			    part);
	assert_true(restarts == 0 ? n == 0 : n >= restarts);
}

/* A moment of the start: there, or of another life. */
static bool
has_moment(const struct told *told, const char *moment)
{
	return json_is_real(json_object_get(json_object_get(told->json, "seconds"), moment));
}

static bool
has_layers(const struct told *told, const char *moment)
{
	const json_t *layer = json_array_get(json_object_get(told->json, "layers"), 1);

	return json_is_real(json_object_get(layer, moment));
}

static bool
says(const char *text, const char *part)
{
	return strstr(text, part) != NULL;
}

static void
a_first_start_is_told_whole(struct told *told)
{
	static const char *const moments[] = { "arena_loaded", "able_to_answer", "first_token",
					       "sixteen_tokens" };

	for (int i = 0; i < 4; i++)
		assert_true(has_moment(told, moments[i]));
	assert_part(told, "worker", "start", 0);
	assert_true(has_layers(told, "read_end") && has_layers(told, "register_end"));
	assert_false(says(told->table, "restarted") || says(told->table, "before"));
	assert_false(says(told->svg, "restarted") || says(told->trace, "restarted"));
}

static double
seconds_of(const struct told *told, const char *moment)
{
	return json_real_value(json_object_get(json_object_get(told->json, "seconds"), moment));
}

/* Moments count from the first of this start's stages that are left: all move by as much if the one
 * that was restarted had been the first. */
static void
assert_layers_stay(const struct told *told, const struct told *first)
{
	double later = seconds_of(told, "arena_loaded") - seconds_of(first, "arena_loaded");
	json_t *now = json_object_get(told->json, "layers"), *before, *value;
	const char *key;
	size_t i;

	assert_true(later <= 0);
	assert_int_equal(json_array_size(now),
			 json_array_size(json_object_get(first->json, "layers")));
	json_array_foreach(json_object_get(first->json, "layers"), i, before)
	{
		json_object_foreach(before, key, value)
		{
			const json_t *same = json_object_get(json_array_get(now, i), key);
			bool moment = strstr(key, "_begin") || strstr(key, "_end");

			if (moment && json_is_real(value))
				assert_float_equal(json_real_value(same) - later,
						   json_real_value(value), 1e-6);
			else
				assert_true(json_equal(same, value));
		}
	}
}

/* The numbers of the first start stay what they were; the worker's are its own, and marked. */
static void
a_worker_that_was_restarted_is_marked(struct told *told, const struct told *first)
{
	assert_part(told, "worker", "restarted", 1);
	assert_part(told, "loader", "start", 0);
	assert_layers_stay(told, first);
	assert_true(has_moment(told, "first_token"));
	assert_false(has_moment(told, "able_to_answer"));
	assert_true(json_is_real(json_object_get(stage_of(told, "worker"), "begin")));
	assert_true(says(told->table, "restarted 1 time, "));
	assert_true(says(told->svg, "restarted at ") && says(told->trace, "restarted"));
}

static void
a_pinner_that_was_restarted_did_not_register_at_the_start(struct told *told)
{
	assert_part(told, "pinner", "restarted", 1);
	assert_true(has_layers(told, "read_end"));
	assert_false(has_layers(told, "register_end"));
}

static void
a_scheduler_that_was_restarted_saw_no_first_token(struct told *told)
{
	assert_part(told, "scheduler", "restarted", 1);
	assert_true(has_moment(told, "arena_loaded"));
	assert_false(has_moment(told, "first_token") || has_moment(told, "sixteen_tokens"));
}

static void
a_loader_that_was_restarted_begins_a_new_story(struct told *told)
{
	assert_part(told, "loader", "start", 1);
	assert_part(told, "pinner", "before", 1);
	assert_part(told, "worker", "before", 2);
	assert_part(told, "scheduler", "before", 1);
	assert_true(has_moment(told, "arena_loaded"));
	assert_false(has_moment(told, "able_to_answer") || has_moment(told, "first_token"));
	assert_false(has_layers(told, "register_end"));
	assert_true(says(told->table, "  before "));
	assert_true(says(told->svg, "was there before"));
}

static void
a_report_tells_one_start_whoever_is_restarted(void **state)
{
	struct told first, now;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", NAME, "--device", "cpu"));
	run_do(WORDS("ask", "--name", NAME, "-n", "20", "--ignore-stop", "And"));
	tell(&first);
	a_first_start_is_told_whole(&first);
	run_do(WORDS("restart", "worker", "--name", NAME));
	tell(&now);
	a_worker_that_was_restarted_is_marked(&now, &first);
	told_close(&now);
	run_do(WORDS("restart", "pinner", "--name", NAME));
	stack_wait_answering(NAME);
	tell(&now);
	a_pinner_that_was_restarted_did_not_register_at_the_start(&now);
	told_close(&now);
	run_do(WORDS("restart", "scheduler", "--name", NAME));
	run_do(WORDS("ask", "--name", NAME, "-n", "20", "--ignore-stop", "And"));
	tell(&now);
	a_scheduler_that_was_restarted_saw_no_first_token(&now);
	told_close(&now);
	run_do(WORDS("restart", "loader", "--name", NAME));
	tell(&now);
	a_loader_that_was_restarted_begins_a_new_story(&now);
	told_close(&now);
	told_close(&first);
	run_do(WORDS("down", "--name", NAME));
	stack_assert_nothing_left();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(a_report_tells_one_start_whoever_is_restarted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
