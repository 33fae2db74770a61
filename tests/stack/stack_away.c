/* A stage that left for a reason which no restart mends stays away: what waits for it ends with
 * that reason, status tells it, and once it is restarted by hand everything is as before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/stack_files.h"
#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define NAME "away"
#define EXPERTS 4000000L /* in the demo's pack, they lie from here on at the latest */
#define PROMPT "In the beginning"

static char model[128];

/* ask ends with 111 and one line that says all of it. */
static void
assert_ends(struct run *ask, const char *stage, const char *why, const char *help)
{
	int status = run_finish(ask);

	if (status != 111)
		fail_msg("ask: exit code %d, want 111: %s", status, ask->err);
	stack_assert_one_line(ask->err, stage);
	stack_assert_one_line(ask->err, why);
	stack_assert_one_line(ask->err, help);
	run_close(ask);
}

static void
ask_start(struct run *ask)
{
	run_start(ask, WORDS("ask", "--name", NAME, "-n", "400", "--ignore-stop", PROMPT));
}

/* Between a stage and what stands in for it nobody is there. */
static void
wait_for_stage(const char *stage)
{
	const uint64_t end = clock_ns() + STACK_LIMIT_S * NS_PER_SECOND;
	bool there = false;

	while (!there) {
		json_t *state = stack_figure(NAME, stage, "state");

		assert_true(clock_ns() < end);
		there = strcmp(json_string_value(state), "stopped") != 0;
		json_decref(state);
	}
}

static void
assert_state(const char *stage, const char *want, const char *why)
{
	json_t *state, *reason;

	wait_for_stage(stage);
	state = stack_figure(NAME, stage, "state");
	reason = stack_figure(NAME, stage, "reason");
	assert_string_equal(json_string_value(state), want);
	if (!strstr(json_string_value(reason), why))
		fail_msg("%s: \"%s\" does not say \"%s\"", stage, json_string_value(reason), why);
	json_decref(state);
	json_decref(reason);
}

/* Waits until so many requests are with the scheduler. */
static void
wait_for_requests(int n)
{
	const uint64_t end = clock_ns() + STACK_LIMIT_S * NS_PER_SECOND;
	int now;

	do {
		assert_true(clock_ns() < end);
		json_t *active = stack_figure(NAME, "scheduler", "active");
		json_t *queued = stack_figure(NAME, "scheduler", "queued");

		now = (int)(json_integer_value(active) + json_integer_value(queued));
		json_decref(active);
		json_decref(queued);
	} while (now < n);
}

/* Most experts are read as they are needed. */
static char *
up_from_pack(void)
{
	snprintf(model, sizeof(model), "%s/demo.pack", stack_runtime);
	run_do(WORDS("pack", stack_path(DEMO), model));
	run_do(WORDS("up", model, "--name", NAME, "--device", "cpu", "--resident-gib", "0.0024"));
	return run_text(WORDS("ask", "--name", NAME, "-n", "400", "--ignore-stop", PROMPT));
}

static void
down(void)
{
	run_do(WORDS("down", "--name", NAME));
	unlink(model);
	stack_assert_nothing_left();
}

static void
a_damaged_expert_ends_what_runs_and_what_waits_with_the_reason(void **state)
{
	struct run asks[3];
	char *answer = up_from_pack();

	(void)state;
	kill(stack_pid(NAME, "worker"), SIGSTOP); /* until all three wait */
	for (int i = 0; i < 3; i++)
		ask_start(&asks[i]);
	wait_for_requests(3);
	file_flip(model, EXPERTS);
	kill(stack_pid(NAME, "worker"), SIGCONT);
	for (int i = 0; i < 3; i++)
		assert_ends(&asks[i], "the worker has left", "damaged", "restart worker");
	assert_state("worker", "failed", "damaged");
	assert_state("scheduler", "ready", "the worker has left");
	ask_start(&asks[0]); /* and so does what comes now */
	assert_ends(&asks[0], "the worker has left", "damaged", "restart worker");
	file_flip(model, EXPERTS);
	run_do(WORDS("restart", "worker", "--name", NAME));
	ask_start(&asks[0]);
	assert_int_equal(run_finish(&asks[0]), 0);
	assert_string_equal(asks[0].out, answer);
	run_close(&asks[0]);
	assert_state("scheduler", "ready", "");
	free(answer);
	down();
}

/* Whoever is started or killed meanwhile: the stage that is away stays so, and all know it. */
static void
who_is_away_stays_so_whoever_else_dies(void **state)
{
	struct run ask;
	json_t *pid;

	(void)state;
	free(up_from_pack());
	file_flip(model, EXPERTS);
	ask_start(&ask);
	assert_ends(&ask, "the worker has left", "damaged", "restart worker");
	stack_kill(stack_pid(NAME, "scheduler"));
	ask_start(&ask);
	assert_ends(&ask, "the worker has left", "damaged", "restart worker");
	pid = stack_figure(NAME, "worker", "pid"); /* of what stands in for it */
	stack_kill((pid_t)json_integer_value(pid));
	json_decref(pid);
	run_do(WORDS("restart", "scheduler", "--name", NAME));
	ask_start(&ask);
	assert_ends(&ask, "the worker has left", "damaged", "restart worker");
	down();
}

/* The warm rest goes on without its loader, even with a scheduler that never saw it; but the arena
 * goes with the pinner. */
static void
without_the_loader_what_is_warm_goes_on(void **state)
{
	struct run run;

	(void)state;
	snprintf(model, sizeof(model), "%s/copy.gguf", stack_runtime);
	file_copy(stack_path(DEMO), model);
	run_do(WORDS("up", model, "--name", NAME, "--device", "cpu"));
	assert_int_equal(truncate(model, 1000), 0);
	run_words(&run, 111, WORDS("restart", "loader", "--name", NAME));
	stack_assert_one_line(run.err, "loader: stays away: ");
	run_close(&run);
	assert_state("loader", "failed", "copy.gguf");
	run_do(WORDS("ask", "--name", NAME, "-n", "8", "And"));
	run_do(WORDS("restart", "scheduler", "--name", NAME));
	run_do(WORDS("restart", "worker", "--name", NAME));
	run_do(WORDS("ask", "--name", NAME, "-n", "8", "And"));
	run_do(WORDS("restart", "pinner", "--name", NAME));
	ask_start(&run);
	assert_ends(&run, "the loader has left", "copy.gguf", "restart loader");
	file_copy(stack_path(DEMO), model);
	run_do(WORDS("restart", "loader", "--name", NAME));
	run_do(WORDS("ask", "--name", NAME, "-n", "8", "And"));
	down();
}

/* A stack that gives up, as it does after five deaths within a minute. */
static void
a_stack_that_comes_down_ends_what_waits_with_its_reason(void **state)
{
	struct run ask;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", NAME, "--device", "cpu"));
	for (int i = 0; i < 5; i++) {
		stack_wait_answering(NAME);
		if (i == 4) {
			kill(stack_pid(NAME, "worker"), SIGSTOP);
			ask_start(&ask);
			wait_for_requests(1);
		}
		stack_kill(stack_pid(NAME, "worker"));
	}
	assert_ends(&ask, "the stack came down: worker was ended by SIGKILL",
		    "time 5 within a minute", "run.sh up");
	run_do(WORDS("down", "--name", NAME));
	stack_assert_nothing_left();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(a_damaged_expert_ends_what_runs_and_what_waits_with_the_reason),
		stack_test(who_is_away_stays_so_whoever_else_dies),
		stack_test(without_the_loader_what_is_warm_goes_on),
		stack_test(a_stack_that_comes_down_ends_what_waits_with_its_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
