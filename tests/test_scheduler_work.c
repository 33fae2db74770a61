/* The link to the worker: one request at a time, and on with the next worker. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/front_case.h"

static Hearth__Serving
figures(void)
{
	Hearth__State *said;
	Hearth__Serving serving;
	struct error err;

	assert_int_equal(board_ask(stage.scratch.dir, "scheduler", 20000, &said, &err), 0);
	serving = *said->serving;
	hearth__state__free_unpacked(said, NULL);
	return serving;
}

static void
requests_wait_for_a_worker_and_go_one_at_a_time(void **state)
{
	(void)state;
	for (uint64_t i = 1; i <= 3; i++)
		front_submit(&stage, i, (uint32_t)i, 8);
	front_case_hello();
	for (uint64_t i = 1; i <= 3; i++) {
		fake_worker_assert_asked(&worker, i, (uint32_t)i);
		fake_worker_token(&worker, i, 0, 70);
		front_token(&stage, i, 0);
		assert_int_equal(worker.n, 0); /* the next one only after this one's end */
		fake_worker_finish(&worker, i, "stop", 1);
		front_assert_finish(&stage, i, "stop", 1);
	}
	assert_int_equal(figures().done, 3);
	assert_int_equal(figures().tokens, 3);
	fake_worker_close(&worker);
}

static void
a_dead_workers_request_goes_on_with_the_next(void **state)
{
	Hearth__ToWorker *message;

	(void)state;
	front_case_hello();
	front_submit(&stage, 1, 3, 8);
	fake_worker_assert_asked(&worker, 1, 3);
	for (uint32_t i = 0; i < 2; i++)
		fake_worker_token(&worker, 1, i, 70 + i);
	front_token(&stage, 1, 1);
	fake_worker_close(&worker);
	front_stage_wait_unlinked(&stage);
	front_case_hello();
	message = fake_worker_next(&worker);
	assert_int_equal(message->generate->prompt_tokens, 3);
	assert_int_equal(message->generate->n_ids, 5);
	assert_int_equal(message->generate->ids[3], 70);
	assert_int_equal(message->generate->ids[4], 71);
	assert_int_equal(message->generate->max_tokens, 8);
	hearth__to_worker__free_unpacked(message, NULL);
	fake_worker_token(&worker, 1, 2, 72);
	assert_int_equal(front_token(&stage, 1, 2), 72);
	fake_worker_finish(&worker, 1, "stop", 3);
	front_assert_finish(&stage, 1, "stop", 3);
	assert_int_equal(figures().handed_on, 1);
	fake_worker_close(&worker);
}

static void
an_end_that_died_with_its_worker_is_known_by_the_tokens(void **state)
{
	(void)state;
	front_case_hello();
	front_submit(&stage, 1, 3, 1);
	front_submit(&stage, 2, 2, 8);
	fake_worker_assert_asked(&worker, 1, 3);
	fake_worker_token(&worker, 1, 0, 70);
	front_token(&stage, 1, 0);
	fake_worker_close(&worker);
	front_stage_wait_unlinked(&stage);
	front_case_hello();
	fake_worker_assert_asked(&worker, 2, 2); /* 1 is complete */
	front_assert_finish(&stage, 1, "length", 1);
	fake_worker_token(&worker, 2, 0, 2045);
	front_token(&stage, 2, 0);
	fake_worker_close(&worker);
	front_stage_wait_unlinked(&stage);
	front_case_hello();
	front_assert_finish(&stage, 2, "stop", 1);
	fake_worker_close(&worker);
}

static void
given_tokens_are_gone_on_behind(void **state)
{
	const uint32_t prompt[] = { 1, 2 }, given[] = { 39, 578, 78 };
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	Hearth__FrontReply *reply;

	(void)state;
	front_case_hello();
	submit.request = 1;
	submit.prompt_ids = (uint32_t *)prompt;
	submit.n_prompt_ids = 2;
	submit.given_ids = (uint32_t *)given;
	submit.n_given_ids = 3;
	submit.max_tokens = 8;
	hearth__front_reply__free_unpacked(front_submit_message(&stage, &submit), NULL);
	fake_worker_assert_asked(&worker, 1, 5);
	reply = front_read(&stage, 1, 0, 0, 0);
	assert_int_equal(reply->n_ids, 3);
	assert_int_equal(reply->text.data[0], 'H');
	hearth__front_reply__free_unpacked(reply, NULL);
	submit.n_given_ids = 0; /* the request is known: they count no more */
	hearth__front_reply__free_unpacked(front_submit_message(&stage, &submit), NULL);
	fake_worker_token(&worker, 1, 3, 72);
	assert_int_equal(front_token(&stage, 1, 3), 72);
	fake_worker_close(&worker);
}

static void
a_token_again_or_too_early_is_not_taken(void **state)
{
	(void)state;
	front_case_hello();
	front_submit(&stage, 1, 3, 8);
	fake_worker_token(&worker, 1, 0, 70);
	fake_worker_token(&worker, 1, 0, 70);
	fake_worker_token(&worker, 1, 0, 71);   /* another one: the first stays */
	fake_worker_token(&worker, 1, 5, 72);   /* 1 to 4 are missing */
	fake_worker_token(&worker, 1, 1, 4096); /* beyond the vocabulary */
	fake_worker_token(&worker, 9, 1, 73);   /* of nobody */
	fake_worker_token(&worker, 1, 1, 74);
	assert_int_equal(front_token(&stage, 1, 1), 74);
	assert_int_equal(front_token(&stage, 1, 0), 70);
	assert_int_equal(figures().tokens, 2);
	fake_worker_close(&worker);
}

static void
a_worker_that_speaks_rubbish_is_not_believed(void **state)
{
	const uint8_t rubbish[] = { 0xff, 0xff, 0xff, 0xff, 0x0a, 0x80 };

	(void)state;
	front_case_hello();
	front_submit(&stage, 1, 3, 8);
	fake_worker_assert_asked(&worker, 1, 3);
	assert_int_equal(link_send(worker.link, rubbish, sizeof(rubbish)), 0);
	assert_int_equal(link_send(worker.link, rubbish, 0), 0);
	fake_worker_token(&worker, 1, 0, 70);
	assert_int_equal(front_token(&stage, 1, 0), 70);
	fake_worker_close(&worker);
}

static void
stop_tokens_go_with_the_request_unless_ignored(void **state)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	Hearth__ToWorker *message;
	uint32_t id = 1;

	(void)state;
	front_case_hello();
	submit.prompt_ids = &id;
	submit.n_prompt_ids = 1;
	submit.max_tokens = 8;
	for (uint64_t i = 1; i <= 2; i++) {
		submit.request = i;
		submit.ignore_stop = i == 2;
		hearth__front_reply__free_unpacked(front_submit_message(&stage, &submit), NULL);
		message = fake_worker_next(&worker);
		assert_int_equal(message->generate->n_stop_ids, i == 2 ? 0 : 1);
		hearth__to_worker__free_unpacked(message, NULL);
		fake_worker_finish(&worker, i, "stop", 0);
	}
	fake_worker_close(&worker);
}

static void
what_no_worker_could_say_before_is_checked_at_the_hand_over(void **state)
{
	Hearth__FrontReply *reply;

	(void)state;
	assert_int_equal(front_submit(&stage, 1, 100, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	assert_int_equal(front_submit(&stage, 2, 2, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	front_case_hello();
	fake_worker_assert_asked(&worker, 2, 2);
	reply = front_read(&stage, 1, 0, 0, 0);
	assert_string_equal(reply->finish, "error");
	assert_int_equal(reply->finish_cause, HEARTH__FRONT_ERROR__FRONT_BAD);
	assert_non_null(strstr(reply->finish_error, "100 tokens, and the context has room for 64"));
	hearth__front_reply__free_unpacked(reply, NULL);
	assert_int_equal(figures().failed, 1);
	fake_worker_close(&worker);
}

static void
an_end_of_other_tokens_than_came_is_an_error(void **state)
{
	(void)state;
	front_case_hello();
	front_submit(&stage, 1, 3, 8);
	fake_worker_token(&worker, 1, 0, 70);
	fake_worker_finish(&worker, 1, "length", 8);
	front_assert_finish(&stage, 1, "error", 1);
	fake_worker_close(&worker);
}

static void
the_state_names_the_first_and_the_sixteenth_token(void **state)
{
	(void)state;
	front_case_hello();
	front_submit(&stage, 1, 3, 40);
	for (uint32_t i = 0; i < 16; i++) {
		fake_worker_token(&worker, 1, i, 70);
		front_token(&stage, 1, i);
		/* The 16th is not there before it came. */
		assert_true((figures().sixteenth_token_ns != 0) == (i == 15));
	}
	assert_true(figures().first_token_ns != 0);
	assert_true(figures().first_token_ns < figures().sixteenth_token_ns);
	fake_worker_close(&worker);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		DECIDED(requests_wait_for_a_worker_and_go_one_at_a_time),
		DECIDED(a_dead_workers_request_goes_on_with_the_next),
		DECIDED(an_end_that_died_with_its_worker_is_known_by_the_tokens),
		DECIDED(given_tokens_are_gone_on_behind),
		DECIDED(a_token_again_or_too_early_is_not_taken),
		DECIDED(a_worker_that_speaks_rubbish_is_not_believed),
		DECIDED(stop_tokens_go_with_the_request_unless_ignored),
		DECIDED(what_no_worker_could_say_before_is_checked_at_the_hand_over),
		DECIDED(an_end_of_other_tokens_than_came_is_an_error),
		DECIDED(the_state_names_the_first_and_the_sixteenth_token),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
