/* worker/serve.h: what the arithmetic is asked for, and when it goes ahead.  (That nobody reads
 * what was begun and not asked for, the tests of serve and of its lives show: fake_compute.h.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/serve_stage.h"

#define TOKENS 6u

static void
each_greedy_token_but_the_last_goes_ahead(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 1);

	send_ask(stage, &text, 1, TOKENS);
	read_tokens(stage, &text, 1, TOKENS);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.forwards, TOKENS);
	assert_int_equal(stage->compute.ahead, TOKENS - 1);
	assert_int_equal(stage->compute.begun, TOKENS - 1);
	assert_int_equal(stage->compute.logits_given, 0);
}

static void
no_batch_of_a_prompt_goes_ahead_but_the_last(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(3 * COMPUTE_BATCH, 2);

	send_ask(stage, &text, 1, 2);
	read_tokens(stage, &text, 1, 2);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.forwards, 3 + 1);
	assert_int_equal(stage->compute.ahead, 1);
	assert_int_equal(stage->compute.begun, 1);
}

static void
the_context_s_last_position_is_not_begun(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(CONTEXT - 3, 3);

	send_ask(stage, &text, 1, 100);
	read_tokens(stage, &text, 1, 3);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.ahead, 2);
}

/* Whatever it gives, token by token. */
static void
take_tokens(struct stage *stage, uint64_t request, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		Hearth__FromWorker *message = fake_scheduler_next(&stage->scheduler);

		assert_non_null(message->token);
		assert_int_equal(message->token->index, i);
		hearth__from_worker__free_unpacked(message, NULL);
	}
	fake_scheduler_finish(&stage->scheduler, request, "length");
}

static void
what_is_drawn_asks_for_all_logits_and_never_goes_ahead(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 4);
	Hearth__Generate generate = ask(&text, 1, TOKENS);
	Hearth__Sampling sampling = HEARTH__SAMPLING__INIT;

	sampling.temperature = 0.8f;
	sampling.top_p = 1;
	generate.sampling = &sampling;
	fake_scheduler_send(&stage->scheduler, &generate);
	take_tokens(stage, 1, TOKENS);
	assert_int_equal(stage->compute.logits_given, TOKENS);
	assert_int_equal(stage->compute.ahead, 0);
}

static void
the_best_of_one_is_greedy(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 5);
	Hearth__Generate generate = ask(&text, 1, TOKENS);
	Hearth__Sampling sampling = HEARTH__SAMPLING__INIT;

	sampling.temperature = 0.8f;
	sampling.top_k = 1;
	generate.sampling = &sampling;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 1, TOKENS);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.logits_given, 0);
	assert_int_equal(stage->compute.begun, TOKENS - 1);
}

static void
logits_that_are_wanted_are_those_of_token_0(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 6);
	Hearth__Generate generate = ask(&text, 1, TOKENS);

	generate.want_logits = true;
	fake_scheduler_send(&stage->scheduler, &generate);
	take_tokens(stage, 1, TOKENS);
	assert_int_equal(stage->compute.logits_given, 1);
	assert_int_equal(stage->compute.begun, TOKENS - 1);
}

/* A stop id is what nobody knows before: one token was begun in vain. */
static void
what_was_begun_behind_a_stop_id_is_in_no_other_answer(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 7), longer;
	Hearth__Generate generate = ask(&text, 1, 100);
	struct text ahead = text;
	uint32_t stop = text_grow(&ahead);

	generate.n_stop_ids = 1;
	generate.stop_ids = &stop;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 1, 1);
	fake_scheduler_finish(&stage->scheduler, 1, "stop");
	assert_int_equal(stage->compute.ahead, 1);
	longer = text;
	longer.prompt = longer.n;
	for (uint32_t i = 0; i < 3; i++)
		longer.ids[longer.n++] = longer.prompt++;
	send_ask(stage, &longer, 2, 4);
	read_tokens(stage, &longer, 2, 4);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, 5 + 4 + 3);
	assert_int_equal(stage->compute.begun, 3);
}

/* A device may have threads awake for it. */
static void
what_nobody_will_ask_for_is_dropped(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 8);
	Hearth__Generate generate = ask(&text, 1, 100);
	struct text ahead = text;
	uint32_t stop = text_grow(&ahead);

	send_ask(stage, &text, 7, 1);
	take_tokens(stage, 7, 1);
	wait_for_upkeep_after(stage);
	assert_int_equal(stage->compute.dropped, 0);
	generate.n_stop_ids = 1;
	generate.stop_ids = &stop;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 1, 1);
	fake_scheduler_finish(&stage->scheduler, 1, "stop");
	wait_for_upkeep_after(stage);
	assert_int_equal(stage->compute.dropped, 1);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, serve_setup, serve_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(each_greedy_token_but_the_last_goes_ahead),
		RULE(no_batch_of_a_prompt_goes_ahead_but_the_last),
		RULE(the_context_s_last_position_is_not_begun),
		RULE(what_is_drawn_asks_for_all_logits_and_never_goes_ahead),
		RULE(the_best_of_one_is_greedy),
		RULE(logits_that_are_wanted_are_those_of_token_0),
		RULE(what_was_begun_behind_a_stop_id_is_in_no_other_answer),
		RULE(what_nobody_will_ask_for_is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
