/* Stages restarted and killed in the middle of one long greedy answer: it loses no token and
 * changes none. */
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
#include "tests/stack_run.h"
#include "tests/stand_in.h"

#define NAME "restarts"
/* Of the synthetic model: seconds of computing, so that the answer is not through before a stage is
 * restarted or killed. */
#define TOKENS "1500"
#define KILLS 10
#define ANSWERS 40 /* to find room for as many kills */

static char model[128];
static char *undisturbed; /* the answer: ids */
static size_t bytes;      /* its length */
static struct stand_in restless;

static void
start_answer(struct run *run)
{
	run_start(run, WORDS("ask", "--name", NAME, "-n", TOKENS, "--ignore-stop", "--ids",
			     "--prompt-ids", "1,2,3,4,5,6,7,8"));
}

static int
make_model(void)
{
	char command[800];

	snprintf(model, sizeof(model), "/tmp/%s.gguf", strrchr(stack_runtime, '/') + 1);
	snprintf(command, sizeof(command), "%s/bin/make_model --shape small %s 2>&1 >/dev/null",
		 stack_build, model);
	return system(command);
}

static int
setup(void **state)
{
	struct run run;

	if (stack_setup(state) != 0 || make_model() != 0)
		return -1;
	run_do(WORDS("up", model, "--name", NAME, "--device", "cpu", "--threads", "1"));
	start_answer(&run);
	if (run_finish(&run) != 0)
		return -1;
	undisturbed = run.out;
	bytes = run.out_n;
	run.out = NULL;
	run_close(&run);
	return bytes > 3000 ? 0 : -1;
}

static int
teardown(void **state)
{
	int rc = stack_teardown(state);

	free(undisturbed);
	unlink(model);
	return rc;
}

/* Takes the stack down in good order: nothing is left. */
static void
down_leaves_nothing_behind_all_this(void **state)
{
	(void)state;
	run_do(WORDS("down", "--name", NAME));
	stack_assert_nothing_left();
}

/* The rest of the answer comes, and all of it is what it was without a disturbance. */
static void
assert_undisturbed(struct run *run)
{
	int status = run_finish(run);

	if (status != 0)
		fail_msg("ask: exit code %d: %s", status, run->err);
	assert_string_equal(run->out, undisturbed);
	run_close(run);
}

static void
restart_during_an_answer(const char *stage)
{
	pid_t before = stack_pid(NAME, stage);
	struct run run;

	start_answer(&run);
	run_read(&run, bytes / 8);
	run_do(WORDS("restart", stage, "--name", NAME));
	assert_int_not_equal(stack_pid(NAME, stage), before);
	assert_undisturbed(&run);
}

static void
kill_during_an_answer(const char *stage)
{
	pid_t before = stack_pid(NAME, stage);
	struct run run;

	start_answer(&run);
	run_read(&run, bytes / 8);
	stack_kill(before);
	assert_undisturbed(&run);
	assert_int_not_equal(stack_pid(NAME, stage), before);
}

static void
a_restarted_worker_changes_no_token(void **state)
{
	(void)state;
	restart_during_an_answer("worker");
}

static void
a_restarted_scheduler_changes_no_token(void **state)
{
	(void)state;
	restart_during_an_answer("scheduler");
}

static void
a_restarted_pinner_changes_no_token(void **state)
{
	(void)state;
	restart_during_an_answer("pinner");
}

static void
a_restarted_loader_changes_no_token(void **state)
{
	(void)state;
	restart_during_an_answer("loader");
}

static void
a_killed_worker_changes_no_token(void **state)
{
	(void)state;
	kill_during_an_answer("worker");
}

static void
a_killed_scheduler_changes_no_token(void **state)
{
	(void)state;
	kill_during_an_answer("scheduler");
}

static void
a_killed_pinner_changes_no_token(void **state)
{
	(void)state;
	kill_during_an_answer("pinner");
}

static void
a_killed_loader_changes_no_token(void **state)
{
	(void)state;
	kill_during_an_answer("loader");
}

/* A restarted loader takes the arena back: the model is not read again. */
static void
a_restarted_loader_reads_nothing_again(void **state)
{
	json_t *reader;

	(void)state;
	run_do(WORDS("restart", "loader", "--name", NAME));
	reader = stack_figure(NAME, "loader", "reader");
	assert_int_equal(json_integer_value(json_object_get(reader, "bytes")), 0);
	assert_true(json_integer_value(json_object_get(reader, "adopted_bytes")) > 0);
	json_decref(reader);
	run_do(WORDS("verify", "--name", NAME));
}

static int64_t
times_handed_on(void)
{
	json_t *figure = stack_figure(NAME, "scheduler", "handed_on");
	int64_t n = json_integer_value(figure);

	json_decref(figure);
	return n;
}

/* One answer; its workers are killed when they have given some of it, as long as there is more of
 * it.  How often. */
static uint32_t
kill_within_an_answer(uint32_t most, unsigned *seed)
{
	pid_t worker = stack_pid(NAME, "worker");
	struct run run;
	uint32_t n = 0;

	start_answer(&run);
	while (n < most && run_more(&run, 1 + (size_t)rand_r(seed) % (bytes / 12))) {
		stack_kill(worker);
		n++;
		stack_wait_answering(NAME);
		worker = stack_pid(NAME, "worker");
	}
	assert_undisturbed(&run);
	return n;
}

/* Where nothing else runs one answer has room for all of them. */
static void
kill_ten_times(void)
{
	unsigned seed = (unsigned)clock_ns();
	int64_t before = times_handed_on();
	uint32_t kills = 0;

	print_message("seed %u\n", seed);
	for (uint32_t answers = 0; kills < KILLS; answers++) {
		if (answers == ANSWERS)
			fail_msg("%u kills within %u answers", kills, answers);
		kills += kill_within_an_answer(KILLS - kills, &seed);
	}
	assert_true(times_handed_on() > before);
}

static void
ten_kills_of_the_worker_change_no_token(void **state)
{
	(void)state;
	kill_ten_times();
}

static int64_t
slot_moves(void)
{
	json_t *cache = stack_figure(NAME, "worker", "cache");
	int64_t moves = json_integer_value(json_object_get(cache, "moves"));

	json_decref(cache);
	return moves;
}

/* A third of the experts have slots, and any lead, however small, is worth a move. */
static void
slots_that_are_refilled_all_the_time_change_no_token(void **state)
{
	struct run run;

	(void)state;
	run_do(WORDS("down", "--name", NAME));
	stand_in_open(&restless, "worker", "exec \"$real\" \"$@\" --slot-margin 0");
	run_do(WORDS("up", model, "--name", NAME, "--device", "cpu", "--threads", "1", "--ctx",
		     "2048", "--vram-mib", "36"));
	start_answer(&run);
	assert_undisturbed(&run);
	assert_true(slot_moves() > 400);
}

static void
ten_kills_of_a_worker_whose_slots_are_refilled_change_no_token(void **state)
{
	struct run run;

	(void)state;
	kill_ten_times();
	start_answer(&run); /* by the last of them, on the slots that the others left */
	assert_undisturbed(&run);
	assert_true(slot_moves() > 400);
}

static void
a_killed_pinner_that_refills_slots_changes_no_token(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++)
		kill_during_an_answer("pinner");
	stand_in_close(&restless);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_restarted_worker_changes_no_token),
		cmocka_unit_test(a_restarted_scheduler_changes_no_token),
		cmocka_unit_test(a_restarted_pinner_changes_no_token),
		cmocka_unit_test(a_restarted_loader_changes_no_token),
		cmocka_unit_test(a_restarted_loader_reads_nothing_again),
		cmocka_unit_test(a_killed_worker_changes_no_token),
		cmocka_unit_test(a_killed_scheduler_changes_no_token),
		cmocka_unit_test(a_killed_pinner_changes_no_token),
		cmocka_unit_test(a_killed_loader_changes_no_token),
		cmocka_unit_test(ten_kills_of_the_worker_change_no_token),
		cmocka_unit_test(slots_that_are_refilled_all_the_time_change_no_token),
		cmocka_unit_test(ten_kills_of_a_worker_whose_slots_are_refilled_change_no_token),
		cmocka_unit_test(a_killed_pinner_that_refills_slots_changes_no_token),
		cmocka_unit_test(down_leaves_nothing_behind_all_this),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
