/* hearth ask: a request that outlives its scheduler, or does not. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/asking.h"
#include "tests/front_case.h"

struct asker {
	struct asking asking;
	struct error err;
	int code;
	pthread_t thread;
	uint32_t prompt[2];
	struct gate gate; /* passed at each token */
	char shown[64];   /* what a user would have read */
	size_t n_shown;
	int refuse; /* what take answers */
};

static int
take(void *arg, const uint32_t *ids, size_t n_ids, const uint8_t *text, size_t n_text)
{
	struct asker *asker = arg;

	(void)ids;
	assert_true(asker->n_shown + n_text < sizeof(asker->shown));
	if (n_text)
		memcpy(asker->shown + asker->n_shown, text, n_text);
	asker->n_shown += n_text;
	for (size_t i = 0; i < n_ids; i++)
		gate_pass(&asker->gate);
	return asker->refuse;
}

static void *
run(void *arg)
{
	struct asker *asker = arg;

	asker->code = asking_run(&asker->asking, &asker->err);
	return NULL;
}

static void
start_asking(struct asker *asker, uint32_t n_prompt, int refuse)
{
	*asker = (struct asker){ .gate = GATE_INIT, .prompt = { 1, 2 }, .refuse = refuse };
	hearth__submit__init(&asker->asking.submit);
	asker->asking.dir = stage.scratch.dir;
	asker->asking.take = take;
	asker->asking.arg = asker;
	asker->asking.submit.prompt_ids = asker->prompt;
	asker->asking.submit.n_prompt_ids = n_prompt;
	asker->asking.submit.max_tokens = 8;
	assert_int_equal(asking_open(&asker->asking, &asker->err), 0);
	assert_int_equal(pthread_create(&asker->thread, NULL, run, asker), 0);
}

static void
finish_asking(struct asker *asker, const char *finish)
{
	pthread_join(asker->thread, NULL);
	if (asker->code < 0)
		fail_msg("%s", asker->err.text);
	assert_string_equal(asker->asking.finish, finish);
}

/* "Hello world", as the demo model's reference has it. */
static const uint32_t hello_ids[] = { 39, 578, 78, 1180 };

static void
a_request_outlives_its_scheduler(void **state)
{
	struct asker asker;
	uint64_t request;

	(void)state;
	front_stage_decide(&stage, front_stage_tokenizer());
	front_case_hello();
	start_asking(&asker, 2, 0);
	request = asker.asking.submit.request;
	assert_true(request != 0);
	fake_worker_assert_asked(&worker, request, 2);
	fake_worker_token(&worker, request, 0, hello_ids[0]);
	fake_worker_token(&worker, request, 1, hello_ids[1]);
	assert_true(gate_wait(&asker.gate, 2));
	fake_worker_close(&worker);
	front_stage_stop(&stage);
	front_stage_start(&stage); /* knows nothing, and is not ready at first */
	front_case_hello();
	front_stage_decide(&stage, front_stage_tokenizer());
	fake_worker_assert_asked(&worker, request, 4); /* with the tokens it has read */
	fake_worker_token(&worker, request, 2, hello_ids[2]);
	fake_worker_token(&worker, request, 3, hello_ids[3]);
	fake_worker_finish(&worker, request, "stop", 4);
	finish_asking(&asker, "stop");
	assert_int_equal(asker.asking.n_ids, 4);
	assert_memory_equal(asker.asking.ids, hello_ids, sizeof(hello_ids));
	assert_int_equal(asker.n_shown, strlen("Hello world")); /* nothing twice */
	assert_memory_equal(asker.shown, "Hello world", asker.n_shown);
	assert_int_equal(asker.asking.n_prompt_ids, 2);
	assert_true(asker.asking.compute_s > 3.9e-6 && asker.asking.compute_s < 4.1e-6);
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
it_waits_while_the_scheduler_starts(void **state)
{
	struct asker asker;

	(void)state;
	start_asking(&asker, 2, 0); /* the model is not known yet */
	front_case_hello();
	front_stage_decide(&stage, NULL);
	fake_worker_assert_asked(&worker, asker.asking.submit.request, 2);
	fake_worker_finish(&worker, asker.asking.submit.request, "length", 0);
	finish_asking(&asker, "length");
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
an_interrupt_cancels_the_request(void **state)
{
	Hearth__ToWorker *message;
	struct asker asker;

	(void)state;
	front_stage_decide(&stage, NULL);
	front_case_hello();
	start_asking(&asker, 2, 0);
	fake_worker_assert_asked(&worker, asker.asking.submit.request, 2);
	fake_worker_token(&worker, asker.asking.submit.request, 0, 70);
	assert_true(gate_wait(&asker.gate, 1));
	assert_int_equal(kill(getpid(), SIGINT), 0);
	finish_asking(&asker, "cancelled");
	assert_int_equal(asker.asking.n_ids, 1);
	message = fake_worker_next(&worker);
	assert_int_equal(message->what_case, HEARTH__TO_WORKER__WHAT_CANCEL);
	hearth__to_worker__free_unpacked(message, NULL);
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
an_interrupt_ends_the_wait_for_a_scheduler(void **state)
{
	struct asker asker;

	(void)state;
	start_asking(&asker, 2, 0); /* never ready */
	assert_int_equal(kill(getpid(), SIGINT), 0);
	finish_asking(&asker, "cancelled");
	asking_close(&asker.asking);
}

static void
an_answer_nobody_takes_is_cancelled(void **state)
{
	struct asker asker;
	uint64_t request;

	(void)state;
	front_stage_decide(&stage, NULL);
	front_case_hello();
	start_asking(&asker, 2, -EPIPE);
	request = asker.asking.submit.request;
	fake_worker_assert_asked(&worker, request, 2);
	fake_worker_token(&worker, request, 0, 70);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -EPIPE);
	front_assert_finish(&stage, request, "cancelled", 1);
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
what_the_scheduler_refuses_is_said(void **state)
{
	struct asker asker;

	(void)state;
	front_stage_decide(&stage, NULL);
	start_asking(&asker, 0, 0);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -EINVAL);
	assert_non_null(strstr(asker.err.text, "an empty prompt"));
	asking_close(&asker.asking);
	for (uint64_t i = 1; i <= 3; i++)
		front_submit(&stage, i, 1, 8);
	start_asking(&asker, 2, 0);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -EBUSY);
	assert_int_equal(error_exit_code(asker.code), EXIT_SYSTEM);
	assert_non_null(strstr(asker.err.text, "the queue is full"));
	asking_close(&asker.asking);
}

/* It waits for nothing: ends with -ENOTCONN and one line that says this. */
static void
assert_gives_up(const char *said)
{
	struct asker asker;

	start_asking(&asker, 2, 0);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -ENOTCONN);
	assert_int_equal(error_exit_code(asker.code), EXIT_SYSTEM);
	if (!strstr(asker.err.text, said))
		fail_msg("'%s' does not say '%s'", asker.err.text, said);
	asking_close(&asker.asking);
}

static void
a_stage_that_stays_away_is_said_at_once(void **state)
{
	(void)state;
	serving_away(&stage.serving, "the loader has left");
	assert_gives_up("the loader has left"); /* also while nothing is decided */
	front_stage_decide(&stage, NULL);
	assert_gives_up("the loader has left");
}

static void
a_scheduler_that_stays_away_is_said_at_once(void **state)
{
	Hearth__State *stand_in;
	struct board *board;
	struct error err;

	(void)state;
	front_stage_stop(&stage);
	assert_int_equal(board_open(&board, stage.scratch.dir, "scheduler", &err), 0);
	stand_in = board_edit(board);
	stand_in->stays_away = true;
	board_text(&stand_in->reason, "%s", "out of luck");
	board_publish(board);
	assert_gives_up("the scheduler has left and stays away: out of luck");
	board_close(board);
	front_stage_start(&stage);
}

/* Its supervisor was there at the begin, and is gone. */
static void
a_stack_that_comes_down_is_said_with_its_last_words(void **state)
{
	char control[128], log[128];
	struct asker asker;
	FILE *file;

	(void)state;
	snprintf(control, sizeof(control), "%s/control", stage.scratch.dir);
	snprintf(log, sizeof(log), "%s/log", stage.scratch.dir);
	file = fopen(log, "we");
	assert_non_null(file);
	fputs("run.sh: error: one thing\nrun.sh: error: another\nworker: info: bye\n", file);
	fclose(file);
	file = fopen(control, "we");
	assert_non_null(file);
	fclose(file);
	start_asking(&asker, 2, 0); /* never ready */
	unlink(control);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -ENOTCONN);
	assert_non_null(strstr(asker.err.text, "the stack came down: another"));
	asking_close(&asker.asking);
	unlink(log);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ALONE(a_request_outlives_its_scheduler),
		ALONE(it_waits_while_the_scheduler_starts),
		ALONE(an_interrupt_cancels_the_request),
		ALONE(an_interrupt_ends_the_wait_for_a_scheduler),
		ALONE(an_answer_nobody_takes_is_cancelled),
		ALONE(what_the_scheduler_refuses_is_said),
		ALONE(a_stage_that_stays_away_is_said_at_once),
		ALONE(a_scheduler_that_stays_away_is_said_at_once),
		ALONE(a_stack_that_comes_down_is_said_with_its_last_words),
	};
	sigset_t interrupt;

	/* As in the hearth command, where every thread is born behind interrupt_open. */
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
