/* Sessions: tokens by index, text, end, and which are forgotten. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/sessions.h"
#include "tests/front_stage.h"

static struct tokenizer *tokenizer;

static int
open_tokenizer(void **state)
{
	(void)state;
	tokenizer = front_stage_tokenizer();
	return 0;
}

static int
close_tokenizer(void **state)
{
	(void)state;
	tokenizer_close(tokenizer);
	return 0;
}

static struct session *
make(uint64_t request, const uint32_t *given, uint32_t n_given, uint32_t max_tokens)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	const uint32_t prompt[] = { 5, 6, 7 };
	struct session *session;

	submit.request = request;
	submit.max_tokens = max_tokens;
	submit.given_ids = (uint32_t *)given;
	submit.n_given_ids = n_given;
	submit.want_logits = true;
	assert_int_equal(session_open(&session, &submit, prompt, 3, tokenizer), 0);
	return session;
}

static enum session_added
add(struct session *session, uint32_t index, uint32_t id)
{
	enum session_added added;

	assert_int_equal(session_add(session, index, id, tokenizer, &added), 0);
	return added;
}

static void
a_token_has_an_index_and_comes_once(void **state)
{
	struct session *session = make(1, NULL, 0, 10);

	(void)state;
	assert_int_equal(add(session, 0, 70), SESSION_ADDED);
	assert_int_equal(add(session, 0, 70), SESSION_KNOWN);
	assert_int_equal(add(session, 0, 71), SESSION_DIFFERENT);
	assert_int_equal(add(session, 2, 72), SESSION_BEYOND);
	assert_int_equal(session->n_tokens, 1);
	assert_int_equal(session->ids[3], 70);
	assert_int_equal(session->n_text, 1);
	session_close(session);
}

static void
tokens_brought_along_are_the_first_ones(void **state)
{
	const uint32_t given[] = { 39, 578 };
	struct session *session = make(1, given, 2, 10);

	(void)state;
	assert_int_equal(session->n_tokens, 2);
	assert_memory_equal(session->text, "Hel", 3);
	assert_int_equal(add(session, 1, 578), SESSION_KNOWN);
	assert_int_equal(add(session, 2, 78), SESSION_ADDED);
	assert_int_equal(session->n_text, session_visible(session));
	session_close(session);
}

/* 172 253 246 222: the four bytes of one character. */
static void
text_shows_whole_characters_until_the_end(void **state)
{
	const uint32_t face[] = { 172, 253, 246, 222 };
	struct session *session = make(1, NULL, 0, 10);

	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		add(session, i, face[i]);
		assert_int_equal(session_visible(session), 0);
	}
	add(session, 3, face[3]);
	assert_int_equal(session_visible(session), 4);
	assert_memory_equal(session->text, "\xf0\x9f\x98\x80", 4);
	add(session, 4, face[0]);
	assert_int_equal(session_visible(session), 4);
	session_end(session, "length", NULL);
	assert_int_equal(session_visible(session), 5); /* nothing is held back for good */
	session_close(session);
}

static void
tokens_alone_say_when_it_is_over(void **state)
{
	struct session *session = make(1, NULL, 0, 2);

	(void)state;
	assert_null(session_over(session, tokenizer));
	add(session, 0, 2045);
	assert_string_equal(session_over(session, tokenizer), "stop");
	assert_int_equal(session->n_text, 0); /* a control token has no text */
	assert_null(session_over(session, NULL));
	session->ignore_stop = true;
	assert_null(session_over(session, tokenizer));
	add(session, 1, 70);
	assert_string_equal(session_over(session, tokenizer), "length");
	session_close(session);
}

static void
the_first_logits_stay(void **state)
{
	struct session *session = make(1, NULL, 0, 2);

	(void)state;
	assert_int_equal(session_keep_logits(session, (const uint8_t *)"abcd", 4), 0);
	assert_int_equal(session_keep_logits(session, (const uint8_t *)"wxyz12", 6), 0);
	assert_int_equal(session->n_logits, 4);
	assert_memory_equal(session->logits, "abcd", 4);
	session_close(session);
	session = make(2, NULL, 0, 2);
	session->want_logits = false;
	assert_int_equal(session_keep_logits(session, (const uint8_t *)"abcd", 4), 0);
	assert_null(session->logits);
	session_close(session);
}

static void
ended_sessions_are_forgotten_oldest_first(void **state)
{
	struct sessions sessions = { 0 };
	uint64_t live = 100000;

	(void)state;
	assert_int_equal(sessions_add(&sessions, make(live, NULL, 0, 1)), 0);
	for (uint64_t i = 1; i <= MAX_KEPT_SESSIONS + 2; i++)
		assert_int_equal(sessions_add(&sessions, make(i, NULL, 0, 1)), 0);
	/* In the order of their end, not of their coming. */
	sessions_retire(&sessions, sessions_find(&sessions, 2));
	sessions_retire(&sessions, sessions_find(&sessions, 1));
	for (uint64_t i = 3; i <= MAX_KEPT_SESSIONS; i++)
		sessions_retire(&sessions, sessions_find(&sessions, i));
	assert_non_null(sessions_find(&sessions, 2));
	sessions_retire(&sessions, sessions_find(&sessions, MAX_KEPT_SESSIONS + 1));
	assert_null(sessions_find(&sessions, 2));
	assert_non_null(sessions_find(&sessions, 1));
	sessions_retire(&sessions, sessions_find(&sessions, MAX_KEPT_SESSIONS + 2));
	assert_null(sessions_find(&sessions, 1));
	assert_non_null(sessions_find(&sessions, 3));
	assert_non_null(sessions_find(&sessions, live)); /* goes on: never forgotten */
	assert_int_equal(sessions.n, MAX_KEPT_SESSIONS + 1);
	sessions_close(&sessions);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_has_an_index_and_comes_once),
		cmocka_unit_test(tokens_brought_along_are_the_first_ones),
		cmocka_unit_test(text_shows_whole_characters_until_the_end),
		cmocka_unit_test(tokens_alone_say_when_it_is_over),
		cmocka_unit_test(the_first_logits_stay),
		cmocka_unit_test(ended_sessions_are_forgotten_oldest_first),
	};

	return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
