/* A stack whose stages die, hang or fail: how long it goes on, and what it says in the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stack_run.h"
#include "tests/stand_in.h"

#define DEMO "tests/data/kjv-16x1m.gguf"

static void
up(const char *name)
{
	run_do(WORDS("up", stack_path(DEMO), "--name", name, "--device", "cpu"));
}

static void
five_deaths_within_a_minute_end_the_stack(void **state)
{
	struct stand_in broken;
	struct run run;

	(void)state;
	stand_in_open(&broken, "worker", "echo 'worker: error: out of luck' >&2; exit 111");
	run_words(&run, 111, WORDS("up", stack_path(DEMO), "--name", "broken", "--device", "cpu"));
	stack_assert_one_line(
	    run.err, "worker left with status 111, time 5 within a minute; it said: out of luck");
	run_close(&run);
	stack_assert_nothing_left();
	stand_in_close(&broken);
}

static void
a_stage_that_leaves_with_100_is_not_restarted(void **state)
{
	struct stand_in wrong;
	struct run run;

	(void)state;
	stand_in_open(&wrong, "pinner", "echo 'pinner: error: wrong input' >&2; exit 100");
	run_words(&run, 100, WORDS("up", stack_path(DEMO), "--name", "wrong", "--device", "cpu"));
	stack_assert_one_line(run.err, "pinner: wrong input");
	run_close(&run);
	stack_assert_nothing_left();
	stand_in_close(&wrong);
}

/* Idle, so that the worker is of no use between two deaths.  Why it came down can be asked for,
 * until `down` or the next `up`. */
static void
five_kills_of_an_idle_worker_end_the_stack(void **state)
{
	struct run run;
	int folder;

	(void)state;
	up("idle");
	folder = stack_open_folder("idle");
	for (uint32_t i = 0; i < 5; i++) {
		stack_wait_answering("idle");
		stack_kill(stack_pid("idle", "worker"));
	}
	stack_wait_left(folder);
	assert_int_equal(stack_count_processes(), 0);
	run_words(&run, 100, WORDS("status", "--name", "idle"));
	stack_assert_one_line(
	    run.err, "idle is not up: worker was ended by SIGKILL, time 5 within a minute");
	run_close(&run);
	run_do(WORDS("down", "--name", "idle"));
	stack_assert_nothing_left();
}

/* One that has answered has been of use: no number of such deaths looks like a start that fails. */
static void
a_scheduler_that_answers_may_be_killed_any_number_of_times(void **state)
{
	char *first, *again;

	(void)state;
	up("answers");
	first = run_text(WORDS("ask", "--name", "answers", "-n", "5", "--ids", "In"));
	for (uint32_t i = 0; i < 7; i++) {
		stack_kill(stack_pid("answers", "scheduler"));
		stack_wait_answering("answers");
		again = run_text(WORDS("ask", "--name", "answers", "-n", "5", "--ids", "In"));
		assert_string_equal(again, first);
		free(again);
	}
	free(first);
	run_do(WORDS("down", "--name", "answers"));
	stack_assert_nothing_left();
}

/* The loader waits at the gate: the others are asked while nothing can get on. */
static void
status_answers_while_the_stack_starts(void **state)
{
	struct stand_in gated;
	json_t *phase;
	struct run starting;
	int gate;

	(void)state;
	stand_in_open(&gated, "loader", "read -r _ <\"$gate\"; exec \"$real\" \"$@\"");
	run_start(&starting, WORDS("up", stack_path(DEMO), "--name", "gated", "--device", "cpu"));
	gate = open(gated.gate, O_WRONLY | O_CLOEXEC); /* comes back when the loader is there */
	assert_true(gate >= 0);
	run_read(&starting, 1); /* the first word of any stage */
	phase = stack_figure("gated", "loader", "state");
	assert_string_equal(json_string_value(phase), "stopped");
	json_decref(phase);
	assert_int_equal(write(gate, "go\n", 3), 3);
	close(gate);
	assert_int_equal(run_finish(&starting), 0);
	run_close(&starting);
	phase = stack_figure("gated", "loader", "state");
	assert_string_equal(json_string_value(phase), "ready");
	json_decref(phase);
	run_do(WORDS("down", "--name", "gated"));
	stack_assert_nothing_left();
	stand_in_close(&gated);
}

static void
an_interrupted_up_leaves_nothing(void **state)
{
	struct stand_in gated;
	struct run starting;
	int gate;

	(void)state;
	stand_in_open(&gated, "loader", "exec 4>\"$gate\"; read -r _");
	run_start(&starting, WORDS("up", stack_path(DEMO), "--name", "gated", "--device", "cpu"));
	gate = open(gated.gate, O_RDONLY | O_CLOEXEC);
	assert_true(gate >= 0);
	run_read(&starting, 1);
	assert_int_equal(kill(-starting.pid, SIGINT), 0);
	assert_int_equal(run_finish(&starting), 130);
	stack_assert_one_line(starting.err, "interrupted");
	run_close(&starting);
	close(gate);
	stack_assert_nothing_left();
	stand_in_close(&gated);
}

/* A folder in front of PATH, in which setsid waits for a line; the caller removes it. */
static void
hold_back_setsid(char *folder)
{
	char path[1024];
	FILE *file;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/gate", folder);
	assert_int_equal(mkfifo(path, 0600), 0);
	snprintf(path, sizeof(path), "%s/setsid", folder);
	file = fopen(path, "w");
	assert_non_null(file);
	fprintf(file,
		"#!/usr/bin/env bash\nread -r _ <%s/gate\nPATH=${PATH#*:}\nexec setsid \"$@\"\n",
		folder);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(chmod(path, 0700), 0);
	snprintf(path, sizeof(path), "%s:%s", folder, getenv("PATH"));
	setenv("PATH", path, 1);
}

/* What tells the supervisor to go is said before it listens. */
static void
an_up_interrupted_before_its_supervisor_is_there_leaves_nothing(void **state)
{
	char folder[] = "/tmp/hearth-path-XXXXXX", path[64], before[1024];
	struct run starting, removal;
	int gate;

	(void)state;
	snprintf(before, sizeof(before), "%s", getenv("PATH"));
	hold_back_setsid(folder);
	run_start(&starting, WORDS("up", stack_path(DEMO), "--name", "early", "--device", "cpu"));
	snprintf(path, sizeof(path), "%s/gate", folder);
	gate = open(path, O_WRONLY | O_CLOEXEC); /* comes back when it waits */
	assert_true(gate >= 0);
	assert_int_equal(kill(-starting.pid, SIGINT), 0);
	assert_int_equal(write(gate, "go\n", 3), 3);
	close(gate);
	assert_int_equal(run_finish(&starting), 130);
	stack_assert_one_line(starting.err, "interrupted");
	run_close(&starting);
	setenv("PATH", before, 1);
	run_shell(&removal, 0, "rm -r %s", folder);
	run_close(&removal);
	stack_assert_nothing_left();
}

static void
a_stopped_stage_is_wedged_and_killed_in_the_end(void **state)
{
	json_t *word;
	pid_t pinner;

	(void)state;
	up("wedged");
	pinner = stack_pid("wedged", "pinner");
	assert_int_equal(kill(pinner, SIGSTOP), 0);
	word = stack_figure("wedged", "pinner", "state");
	assert_string_equal(json_string_value(word), "wedged");
	json_decref(word);
	run_do(WORDS("restart", "pinner", "--name", "wedged"));
	assert_int_not_equal(stack_pid("wedged", "pinner"), pinner);
	run_do(WORDS("ask", "--name", "wedged", "-n", "4", "And"));
	run_do(WORDS("down", "--name", "wedged"));
	stack_assert_nothing_left();
}

/* One of them gets the lock on the folder, whatever the order. */
static void
of_two_ups_at_one_moment_one_is_refused(void **state)
{
	struct run runs[2];
	int codes[2];

	(void)state;
	for (int i = 0; i < 2; i++)
		run_start(&runs[i],
			  WORDS("up", stack_path(DEMO), "--name", "both", "--device", "cpu"));
	for (int i = 0; i < 2; i++)
		codes[i] = run_finish(&runs[i]);
	if (codes[0] + codes[1] != 100 || (codes[0] != 0 && codes[1] != 0))
		fail_msg("exit codes %d and %d, want 0 and 100: %s%s", codes[0], codes[1],
			 runs[0].err, runs[1].err);
	stack_assert_one_line(runs[codes[0] ? 0 : 1].err, "both is up");
	for (int i = 0; i < 2; i++)
		run_close(&runs[i]);
	run_do(WORDS("ask", "--name", "both", "-n", "4", "And"));
	run_do(WORDS("down", "--name", "both"));
	stack_assert_nothing_left();
}

/* What a descriptor of a process leads to: "pipe:[1234]"; "" where there is none such. */
static void
descriptor_of(const char *pid, const char *fd, char ret[64])
{
	char path[320];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%s/fd/%s", pid, fd);
	n = readlink(path, ret, 63);
	ret[n > 0 ? n : 0] = '\0';
}

struct pipes {
	char life[4][64]; /* stdin of each stage */
	char supervisor[16];
	uint32_t strays;
};

/* Only the supervisor holds a life pipe, but for who has it as its stdin. */
static void
look_for_strays(const char *pid, void *arg)
{
	struct pipes *pipes = arg;
	char path[64], to[64];
	struct dirent *entry;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%.16s/fd", pid);
	fds = opendir(path);
	while (fds && (entry = readdir(fds))) {
		descriptor_of(pid, entry->d_name, to);
		for (int i = 0; i < 4; i++)
			pipes->strays += strcmp(entry->d_name, "0") != 0 &&
					 strcmp(pid, pipes->supervisor) != 0 &&
					 strcmp(to, pipes->life[i]) == 0;
	}
	if (fds)
		closedir(fds);
}

static void
no_stage_holds_the_life_pipe_of_another(void **state)
{
	static const char *const stages[] = { "loader", "pinner", "worker", "scheduler" };
	struct pipes pipes = { .strays = 0 };
	char pid[16];

	(void)state;
	up("pipes");
	for (int i = 0; i < 4; i++) /* with all others' pipes open around them */
		run_do(WORDS("restart", stages[i], "--name", "pipes"));
	stack_wait_answering("pipes");
	for (int i = 0; i < 4; i++) {
		snprintf(pid, sizeof(pid), "%d", (int)stack_pid("pipes", stages[i]));
		descriptor_of(pid, "0", pipes.life[i]);
		assert_int_equal(strncmp(pipes.life[i], "pipe:", 5), 0);
	}
	snprintf(pipes.supervisor, sizeof(pipes.supervisor), "%d", (int)stack_supervisor("pipes"));
	stack_each_process(look_for_strays, &pipes);
	assert_int_equal(pipes.strays, 0);
	run_do(WORDS("down", "--name", "pipes"));
	stack_assert_nothing_left();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(five_deaths_within_a_minute_end_the_stack),
		stack_test(a_stage_that_leaves_with_100_is_not_restarted),
		stack_test(five_kills_of_an_idle_worker_end_the_stack),
		stack_test(a_scheduler_that_answers_may_be_killed_any_number_of_times),
		stack_test(status_answers_while_the_stack_starts),
		stack_test(an_interrupted_up_leaves_nothing),
		stack_test(an_up_interrupted_before_its_supervisor_is_there_leaves_nothing),
		stack_test(a_stopped_stage_is_wedged_and_killed_in_the_end),
		stack_test(of_two_ups_at_one_moment_one_is_refused),
		stack_test(no_stage_holds_the_life_pipe_of_another),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
