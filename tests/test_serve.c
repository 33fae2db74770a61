/* worker/serve.h: what a request gets. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/serve_stage.h"

static void
gives_tokens_in_order_and_ends_at_max_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 1);

	send_ask(stage, &text, 77, 20);
	read_tokens(stage, &text, 77, 20);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 77, "length"), 20);
}

static void
a_prompt_of_many_batches_gives_the_same_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(3 * COMPUTE_BATCH + 1, 2);

	send_ask(stage, &text, 1, 3);
	read_tokens(stage, &text, 1, 3);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.forwards, 4 + 2);
}

static void
a_stop_id_is_sent_and_is_the_last(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 3), ahead = text;
	Hearth__Generate generate = ask(&text, 5, 100);
	uint32_t stops[2] = { FAKE_VOCABULARY + 5, 0 }, index = 0;

	stops[1] = text_grow(&ahead);
	for (index = 1; stops[1] == ahead.ids[5] && index < 6; index++)
		stops[1] = text_grow(&ahead);
	generate.n_stop_ids = 2;
	generate.stop_ids = stops;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 5, index);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 5, "stop"), index);
}

static void
a_stop_id_in_the_prompt_stops_nothing(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 3);
	Hearth__Generate generate = ask(&text, 5, 1);
	uint32_t stop = text.ids[4];

	generate.n_stop_ids = 1;
	generate.stop_ids = &stop;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 5, 1);
}

static void
a_full_context_ends_it(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(CONTEXT - 3, 4);

	send_ask(stage, &text, 6, 100);
	read_tokens(stage, &text, 6, 3);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 6, "length"), 3);
	text = text_make(CONTEXT, 4);
	send_ask(stage, &text, 7, 100);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 7, "length"), 0);
}

static void
what_comes_with_its_last_token_only_wants_its_finish(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 5);
	Hearth__Generate generate;
	uint32_t stop;

	text_grow(&text);
	stop = text_grow(&text);
	send_ask(stage, &text, 8, 2);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 8, "length"), 2);
	generate = ask(&text, 9, 100);
	generate.n_stop_ids = 1;
	generate.stop_ids = &stop;
	fake_scheduler_send(&stage->scheduler, &generate);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 9, "stop"), 2);
	assert_int_equal(stage->compute.forwards, 0);
}

static void
a_request_that_cannot_be_ends_with_a_line_and_the_next_is_served(void **state)
{
	struct stage *stage = *state;
	struct text good = text_make(4, 6), text;
	Hearth__Generate generate;
	uint32_t many[CONTEXT + 1] = { 0 };

	text = good;
	text.ids[2] = FAKE_VOCABULARY;
	send_ask(stage, &text, 1, 5);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "error"), 0);
	text = good;
	text.n = text.prompt = 0;
	send_ask(stage, &text, 2, 5);
	fake_scheduler_finish(&stage->scheduler, 2, "error");
	text = good;
	text.prompt = 5;
	send_ask(stage, &text, 3, 5);
	fake_scheduler_finish(&stage->scheduler, 3, "error");
	text.prompt = 0;
	send_ask(stage, &text, 4, 5);
	fake_scheduler_finish(&stage->scheduler, 4, "error");
	generate = ask(&good, 5, 5);
	generate.ids = many;
	generate.n_ids = CONTEXT + 1;
	fake_scheduler_send(&stage->scheduler, &generate);
	fake_scheduler_finish(&stage->scheduler, 5, "error");
	assert_int_equal(stage->compute.entered, 0);
	send_ask(stage, &good, 6, 2);
	read_tokens(stage, &good, 6, 2);
}

static void
logits_that_are_no_numbers_end_it_with_a_line(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(4, 8);

	send_ask(stage, &text, 1, 5);
	read_tokens(stage, &text, 1, 5);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	stage->compute.no_numbers = true;
	text = text_make(4, 9);
	send_ask(stage, &text, 2, 5);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 2, "error"), 0);
	stage->compute.no_numbers = false;
	send_ask(stage, &text, 3, 2);
	read_tokens(stage, &text, 3, 2);
}

static void
rubbish_on_the_link_is_ignored(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(4, 7);
	const uint8_t rubbish[] = { 0xff, 0xff, 0xff, 0x07 };

	fake_scheduler_send_bytes(&stage->scheduler, rubbish, sizeof(rubbish));
	fake_scheduler_send_bytes(&stage->scheduler, rubbish, 0);
	send_ask(stage, &text, 0, 5); /* no id */
	fake_scheduler_cancel(&stage->scheduler, 12345);
	send_ask(stage, &text, 6, 2);
	read_tokens(stage, &text, 6, 2);
	fake_scheduler_finish(&stage->scheduler, 6, "length");
}

static void
logits_come_with_token_0_if_wanted(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(4, 8);
	Hearth__Generate generate = ask(&text, 3, 2);
	Hearth__FromWorker *message;
	float best;

	generate.want_logits = true;
	fake_scheduler_send(&stage->scheduler, &generate);
	message = fake_scheduler_next(&stage->scheduler);
	assert_int_equal(message->token->logits.len, FAKE_VOCABULARY * sizeof(float));
	memcpy(&best, message->token->logits.data + text_grow(&text) * sizeof(float), sizeof(best));
	assert_true(best == 20.0f);
	hearth__from_worker__free_unpacked(message, NULL);
	message = fake_scheduler_next(&stage->scheduler);
	assert_int_equal(message->token->index, 1);
	assert_int_equal(message->token->logits.len, 0);
	hearth__from_worker__free_unpacked(message, NULL);
}

static void
a_shared_prefix_is_not_computed_again(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(100, 9), other = text;

	send_ask(stage, &text, 1, 1);
	read_tokens(stage, &text, 1, 1);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.tokens, 100);
	other.ids[90] = (other.ids[90] + 1) % FAKE_VOCABULARY;
	send_ask(stage, &other, 2, 1);
	read_tokens(stage, &other, 2, 1);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, 110);
	assert_int_equal(tally_when_idle(stage).tokens_kept, 90);
	assert_int_equal(tally_when_idle(stage).tokens_in, 110);
	assert_int_equal(tally_when_idle(stage).tokens_out, 2);
}

static void
the_same_request_again_goes_on_from_its_ids(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(10, 12), again = text;

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 8);
	fake_compute_let(&stage->compute, 4);
	read_tokens(stage, &text, 1, 4);
	fake_compute_wait_entered(&stage->compute, 5);
	text_grow(&again); /* the scheduler knows of one token only */
	send_ask(stage, &again, 1, 8);
	wait_for_order(stage);
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &text, 1, 5); /* of the forward that had begun */
	read_tokens(stage, &again, 1, 8);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 8);
	assert_int_equal(stage->compute.tokens, 10 + 4 + 7);
}

static void
another_request_takes_the_place_of_the_one_at_work(void **state)
{
	struct stage *stage = *state;
	struct text first = text_make(200, 13), second = text_make(6, 14);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &first, 1, 50);
	fake_compute_wait_entered(&stage->compute, 1);
	send_ask(stage, &second, 2, 3);
	wait_for_order(stage);
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &second, 2, 3);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, COMPUTE_BATCH + 6 + 2);
}

static void
a_cancel_ends_it_between_the_batches_of_a_prompt(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(200, 15);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 50);
	fake_compute_wait_entered(&stage->compute, 1);
	fake_scheduler_cancel(&stage->scheduler, 1);
	wait_for_order(stage);
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "cancelled"), 0);
	assert_int_equal(stage->compute.forwards, 1);
	tally_when_idle(stage); /* which the board shows */
	/* What was computed is kept. */
	send_ask(stage, &text, 2, 1);
	read_tokens(stage, &text, 2, 1);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, 200);
}

static void
a_cancel_ends_it_between_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 16);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 50);
	fake_compute_let(&stage->compute, 3);
	read_tokens(stage, &text, 1, 3);
	fake_compute_wait_entered(&stage->compute, 4);
	fake_scheduler_cancel(&stage->scheduler, 1);
	wait_for_order(stage);
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &text, 1, 4);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "cancelled"), 4);
}

static void
a_cancel_of_another_request_changes_nothing(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 17);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 10);
	fake_compute_wait_entered(&stage->compute, 1);
	fake_scheduler_cancel(&stage->scheduler, 2);
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &text, 1, 10);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 10);
}

/* Until another request waits to be taken. */
static void
wait_for_next(struct stage *stage)
{
	bool waits = false;

	while (!waits) {
		sched_yield();
		pthread_mutex_lock(&stage->service.lock);
		waits = stage->requests.next != NULL;
		pthread_mutex_unlock(&stage->service.lock);
	}
}

static void
a_request_that_came_with_the_cancel_of_another_can_be_cancelled(void **state)
{
	struct stage *stage = *state;
	struct text first = text_make(5, 18), second = text_make(6, 19);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &first, 1, 50);
	fake_compute_wait_entered(&stage->compute, 1);
	fake_scheduler_cancel(&stage->scheduler, 1);
	send_ask(stage, &second, 2, 50);
	wait_for_next(stage);
	fake_compute_let(&stage->compute, 1);
	read_tokens(stage, &first, 1, 1);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "cancelled"), 1);
	fake_compute_wait_entered(&stage->compute, 2);
	assert_int_equal(stage->requests.current, 2);
	fake_scheduler_cancel(&stage->scheduler, 2);
	wait_for_order(stage);
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &second, 2, 1);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 2, "cancelled"), 1);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, serve_setup, serve_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(gives_tokens_in_order_and_ends_at_max_tokens),
		RULE(a_prompt_of_many_batches_gives_the_same_tokens),
		RULE(a_stop_id_is_sent_and_is_the_last),
		RULE(a_stop_id_in_the_prompt_stops_nothing),
		RULE(a_full_context_ends_it),
		RULE(what_comes_with_its_last_token_only_wants_its_finish),
		RULE(a_request_that_cannot_be_ends_with_a_line_and_the_next_is_served),
		RULE(logits_that_are_no_numbers_end_it_with_a_line),
		RULE(rubbish_on_the_link_is_ignored),
		RULE(logits_come_with_token_0_if_wanted),
		RULE(a_shared_prefix_is_not_computed_again),
		RULE(the_same_request_again_goes_on_from_its_ids),
		RULE(another_request_takes_the_place_of_the_one_at_work),
		RULE(a_cancel_ends_it_between_the_batches_of_a_prompt),
		RULE(a_cancel_ends_it_between_tokens),
		RULE(a_cancel_of_another_request_changes_nothing),
		RULE(a_request_that_came_with_the_cancel_of_another_can_be_cancelled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
