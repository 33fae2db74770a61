#include "scheduler/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/utf8.h"

/* Room for `more` behind `n` elements of `size` bytes; doubles. */
static int
grow(void **at, size_t n, size_t more, size_t *room, size_t size)
{
	size_t want = *room ? *room : 64;
	void *grown;

	if (n + more <= *room)
		return 0;
	while (want < n + more)
		want *= 2;
	grown = realloc(*at, want * size);
	if (!grown)
		return -ENOMEM;
	*at = grown;
	*room = want;
	return 0;
}

static int
add_text(struct session *session, const uint8_t *at, size_t n)
{
	void *text = session->text;
	int code = grow(&text, session->n_text, n, &session->text_room, 1);

	session->text = text;
	if (code < 0)
		return code;
	memcpy(session->text + session->n_text, at, n);
	session->n_text += n;
	return 0;
}

/* The next token. */
static int
append(struct session *session, uint32_t id, const struct tokenizer *tokenizer)
{
	uint32_t n = session->n_prompt + session->n_tokens;
	size_t room = session->room, n_text = 0;
	void *ids = session->ids;
	const uint8_t *text = NULL;
	int code = grow(&ids, n, 1, &room, sizeof(*session->ids));

	session->ids = ids;
	session->room = (uint32_t)room;
	if (code < 0)
		return code;
	if (tokenizer)
		text = tokenizer_text(tokenizer, id, &n_text);
	if (n_text && add_text(session, text, n_text) < 0)
		return -ENOMEM;
	session->ids[n] = id;
	session->n_tokens++;
	return 0;
}

int
session_open(struct session **ret, const Hearth__Submit *submit, const uint32_t *prompt,
	     uint32_t n_prompt, const struct tokenizer *tokenizer)
{
	struct session *session = calloc(1, sizeof(*session));
	int code = 0;

	if (!session)
		return -ENOMEM;
	session->request = submit->request;
	session->max_tokens = submit->max_tokens;
	session->top_p = 1;
	if (submit->sampling) {
		session->temperature = submit->sampling->temperature;
		session->top_k = submit->sampling->top_k;
		session->top_p = submit->sampling->top_p;
		session->seed = submit->sampling->seed;
	}
	session->want_logits = submit->want_logits;
	session->ignore_stop = submit->ignore_stop;
	session->room = n_prompt + (uint32_t)submit->n_given_ids + 1;
	session->ids = malloc(session->room * sizeof(*session->ids));
	if (!session->ids) {
		free(session);
		return -ENOMEM;
	}
	memcpy(session->ids, prompt, n_prompt * sizeof(*prompt));
	session->n_prompt = n_prompt;
	session->submit_ns = session->heard_ns = clock_ns();
	for (size_t i = 0; i < submit->n_given_ids && code == 0; i++)
		code = append(session, submit->given_ids[i], tokenizer);
	if (code < 0) {
		session_close(session);
		return code;
	}
	*ret = session;
	return 0;
}

void
session_close(struct session *session)
{
	if (!session)
		return;
	free(session->logits);
	free(session->text);
	free(session->ids);
	free(session);
}

int
session_add(struct session *session, uint32_t index, uint32_t id, const struct tokenizer *tokenizer,
	    enum session_added *ret)
{
	int code;

	if (index > session->n_tokens) {
		*ret = SESSION_BEYOND;
		return 0;
	}
	if (index < session->n_tokens) {
		*ret = session->ids[session->n_prompt + index] == id ? SESSION_KNOWN
								     : SESSION_DIFFERENT;
		return 0;
	}
	code = append(session, id, tokenizer);
	if (code < 0)
		return code;
	if (!session->first_ns)
		session->first_ns = clock_ns();
	*ret = SESSION_ADDED;
	return 0;
}

int
session_keep_logits(struct session *session, const uint8_t *at, size_t n)
{
	uint8_t *copy;

	if (!session->want_logits || session->logits || !n)
		return 0;
	copy = malloc(n);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, at, n);
	session->logits = copy;
	session->n_logits = n;
	return 0;
}

const char *
session_over(const struct session *session, const struct tokenizer *tokenizer)
{
	const uint32_t *stops;
	uint32_t n_stops = 0, last;

	if (session->n_tokens && tokenizer && !session->ignore_stop) {
		last = session->ids[session->n_prompt + session->n_tokens - 1];
		stops = tokenizer_stops(tokenizer, &n_stops);
		for (uint32_t i = 0; i < n_stops; i++) {
			if (stops[i] == last)
				return "stop";
		}
	}
	return session->n_tokens >= session->max_tokens ? "length" : NULL;
}

void
session_end(struct session *session, const char *finish, const char *why)
{
	session->finish = finish;
	session->end_ns = clock_ns();
	if (why && *why)
		error_set(&session->why, 0, "%s", why);
}

size_t
session_visible(const struct session *session)
{
	return session->finish ? session->n_text : utf8_whole(session->text, session->n_text);
}
