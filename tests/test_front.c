/* What clients ask, over real sockets: submit, read, cancel, and what makes no sense. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/parked.h"
#include "tests/front_case.h"

static Hearth__FrontReply *
submit_text(const char *text, uint64_t request)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;

	submit.request = request;
	submit.text = (char *)text;
	submit.max_tokens = 8;
	return front_submit_message(&stage, &submit);
}

static void
submitting_again_changes_nothing(void **state)
{
	Hearth__FrontReply *first, *again;

	(void)state;
	first = submit_text("Hello world", 1);
	assert_int_equal(first->error, HEARTH__FRONT_ERROR__FRONT_OK);
	assert_int_equal(first->n_prompt_ids, 4);
	fake_worker_assert_asked(&worker, 1, 4);
	fake_worker_token(&worker, 1, 0, 70);
	assert_int_equal(front_token(&stage, 1, 0), 70);
	again = submit_text("something else", 1);
	assert_int_equal(again->n_prompt_ids, 4);
	assert_memory_equal(first->prompt_ids, again->prompt_ids, 4 * sizeof(uint32_t));
	hearth__front_reply__free_unpacked(first, NULL);
	hearth__front_reply__free_unpacked(again, NULL);
	fake_worker_finish(&worker, 1, "stop", 1);
	front_assert_finish(&stage, 1, "stop", 1);
	assert_int_equal(front_submit(&stage, 1, 3, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	assert_int_equal(front_submit(&stage, 2, 3, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	fake_worker_assert_asked(&worker, 2, 3); /* and not 1 again */
}

struct reading {
	pthread_t thread;
	uint64_t request;
	uint32_t wait_ms;
	Hearth__FrontReply *reply;
};

static void *
read_first(void *arg)
{
	struct reading *reading = arg;

	reading->reply = front_read(&stage, reading->request, 0, 0, reading->wait_ms);
	return NULL;
}

static void
start_reading(struct reading *reading, uint64_t request, uint32_t wait_ms)
{
	*reading = (struct reading){ .request = request, .wait_ms = wait_ms };
	assert_int_equal(pthread_create(&reading->thread, NULL, read_first, reading), 0);
}

static Hearth__FrontReply *
finish_reading(struct reading *reading)
{
	pthread_join(reading->thread, NULL);
	assert_int_equal(reading->reply->error, HEARTH__FRONT_ERROR__FRONT_OK);
	return reading->reply;
}

static void
a_read_waits_for_the_next_token(void **state)
{
	struct reading reading;
	Hearth__FrontReply *reply;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	start_reading(&reading, 1, 10000);
	front_stage_wait_parked(&stage, 1);
	fake_worker_token(&worker, 1, 0, 39);
	reply = finish_reading(&reading);
	assert_int_equal(reply->n_ids, 1);
	assert_int_equal(reply->ids[0], 39);
	assert_int_equal(reply->text.len, 1);
	assert_int_equal(reply->text.data[0], 'H');
	assert_string_equal(reply->finish, "");
	assert_int_equal(reply->compute_ns, 1000);
	hearth__front_reply__free_unpacked(reply, NULL);
}

static void
a_read_ends_with_its_wait(void **state)
{
	Hearth__FrontReply *reply;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	reply = front_read(&stage, 1, 0, 0, 20);
	assert_int_equal(reply->error, HEARTH__FRONT_ERROR__FRONT_OK);
	assert_int_equal(reply->n_ids, 0);
	assert_string_equal(reply->finish, "");
	hearth__front_reply__free_unpacked(reply, NULL);
}

static void
a_finish_answers_who_waits(void **state)
{
	struct reading reading;
	Hearth__FrontReply *reply;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	start_reading(&reading, 1, 10000);
	front_stage_wait_parked(&stage, 1);
	fake_worker_finish(&worker, 1, "error", 0);
	reply = finish_reading(&reading);
	assert_string_equal(reply->finish, "error");
	hearth__front_reply__free_unpacked(reply, NULL);
}

/* As many as there are calls, and some more. */
static void
more_readers_than_calls_do_not_block_a_submit(void **state)
{
	static struct reading readings[SERVER_CALLS + 6];
	const size_t n = sizeof(readings) / sizeof(readings[0]);

	(void)state;
	front_submit(&stage, 1, 3, 8);
	for (size_t i = 0; i < n; i++)
		start_reading(&readings[i], 1, 10000);
	front_stage_wait_parked(&stage, MAX_PARKED);
	assert_int_equal(front_submit(&stage, 2, 3, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	assert_int_equal(front_cancel(&stage, 1), HEARTH__FRONT_ERROR__FRONT_OK);
	for (size_t i = 0; i < n; i++)
		hearth__front_reply__free_unpacked(finish_reading(&readings[i]), NULL);
}

static void
a_client_that_leaves_while_it_waits_costs_nothing(void **state)
{
	/* FrontRequest { read { request: 1, wait_ms: 10000 } } */
	const uint8_t bytes[] = { 0x12, 12, 0x09, 1, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x90, 0x4e };
	struct client *client;
	struct error err;
	uint8_t *answer;
	size_t n;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(client_open(&client, stage.scratch.dir, "front", &err), 0);
		assert_int_equal(client_ask(client, bytes, sizeof(bytes), 20, &answer, &n),
				 -ETIMEDOUT);
		client_close(client);
	}
	fake_worker_token(&worker, 1, 0, 39);
	assert_int_equal(front_token(&stage, 1, 0), 39);
	front_stage_wait_parked(&stage, 0);
	assert_int_equal(front_submit(&stage, 2, 3, 8), HEARTH__FRONT_ERROR__FRONT_OK);
}

static void
who_is_not_known_is_told_so(void **state)
{
	(void)state;
	front_assert_refused(front_read(&stage, 9, 0, 0, 10000), HEARTH__FRONT_ERROR__FRONT_UNKNOWN,
			     "");
	assert_int_equal(front_cancel(&stage, 9), HEARTH__FRONT_ERROR__FRONT_UNKNOWN);
}

static void
rubbish_is_answered_and_changes_nothing(void **state)
{
	uint8_t bytes[64], *answer;
	Hearth__FrontReply *reply;
	struct client *client;
	struct error err;
	size_t n;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	assert_int_equal(client_open(&client, stage.scratch.dir, "front", &err), 0);
	for (uint32_t i = 0; i < 100; i++) {
		for (size_t j = 0; j < sizeof(bytes); j++)
			bytes[j] = (uint8_t)((i * 2654435761ull + j * 40503ull) >> 7);
		assert_int_equal(client_ask(client, bytes, i % sizeof(bytes), 20000, &answer, &n),
				 0);
		reply = hearth__front_reply__unpack(NULL, n, answer);
		assert_non_null(reply);
		assert_true(reply->error == HEARTH__FRONT_ERROR__FRONT_BAD);
		assert_true(reply->error_text[0] != 0);
		hearth__front_reply__free_unpacked(reply, NULL);
		free(answer);
	}
	client_close(client);
	fake_worker_token(&worker, 1, 0, 39);
	assert_int_equal(front_token(&stage, 1, 0), 39);
}

static void
text_comes_in_whole_characters(void **state)
{
	const uint32_t face[] = { 172, 253, 246, 222 }; /* one character's four bytes */
	Hearth__FrontReply *reply;

	(void)state;
	front_submit(&stage, 1, 3, 8);
	for (uint32_t i = 0; i < 4; i++) {
		fake_worker_token(&worker, 1, i, face[i]);
		reply = front_read(&stage, 1, i, 0, 10000);
		assert_int_equal(reply->n_ids, 1);
		assert_int_equal(reply->text.len, i < 3 ? 0 : 4);
		hearth__front_reply__free_unpacked(reply, NULL);
	}
	reply = front_read(&stage, 1, 4, 2, 0); /* from a byte on */
	assert_int_equal(reply->text.len, 2);
	hearth__front_reply__free_unpacked(reply, NULL);
}

static void
logits_come_with_the_first_token_to_who_wants_them(void **state)
{
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	Hearth__Token token = HEARTH__TOKEN__INIT;
	Hearth__FrontReply *reply;
	uint32_t id = 1;

	(void)state;
	submit.request = 1;
	submit.prompt_ids = &id;
	submit.n_prompt_ids = 1;
	submit.max_tokens = 8;
	submit.want_logits = true;
	hearth__front_reply__free_unpacked(front_submit_message(&stage, &submit), NULL);
	token.request = 1;
	token.id = 70;
	token.logits.data = (uint8_t *)"floats..";
	token.logits.len = 8;
	message.what_case = HEARTH__FROM_WORKER__WHAT_TOKEN;
	message.token = &token;
	fake_worker_send(&worker, &message);
	reply = front_read(&stage, 1, 0, 0, 10000);
	assert_int_equal(reply->logits.len, 8);
	assert_memory_equal(reply->logits.data, "floats..", 8);
	hearth__front_reply__free_unpacked(reply, NULL);
}

static void
before_the_model_is_known_nothing_is_taken(void **state)
{
	(void)state;
	front_assert_refused(submit_text("Hello", 1), HEARTH__FRONT_ERROR__FRONT_NOT_READY,
			     "starting");
	assert_int_equal(front_submit(&stage, 2, 3, 8), HEARTH__FRONT_ERROR__FRONT_NOT_READY);
	front_stage_decide(&stage, front_stage_tokenizer());
	hearth__front_reply__free_unpacked(submit_text("Hello", 1), NULL);
	assert_int_equal(front_submit(&stage, 2, 3, 8), HEARTH__FRONT_ERROR__FRONT_OK);
}

static void
without_a_tokenizer_ids_are_served_and_text_is_not(void **state)
{
	Hearth__State *said;
	struct error err;

	(void)state;
	front_stage_decide(&stage, NULL);
	front_assert_refused(submit_text("Hello", 1), HEARTH__FRONT_ERROR__FRONT_BAD,
			     "only prompt ids: this file has none");
	assert_int_equal(front_submit(&stage, 2, 3, 8), HEARTH__FRONT_ERROR__FRONT_OK);
	assert_int_equal(board_ask(stage.scratch.dir, "scheduler", 20000, &said, &err), 0);
	assert_int_equal(said->phase, HEARTH__PHASE__PHASE_READY);
	assert_false(said->serving->tokenizer);
	assert_string_equal(said->serving->tokenizer_note, "this file has none");
	hearth__state__free_unpacked(said, NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_WORKER(submitting_again_changes_nothing),
		WITH_WORKER(a_read_waits_for_the_next_token),
		WITH_WORKER(a_read_ends_with_its_wait),
		WITH_WORKER(a_finish_answers_who_waits),
		WITH_WORKER(more_readers_than_calls_do_not_block_a_submit),
		WITH_WORKER(a_client_that_leaves_while_it_waits_costs_nothing),
		WITH_WORKER(who_is_not_known_is_told_so),
		WITH_WORKER(rubbish_is_answered_and_changes_nothing),
		WITH_WORKER(text_comes_in_whole_characters),
		WITH_WORKER(logits_come_with_the_first_token_to_who_wants_them),
		ALONE(before_the_model_is_known_nothing_is_taken),
		ALONE(without_a_tokenizer_ids_are_served_and_text_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
