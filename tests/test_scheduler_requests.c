/* Requests that wait, are cancelled or do not fit. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "scheduler/front.h"
#include "tests/front_case.h"

static void
a_full_queue_says_so(void **state)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	uint32_t id = 1;
	Hearth__State *said;
	struct error err;

	(void)state;
	assert_int_equal(front_submit(&stage, 1, 1, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	fake_worker_assert_asked(&worker, 1, 1);
	for (uint64_t i = 2; i <= 3; i++)
		assert_int_equal(front_submit(&stage, i, 1, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	submit.request = 4;
	submit.prompt_ids = &id;
	submit.n_prompt_ids = 1;
	submit.max_tokens = 8;
	front_assert_refused(front_submit_message(&stage, &submit), HEARTH__FRONT_ERROR__FRONT_FULL,
			     "the queue is full (2 requests wait)");
	assert_int_equal(board_ask(stage.scratch.dir, "scheduler", 20000, &said, &err), 0);
	assert_int_equal(said->serving->queued, 2);
	assert_int_equal(said->serving->active, 1);
	assert_int_equal(said->serving->queue_limit, 2);
	assert_int_equal(said->serving->refused, 1);
	hearth__state__free_unpacked(said, NULL);
	front_cancel(&stage, 2);
	assert_int_equal(front_submit(&stage, 4, 1, 8), HEARTH__FRONT_ERROR__FRONT_OK);
}

static void
one_that_waits_is_cancelled_and_never_asked(void **state)
{
	(void)state;
	for (uint64_t i = 1; i <= 3; i++)
		front_submit(&stage, i, (uint32_t)i, 8);
	assert_int_equal(front_cancel(&stage, 2), HEARTH__FRONT_ERROR__FRONT_OK);
	front_assert_finish(&stage, 2, "cancelled", 0);
	fake_worker_assert_asked(&worker, 1, 1);
	fake_worker_finish(&worker, 1, "stop", 0);
	fake_worker_assert_asked(&worker, 3, 3);
}

static void
the_active_one_is_cancelled_at_the_worker(void **state)
{
	Hearth__ToWorker *message;

	(void)state;
	front_submit(&stage, 1, 1, 8);
	front_submit(&stage, 2, 2, 8);
	fake_worker_assert_asked(&worker, 1, 1);
	fake_worker_token(&worker, 1, 0, 70);
	front_token(&stage, 1, 0);
	assert_int_equal(front_cancel(&stage, 1), HEARTH__FRONT_ERROR__FRONT_OK);
	front_assert_finish(&stage, 1, "cancelled", 1);
	message = fake_worker_next(&worker);
	assert_int_equal(message->what_case, HEARTH__TO_WORKER__WHAT_CANCEL);
	assert_int_equal(message->cancel->request, 1);
	hearth__to_worker__free_unpacked(message, NULL);
	fake_worker_assert_asked(&worker, 2, 2);
	/* What the worker still says of it touches nobody. */
	fake_worker_token(&worker, 1, 1, 71);
	fake_worker_finish(&worker, 1, "cancelled", 2);
	fake_worker_token(&worker, 2, 0, 72);
	assert_int_equal(front_token(&stage, 2, 0), 72);
	front_assert_finish(&stage, 1, "cancelled", 1);
	assert_int_equal(front_cancel(&stage, 1), HEARTH__FRONT_ERROR__FRONT_OK); /* again */
}

static void
a_prompt_that_does_not_fit_is_refused_with_numbers(void **state)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	uint32_t ids[CASE_CONTEXT] = { 0 };
	Hearth__ToWorker *message;

	(void)state;
	submit.request = 1;
	submit.prompt_ids = ids;
	submit.max_tokens = 1000;
	submit.n_prompt_ids = CASE_CONTEXT;
	ids[3] = CASE_VOCABULARY;
	/* Any Hello before is heard once the worker is linked. */
	front_submit(&stage, 7, 1, 1);
	fake_worker_assert_asked(&worker, 7, 1);
	front_assert_refused(front_submit_message(&stage, &submit), HEARTH__FRONT_ERROR__FRONT_BAD,
			     "64 tokens, and the context has room for 64: want at most 63");
	submit.n_prompt_ids = 60;
	front_assert_refused(front_submit_message(&stage, &submit), HEARTH__FRONT_ERROR__FRONT_BAD,
			     "token 3 of the prompt is 2048, want less than 2048");
	ids[3] = 0;
	fake_worker_finish(&worker, 7, "stop", 0);
	hearth__front_reply__free_unpacked(front_submit_message(&stage, &submit), NULL);
	message = fake_worker_next(&worker);
	assert_int_equal(message->generate->max_tokens, 4); /* what fits */
	hearth__to_worker__free_unpacked(message, NULL);
}

/* The worker's next order is to leave `request`. */
static void
assert_left(uint64_t request)
{
	Hearth__ToWorker *order = fake_worker_next(&worker);

	assert_int_equal(order->what_case, HEARTH__TO_WORKER__WHAT_CANCEL);
	assert_int_equal(order->cancel->request, request);
	hearth__to_worker__free_unpacked(order, NULL);
}

static void
a_request_that_nobody_reads_is_cancelled(void **state)
{
	(void)state;
	front_submit(&stage, 1, 3, 8);
	fake_worker_assert_asked(&worker, 1, 3);
	front_submit(&stage, 2, 3, 8);
	pthread_mutex_lock(&stage.serving.lock);
	stage.serving.unread_ns = 0;
	pthread_mutex_unlock(&stage.serving.lock);
	front_expire(&stage.serving, clock_ns());
	assert_left(1);
	fake_worker_assert_asked(&worker, 2, 3);
	assert_left(2);
	front_assert_finish(&stage, 1, "cancelled", 0);
	front_assert_finish(&stage, 2, "cancelled", 0);
}

/* Of request 1. */
static void *
read_first(void *arg)
{
	(void)arg;
	return front_read(&stage, 1, 0, 0, 10000);
}

static void
a_read_that_waits_keeps_its_request(void **state)
{
	Hearth__FrontReply *reply;
	pthread_t reader;
	void *read;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	assert_int_equal(pthread_create(&reader, NULL, read_first, NULL), 0);
	front_stage_wait_parked(&stage, 1);
	pthread_mutex_lock(&stage.serving.lock);
	stage.serving.unread_ns = 0;
	pthread_mutex_unlock(&stage.serving.lock);
	assert_true(front_expire(&stage.serving, clock_ns()) > clock_ns());
	fake_worker_token(&worker, 1, 0, 39);
	pthread_join(reader, &read);
	reply = read;
	assert_int_equal(reply->n_ids, 1);
	assert_string_equal(reply->finish, "");
	hearth__front_reply__free_unpacked(reply, NULL);
}

static void
assert_ended_by(uint64_t request, Hearth__FrontError cause, const char *said)
{
	Hearth__FrontReply *reply = front_read(&stage, request, 0, 0, 10000);

	assert_string_equal(reply->finish, "error");
	assert_int_equal(reply->finish_cause, cause);
	assert_string_equal(reply->finish_error, said);
	hearth__front_reply__free_unpacked(reply, NULL);
}

static void
a_stage_that_stays_away_ends_all_and_nothing_is_taken_until_it_is_back(void **state)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	uint32_t id = 1;
	Hearth__State *said;
	struct error err;

	(void)state;
	for (uint64_t i = 1; i <= 3; i++)
		front_submit(&stage, i, 1, 8);
	fake_worker_assert_asked(&worker, 1, 1);
	serving_away(&stage.serving, "it has left");
	for (uint64_t i = 1; i <= 3; i++)
		assert_ended_by(i, HEARTH__FRONT_ERROR__FRONT_AWAY, "it has left");
	assert_left(1);
	submit.request = 4;
	submit.prompt_ids = &id;
	submit.n_prompt_ids = 1;
	submit.max_tokens = 8;
	front_assert_refused(front_submit_message(&stage, &submit), HEARTH__FRONT_ERROR__FRONT_AWAY,
			     "it has left");
	assert_int_equal(board_ask(stage.scratch.dir, "scheduler", 20000, &said, &err), 0);
	assert_string_equal(said->reason, "it has left");
	assert_int_equal(said->serving->failed, 3);
	hearth__state__free_unpacked(said, NULL);
	serving_away(&stage.serving, "");
	assert_int_equal(front_submit(&stage, 4, 1, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	fake_worker_assert_asked(&worker, 4, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORKER(a_full_queue_says_so),
		WITH_WORKER(one_that_waits_is_cancelled_and_never_asked),
		WITH_WORKER(the_active_one_is_cancelled_at_the_worker),
		WITH_WORKER(a_prompt_that_does_not_fit_is_refused_with_numbers),
		WITH_WORKER(a_request_that_nobody_reads_is_cancelled),
		WITH_WORKER(a_read_that_waits_keeps_its_request),
		WITH_WORKER(a_stage_that_stays_away_ends_all_and_nothing_is_taken_until_it_is_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
