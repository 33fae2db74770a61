/* What run.sh is told and from where: words, values, names and limits that cannot be are refused
 * with one line, and nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"

static void
bad_words_are_refused_before_anything_starts(void **state)
{
	static const struct {
		const char *words[5];
		const char *line;
	} cases[] = {
		{ { "up" }, "MODEL.gguf" },
		{ { "up", "a.gguf", "b.gguf" }, "b.gguf: one word too many" },
		{ { "up", "a.gguf", "--colour", "red" }, "--colour: no such option" },
		{ { "up", "--", "-a.gguf", "b.gguf" }, "the model is /" },
		{ { "up", "a.gguf", "--read" }, "--read wants a value" },
		{ { "up", "a.gguf", "--read=" }, "--read '': want a value without blanks" },
		{ { "up", "a.gguf", "--profile", "a --ctx 9" }, "want a value without blanks" },
		{ { "up", "a.gguf", "--name", "a/b" }, "--name a/b" },
		{ { "restart", "everything" }, "loader pinner worker scheduler" },
		{ { "down", "default" }, "default: one word too many" },
		{ { "dwon" }, "dwon: no such command" },
	};
	struct run run;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run_words(&run, 100, cases[i].words);
		stack_assert_one_line(run.err, cases[i].line);
		run_close(&run);
	}
	stack_assert_nothing_left();
}

/* Its text is the README's. */
static void
help_names_every_command_and_option(void **state)
{
	static const char *const names[] = {
		"demo",        "test",        "up",        "ask",
		"status",      "restart",     "report",    "verify",
		"pack",        "down",        "tune",      "--name",
		"--device",    "--vram-mib",  "--ctx",     "--threads",
		"--cpu-share", "--read",      "--verify",  "--pages",
		"--numa-node", "--pin-order", "--pin-gib", "--resident-gib",
		"--profile",   "Exit code 0", "130",       "141",
	};
	char *help = run_text(WORDS("help"));

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strstr(help, names[i]))
			fail_msg("help does not name %s: %s", names[i], help);
	free(help);
}

/* Each stage says what is wrong with its own; it is the first thing it does. */
static void
bad_values_are_refused_with_what_would_be_right(void **state)
{
	static const struct {
		const char *option, *value, *line;
	} cases[] = {
		{ "--ctx", "many", "worker: --ctx many: want a whole number" },
		{ "--ctx", "1", "worker: --ctx 1: want 2 to 1048576" },
		{ "--threads", "0", "--threads 0: want 1 to 1024" }, /* of loader and worker */
		{ "--threads", "1025", "--threads 1025: want 1 to 1024" },
		{ "--cpu-share", "2", "worker: --cpu-share 2: want auto, or 0 to 1" },
		{ "--device", "tpu", "pinner: --device tpu: want auto, cpu, cuda or cuda:N" },
		{ "--vram-mib", "-1", "pinner: --vram-mib -1: want a whole number" },
		{ "--pin-gib", "-1", "pinner: --pin-gib -1: want auto, or 0 to" },
		{ "--pin-order", "never", "--pin-order never: want one of after, before" },
		{ "--read", "fast", "loader: --read fast: want one of auto, buffered, direct" },
		{ "--pages", "1g", "loader: --pages 1g: want one of auto, 4k, thp, hugetlb" },
		{ "--numa-node", "x", "loader: --numa-node x: want auto or a number" },
		{ "--resident-gib", "0", "loader: --resident-gib 0: want more than 0 GiB" },
		{ "--verify=1", NULL, "loader: --verify: takes no value" },
	};
	struct run run;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run_words(&run, 100,
			  WORDS("up", stack_path(DEMO), "--name", "bad", cases[i].option,
				cases[i].value));
		stack_assert_one_line(run.err, cases[i].line);
		run_close(&run);
		stack_assert_nothing_left();
	}
}

static void
a_name_too_long_for_a_socket_is_said(void **state)
{
	char folder[128];
	struct run run;

	(void)state;
	snprintf(folder, sizeof(folder), "%s/%060d", stack_runtime, 0);
	assert_int_equal(mkdir(folder, 0700), 0);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	run_words(&run, 100, WORDS("up", stack_path(DEMO), "--name", "long-name"));
	stack_assert_one_line(run.err, "too long for a socket's path, want a shorter --name");
	run_close(&run);
	setenv("XDG_RUNTIME_DIR", stack_runtime, 1);
	assert_int_equal(rmdir(folder), 0);
	stack_assert_nothing_left();
}

/* As a shell with that limit runs it. */
static void
run_with_descriptors(const char *limit, int want, const char *words, const char *line)
{
	struct run run;

	run_shell(&run, want, "ulimit -n %s; exec %s %s >/dev/null", limit, stack_path("run.sh"),
		  words);
	if (want != 0)
		stack_assert_one_line(run.err, line);
	run_close(&run);
}

static void
too_few_descriptors_are_said_at_once(void **state)
{
	char up_words[700];

	(void)state;
	snprintf(up_words, sizeof(up_words), "up %s --name few --device cpu", stack_path(DEMO));
	run_with_descriptors("16", 111, up_words,
			     "16 descriptors are allowed, each stage needs 64");
	stack_assert_nothing_left();
	run_with_descriptors("64", 0, up_words, "");
	run_with_descriptors("16", 111, "ask --name few And", "the hearth command needs 40");
	run_with_descriptors("16", 111, "status --name few", "the hearth command needs 40");
	run_with_descriptors("40", 0, "ask --name few -n 4 And", "");
	run_with_descriptors("40", 0, "status --name few", "");
	run_with_descriptors("16", 0, "restart worker --name few", "");
	run_with_descriptors("16", 0, "down --name few", "");
	stack_assert_nothing_left();
	run_with_descriptors("64; ulimit -S -n 16", 0, up_words, ""); /* a soft limit is raised */
	run_with_descriptors("16", 0, "down --name few", "");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(bad_words_are_refused_before_anything_starts),
		stack_test(help_names_every_command_and_option),
		stack_test(bad_values_are_refused_with_what_would_be_right),
		stack_test(a_name_too_long_for_a_socket_is_said),
		stack_test(too_few_descriptors_are_said_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
