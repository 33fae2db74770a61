/* What `ask` does on a whole stack with its prompt, its options and its output. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"

static void
up(const char *name)
{
	run_do(WORDS("up", stack_path(DEMO), "--name", name, "--device", "cpu"));
}

/* Before a word of the answer, and what is no file stays what it is. */
static void
logits_go_where_they_are_told_or_nothing_is_asked(void **state)
{
	uint8_t logits[2048 * sizeof(float)];
	char path[128];
	struct run run;
	struct stat st;
	int fd;

	(void)state;
	up("logits");
	snprintf(path, sizeof(path), "%s/none/logits", stack_runtime);
	run_words(&run, 100, WORDS("ask", "--name", "logits", "--logits", path, "And"));
	assert_string_equal(run.out, "");
	assert_non_null(strstr(run.err, path));
	run_close(&run);
	snprintf(path, sizeof(path), "%s/pipe", stack_runtime);
	assert_int_equal(mkfifo(path, 0600), 0);
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	run_do(WORDS("ask", "--name", "logits", "-n", "2", "--logits", path, "And"));
	assert_int_equal(read(fd, logits, sizeof(logits)), sizeof(logits));
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	close(fd);
	unlink(path);
	run_do(WORDS("down", "--name", "logits"));
	stack_assert_nothing_left();
}

static void
a_prompt_as_long_as_the_context_is_refused(void **state)
{
	struct run run;
	json_t *answer;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", "short", "--device", "cpu", "--ctx", "2"));
	answer = run_json(WORDS("ask", "--name", "short", "--json", "--prompt-ids", "1"));
	assert_int_equal(json_array_size(json_object_get(answer, "ids")), 1);
	assert_string_equal(json_string_value(json_object_get(answer, "finish")), "length");
	json_decref(answer);
	run_words(&run, 100, WORDS("ask", "--name", "short", "--prompt-ids", "1,2"));
	stack_assert_one_line(run.err, "a prompt of 2 tokens");
	stack_assert_one_line(run.err, "want at most 1 (a larger --ctx gives more)");
	run_close(&run);
	run_do(WORDS("down", "--name", "short"));
	stack_assert_nothing_left();
}

static json_int_t
figure(const char *name, const char *key)
{
	json_t *figure = stack_figure(name, "scheduler", key);
	json_int_t value = json_integer_value(figure);

	json_decref(figure);
	return value;
}

static void
a_closed_stdout_is_said_before_anything_is_asked(void **state)
{
	static const char *const commands[] = { "ask --name shut And", "status --name shut",
						"report --name shut" };
	struct run run;

	(void)state;
	run_shell(&run, 0, "exec %s up %s --name shut --device cpu >&-", stack_path("run.sh"),
		  stack_path(DEMO)); /* needs no place for its words */
	assert_string_equal(run.err, "");
	run_close(&run);
	for (uint32_t i = 0; i < 3; i++) {
		run_shell(&run, 111, "exec %s %s >&-", stack_path("run.sh"), commands[i]);
		stack_assert_one_line(run.err, "stdout is closed");
		run_close(&run);
	}
	/* What else is closed is none of the answer's business. */
	run_shell(&run, 0, "exec %s ask --name shut -n 4 And <&- 2>&-", stack_path("run.sh"));
	assert_true(run.out_n > 0);
	run_close(&run);
	assert_int_equal(figure("shut", "done"), 1);
	assert_int_equal(figure("shut", "cancelled"), 0);
	run_do(WORDS("down", "--name", "shut"));
	stack_assert_nothing_left();
}

/* Whoever reads descriptor 5 has left when the next command begins. */
#define UNREAD "exec 5> >(exec true); wait $!; exec "

/* As other tools end when nobody reads them: 128 + SIGPIPE, and not a word. */
static void
a_reader_that_leaves_ends_it_quietly(void **state)
{
	static const char *const commands[] = { "ask --name left -n 2000 --ignore-stop In",
						"status --name left", "report --name left --json" };
	struct run run;

	(void)state;
	up("left");
	for (uint32_t i = 0; i < 3; i++) {
		run_shell(&run, 141, UNREAD "%s %s >&5", stack_path("run.sh"), commands[i]);
		assert_string_equal(run.err, "");
		run_close(&run);
	}
	assert_int_equal(figure("left", "cancelled"), 1);
	assert_int_equal(figure("left", "active"), 0);
	run_shell(&run, 0, "%s ask --name left -n 2000 In | head -c 10", stack_path("run.sh"));
	assert_int_equal(run.out_n, 10);
	assert_string_equal(run.err, "");
	run_close(&run);
	run_do(WORDS("down", "--name", "left"));
	stack_assert_nothing_left();
}

/* A disk that is full: one line, and the request is cancelled. */
static void
an_answer_that_cannot_be_written_is_cancelled(void **state)
{
	struct run run;

	(void)state;
	up("full");
	run_shell(&run, 111, "exec %s ask --name full -n 2000 --ignore-stop In >/dev/full",
		  stack_path("run.sh"));
	stack_assert_one_line(run.err, "writing the answer: No space left on device");
	run_close(&run);
	assert_int_equal(figure("full", "cancelled"), 1);
	assert_int_equal(figure("full", "active"), 0);
	run_do(WORDS("down", "--name", "full"));
	stack_assert_nothing_left();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(logits_go_where_they_are_told_or_nothing_is_asked),
		stack_test(a_prompt_as_long_as_the_context_is_refused),
		stack_test(a_closed_stdout_is_said_before_anything_is_asked),
		stack_test(a_reader_that_leaves_ends_it_quietly),
		stack_test(an_answer_that_cannot_be_written_is_cancelled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
