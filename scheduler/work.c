#include "scheduler/work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "proto/limits.h"
#include "proto/work.pb-c.h"

static int
work_send(struct serving *serving, const Hearth__ToWorker *message)
{
	size_t n = hearth__to_worker__get_packed_size(message);
	uint8_t *bytes = malloc(n + 1);
	int code = -ENOMEM;

	if (bytes) {
		hearth__to_worker__pack(message, bytes);
		code = link_send(serving->work, bytes, n);
	}
	free(bytes);
	return code;
}

static int
send_generate(struct serving *serving, struct session *session)
{
	Hearth__ToWorker message = HEARTH__TO_WORKER__INIT;
	Hearth__Generate generate = HEARTH__GENERATE__INIT;
	Hearth__Sampling sampling = HEARTH__SAMPLING__INIT;
	uint32_t n_stops = 0;

	sampling.temperature = session->temperature;
	sampling.top_k = session->top_k;
	sampling.top_p = session->top_p;
	sampling.seed = session->seed;
	generate.request = session->request;
	generate.ids = session->ids;
	generate.n_ids = session->n_prompt + session->n_tokens;
	generate.prompt_tokens = session->n_prompt;
	generate.max_tokens = session->max_tokens;
	generate.sampling = &sampling;
	if (serving->tokenizer && !session->ignore_stop) {
		generate.stop_ids = (uint32_t *)tokenizer_stops(serving->tokenizer, &n_stops);
		generate.n_stop_ids = n_stops;
	}
	generate.want_logits = session->want_logits;
	message.what_case = HEARTH__TO_WORKER__WHAT_GENERATE;
	message.generate = &generate;
	return work_send(serving, &message);
}

/* Fits the session to this worker: false if it has come to its end by that. */
static bool
fit(struct serving *serving, struct session *session)
{
	struct error err;
	const char *over;

	if (serving_check_prompt(serving, session->ids, session->n_prompt, &err) < 0) {
		session->cause = HEARTH__FRONT_ERROR__FRONT_BAD;
		serving_end(serving, session, "error", err.text);
		return false;
	}
	if (session->max_tokens > serving->context - session->n_prompt)
		session->max_tokens = serving->context - session->n_prompt;
	over = session_over(session, serving->tokenizer);
	if (over)
		serving_end(serving, session, over, NULL);
	return !over;
}

/* Gives the active session to the worker that is linked. */
static void
hand_over(struct serving *serving)
{
	struct session *session = serving->active;
	int code;

	if (!fit(serving, session))
		return;
	code = send_generate(serving, session);
	if (code == -ENOMEM || code == -ENOBUFS) {
		serving_end(serving, session, "error", "no memory to hand the request over");
		return;
	}
	if (code < 0)
		return; /* just gone: the next one says Hello */
	if (!session->begin_ns)
		session->begin_ns = clock_ns();
	if (session->handed++)
		serving->figures.handed_on++;
}

void
work_advance(struct serving *serving)
{
	while (serving->linked && !serving->active && serving->queue.n) {
		serving->active = queue_pop(&serving->queue);
		hand_over(serving);
	}
}

/* Ends a session that goes on, wherever it is. */
static void
work_end(struct serving *serving, struct session *session, const char *finish, const char *why)
{
	Hearth__ToWorker message = HEARTH__TO_WORKER__INIT;
	Hearth__CancelWork cancel = HEARTH__CANCEL_WORK__INIT;

	if (session == serving->active && serving->linked) {
		cancel.request = session->request;
		message.what_case = HEARTH__TO_WORKER__WHAT_CANCEL;
		message.cancel = &cancel;
		work_send(serving, &message); /* a worker that is gone needs none */
	}
	queue_remove(&serving->queue, session);
	serving_end(serving, session, finish, why);
	work_advance(serving);
}

void
work_cancel(struct serving *serving, struct session *session)
{
	work_end(serving, session, "cancelled", NULL);
}

/* The queue first, so that nothing of it is handed over. */
void
work_end_all(struct serving *serving, const char *why)
{
	struct session *session;

	while ((session = queue_pop(&serving->queue)) != NULL) {
		session->cause = HEARTH__FRONT_ERROR__FRONT_AWAY;
		serving_end(serving, session, "error", why);
	}
	if (!serving->active)
		return;
	serving->active->cause = HEARTH__FRONT_ERROR__FRONT_AWAY;
	work_end(serving, serving->active, "error", why);
}

static void
on_hello(struct serving *serving, const Hearth__Hello *hello)
{
	if (hello->context < MIN_CONTEXT || hello->context > MAX_CONTEXT || !hello->vocabulary ||
	    hello->vocabulary > MAX_VOCABULARY) {
		log_error("worker %" PRIu32 ": context %" PRIu32 ", vocabulary %" PRIu32
			  ": want %u to %u and 1 to %u",
			  hello->pid, hello->context, hello->vocabulary, MIN_CONTEXT, MAX_CONTEXT,
			  MAX_VOCABULARY);
		return;
	}
	serving->linked = true;
	serving->context = hello->context;
	serving->vocabulary = hello->vocabulary;
	if (serving->active)
		hand_over(serving);
	work_advance(serving);
}

static void
on_token(struct serving *serving, const Hearth__Token *token)
{
	struct session *session = serving->active;
	enum session_added added;

	if (!session || session->request != token->request)
		return; /* of a request that is over */
	if (token->index == 0 && session->n_tokens == 0 &&
	    session_keep_logits(session, token->logits.data, token->logits.len) < 0)
		log_error("no memory for logits of %zu bytes", token->logits.len);
	if (token->id >= serving->vocabulary) {
		log_error("request %016" PRIx64 ": token %" PRIu32 " is %" PRIu32
			  ", want less than %" PRIu32 ": ignored",
			  token->request, token->index, token->id, serving->vocabulary);
		return;
	}
	if (session_add(session, token->index, token->id, serving->tokenizer, &added) < 0) {
		work_end(serving, session, "error", "no memory for another token");
		return;
	}
	if (added == SESSION_DIFFERENT)
		log_error("request %016" PRIx64 ": token %" PRIu32 " came again as %" PRIu32
			  " and was %" PRIu32 ": the first is kept",
			  token->request, token->index, token->id,
			  session->ids[session->n_prompt + token->index]);
	if (added != SESSION_ADDED)
		return;
	session->compute_ns += token->compute_ns;
	serving->figures.tokens++;
	serving_told(serving, session);
}

/* One of the four words, ours to keep. */
static const char *
finish_word(const char *said)
{
	static const char *const words[] = { "length", "stop", "cancelled" };

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcmp(said, words[i]))
			return words[i];
	}
	return "error";
}

static void
on_finished(struct serving *serving, const Hearth__Finished *finished)
{
	struct session *session = serving->active;

	if (!session || session->request != finished->request)
		return;
	if (finished->tokens != session->n_tokens && strcmp(finished->finish, "error") != 0)
		serving_end(serving, session, "error",
			    "the worker's end names other tokens than it gave");
	else
		serving_end(serving, session, finish_word(finished->finish), finished->error);
	work_advance(serving);
}

static void
on_message(struct serving *serving, const uint8_t *bytes, size_t n)
{
	Hearth__FromWorker *message = hearth__from_worker__unpack(NULL, n, bytes);

	if (!message) {
		log_error("work: a message of %zu bytes that does not parse: ignored", n);
		return;
	}
	pthread_mutex_lock(&serving->lock);
	switch (message->what_case) {
	case HEARTH__FROM_WORKER__WHAT_HELLO:
		on_hello(serving, message->hello);
		break;
	case HEARTH__FROM_WORKER__WHAT_TOKEN:
		on_token(serving, message->token);
		break;
	case HEARTH__FROM_WORKER__WHAT_FINISHED:
		on_finished(serving, message->finished);
		break;
	default:
		log_error("work: a message without content: ignored");
	}
	serving_publish(serving);
	pthread_mutex_unlock(&serving->lock);
	hearth__from_worker__free_unpacked(message, NULL);
}

static void
on_link(void *arg, enum link_event event, const uint8_t *bytes, size_t n)
{
	struct serving *serving = arg;

	if (event == LINK_MESSAGE) {
		on_message(serving, bytes, n);
		return;
	}
	pthread_mutex_lock(&serving->lock);
	serving->linked = false; /* until it says Hello */
	serving_publish(serving);
	pthread_mutex_unlock(&serving->lock);
}

int
work_open(struct serving *serving, const char *dir, struct error *err)
{
	return link_listen(&serving->work, dir, "work", on_link, serving, err);
}

void
work_close(struct serving *serving)
{
	link_close(serving->work);
	serving->work = NULL;
}
