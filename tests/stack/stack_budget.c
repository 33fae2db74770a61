/* Whole stacks with a resident budget on the cpu device: the same bits as with the whole model in
 * memory, whatever the budget, the reader and the profile, and whoever dies on the way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stack_bits.h"
#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define LEAST "0.0024" /* GiB: the window alone */
#define SOME "0.004"

static void
down(const char *name)
{
	run_do(WORDS("down", "--name", name));
}

static void
whole_model(struct bits *ret)
{
	run_do(WORDS("up", stack_path(DEMO), "--name", "whole", "--device", "cpu"));
	bits_take(ret, "whole");
	down("whole");
}

static void
copy_model(const char *to)
{
	int from = open(stack_path(DEMO), O_RDONLY | O_CLOEXEC);
	int fd = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct stat st;

	assert_true(from >= 0 && fd >= 0);
	assert_int_equal(fstat(from, &st), 0);
	assert_int_equal(sendfile(fd, from, NULL, (size_t)st.st_size), st.st_size);
	close(from);
	close(fd);
}

static void
a_budget_changes_no_bit(void **state)
{
	static const char *const budgets[] = { LEAST, SOME, "0.006", "1" };
	static const char *const readers[] = { "buffered", "direct" };
	char profile[128], copy[128];
	struct bits whole;

	(void)state;
	snprintf(profile, sizeof(profile), "%s/profile", stack_runtime);
	snprintf(copy, sizeof(copy), "%s/copy.gguf", stack_runtime);
	whole_model(&whole);
	/* The first stack records a profile that the others choose by. */
	for (uint32_t i = 0; i < 8; i++) {
		run_do(WORDS("up", stack_path(DEMO), "--name", "some", "--device", "cpu", "--read",
			     readers[i % 2], "--resident-gib", budgets[i / 2], "--profile",
			     profile));
		bits_assert_again(&whole, "some");
		run_do(WORDS("verify", "--name", "some"));
		down("some");
	}
	/* It is the model's, not the file's. */
	copy_model(copy);
	run_do(WORDS("up", copy, "--name", "some", "--device", "cpu", "--resident-gib", SOME,
		     "--profile", profile));
	bits_assert_again(&whole, "some");
	down("some");
	assert_int_equal(unlink(copy), 0);
	assert_int_equal(unlink(profile), 0);
	bits_close(&whole);
}

/* An answer of 200 tokens, with this stage killed once the first bytes are out. */
static void
kill_in_the_middle(const char *stage, const char *want)
{
	struct run run;

	run_start(&run,
		  WORDS("ask", "--name", "some", "-n", "200", "--ignore-stop", "In the beginning"));
	run_read(&run, 1);
	stack_kill(stack_pid("some", stage));
	assert_int_equal(run_finish(&run), 0);
	assert_string_equal(run.out, want);
	run_close(&run);
}

static void
a_death_in_the_middle_changes_no_token(void **state)
{
	char *want;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", "whole", "--device", "cpu"));
	want = run_text(
	    WORDS("ask", "--name", "whole", "-n", "200", "--ignore-stop", "In the beginning"));
	down("whole");
	run_do(WORDS("up", stack_path(DEMO), "--name", "some", "--device", "cpu", "--resident-gib",
		     SOME));
	kill_in_the_middle("worker", want);
	kill_in_the_middle("loader", want);
	stack_wait_answering("some");
	kill_in_the_middle("pinner", want);
	down("some");
	free(want);
}

static void
a_restarted_loader_takes_the_warm_arena_back(void **state)
{
	struct bits whole;
	json_t *before, *after;

	(void)state;
	whole_model(&whole);
	run_do(WORDS("up", stack_path(DEMO), "--name", "some", "--device", "cpu", "--resident-gib",
		     SOME));
	before = stack_figure("some", "loader", "arena");
	assert_true(json_integer_value(json_object_get(before, "inode")) > 0);
	run_do(WORDS("restart", "--name", "some", "loader"));
	after = stack_figure("some", "loader", "arena");
	assert_int_equal(json_integer_value(json_object_get(before, "inode")),
			 json_integer_value(json_object_get(after, "inode")));
	bits_assert_again(&whole, "some");
	json_decref(before);
	json_decref(after);
	down("some");
	bits_close(&whole);
}

/* How many of them, how many bytes in how many reads, and how long it took. */
static void
what_is_brought_is_told_by_status_and_report(void **state)
{
	json_t *demand, *outside;
	char *report;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", "some", "--device", "cpu", "--resident-gib",
		     SOME));
	free(run_text(WORDS("ask", "--name", "some", "-n", "8", "Blessed are the")));
	demand = json_incref(json_object_get(stack_figure("some", "loader", "reader"), "demand"));
	outside = json_object_get(demand, "outside");
	assert_true(json_integer_value(json_object_get(demand, "requests")) > 0);
	assert_true(json_real_value(json_object_get(demand, "wait_seconds")) > 0);
	assert_true(json_integer_value(json_object_get(outside, "experts")) > 0);
	assert_true(json_integer_value(json_object_get(outside, "bytes")) > 0);
	assert_int_equal(json_integer_value(json_object_get(outside, "windows")),
			 3 * json_integer_value(json_object_get(outside, "experts")));
	assert_true(json_integer_value(json_object_get(outside, "reads")) <
		    json_integer_value(json_object_get(outside, "windows")));
	report = run_text(WORDS("report", "--name", "some"));
	assert_non_null(strstr(report, "\ndemand: "));
	assert_non_null(strstr(report, "\noutside the budget: "));
	free(report);
	json_decref(demand);
	down("some");
}

static void
a_budget_below_the_window_is_one_line_and_exit_100(void **state)
{
	struct run run;

	(void)state;
	run_words(&run, 100,
		  WORDS("up", stack_path(DEMO), "--name", "small", "--device", "cpu",
			"--resident-gib", "0.002"));
	assert_non_null(strstr(run.err, "want " LEAST " or more"));
	assert_ptr_equal(strchr(run.err, '\n'), run.err + strlen(run.err) - 1);
	run_close(&run);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(a_budget_changes_no_bit),
		stack_test(a_death_in_the_middle_changes_no_token),
		stack_test(a_restarted_loader_takes_the_warm_arena_back),
		stack_test(what_is_brought_is_told_by_status_and_report),
		stack_test(a_budget_below_the_window_is_one_line_and_exit_100),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
