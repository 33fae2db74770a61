#include "scheduler/serving.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "proto/limits.h"
#include "scheduler/front.h"
#include "scheduler/work.h"

int
serving_open(struct serving *serving, struct service *service, struct board *board,
	     uint32_t queue_limit, struct error *err)
{
	*serving = (struct serving){ .service = service,
				     .board = board,
				     .queue_limit = queue_limit,
				     .unread_ns = MAX_UNREAD_MS * NS_PER_MS };
	pthread_mutex_init(&serving->lock, NULL);
	if (queue_open(&serving->queue, queue_limit + 1) < 0)
		return error_sys(err, -ENOMEM, "a queue of %" PRIu32, queue_limit);
	pthread_mutex_lock(&serving->lock);
	serving_publish(serving);
	pthread_mutex_unlock(&serving->lock);
	return 0;
}

void
serving_close(struct serving *serving)
{
	queue_close(&serving->queue);
	sessions_close(&serving->sessions);
	tokenizer_close(serving->tokenizer);
	pthread_mutex_destroy(&serving->lock);
}

void
serving_decide(struct serving *serving, struct tokenizer *tokenizer, const char *note)
{
	pthread_mutex_lock(&serving->lock);
	serving->tokenizer = tokenizer;
	error_set(&serving->note, 0, "%s", note);
	serving->decided = true;
	serving_publish(serving);
	pthread_mutex_unlock(&serving->lock);
}

void
serving_away(struct serving *serving, const char *why)
{
	pthread_mutex_lock(&serving->lock);
	if (strcmp(serving->away.text, why) != 0) {
		error_set(&serving->away, 0, "%s", why);
		if (why[0])
			work_end_all(serving, why);
		serving_publish(serving);
	}
	pthread_mutex_unlock(&serving->lock);
}

int
serving_check_prompt(const struct serving *serving, const uint32_t *ids, uint32_t n,
		     struct error *err)
{
	if (!n)
		return error_set(err, -EINVAL, "an empty prompt: want at least one token");
	if (serving->context && n >= serving->context)
		return error_set(err, -EINVAL,
				 "a prompt of %" PRIu32 " tokens, and the context has room for "
				 "%" PRIu32 ": want at most %" PRIu32
				 " (a larger --ctx gives more)",
				 n, serving->context, serving->context - 1);
	for (uint32_t i = 0; serving->vocabulary && i < n; i++) {
		if (ids[i] >= serving->vocabulary)
			return error_set(err, -EINVAL,
					 "token %" PRIu32 " of the prompt is %" PRIu32
					 ", want less than %" PRIu32 ", the vocabulary",
					 i, ids[i], serving->vocabulary);
	}
	return 0;
}

int
serving_take(struct serving *serving, struct session *session)
{
	/* Where none is active, the first in the queue is as good as active: after a restart there
	 * is room for as many as before. */
	if (serving->queue.n + (serving->active ? 1 : 0) > serving->queue_limit) {
		serving->figures.refused++;
		serving_publish(serving);
		return -ENOSPC;
	}
	if (sessions_add(&serving->sessions, session) < 0)
		return -ENOMEM;
	queue_push(&serving->queue, session);
	work_advance(serving);
	serving_publish(serving);
	return 0;
}

void
serving_told(struct serving *serving, struct session *session)
{
	struct serving_figures *figures = &serving->figures;

	front_answer_parked(serving, session);
	if (!figures->first_request)
		figures->first_request = session->request;
	if (figures->first_request != session->request || session->finish)
		return;
	figures->first_tokens++;
	if (figures->first_tokens == 1)
		figures->first_token_ns = clock_ns();
	if (figures->first_tokens == 16)
		figures->sixteenth_token_ns = clock_ns();
}

void
serving_end(struct serving *serving, struct session *session, const char *finish, const char *why)
{
	struct serving_figures *figures = &serving->figures;

	session_end(session, finish, why);
	if (!strcmp(finish, "cancelled"))
		figures->cancelled++;
	else if (!strcmp(finish, "error"))
		figures->failed++;
	else if (++figures->done == 1)
		service_wake(serving->service); /* the main thread tells that it has been of use */
	if (serving->active == session)
		serving->active = NULL;
	front_answer_parked(serving, session);
	sessions_retire(&serving->sessions, session);
}

bool
serving_has_answered(struct serving *serving)
{
	bool has;

	pthread_mutex_lock(&serving->lock);
	has = serving->figures.done > 0;
	pthread_mutex_unlock(&serving->lock);
	return has;
}

/* What is missing, as a line. */
static void
publish_phase(const struct serving *serving, Hearth__State *state)
{
	if (!serving->decided) {
		state->phase = HEARTH__PHASE__PHASE_STARTING;
		board_text(&state->reason, "%s",
			   serving->away.text[0] ? serving->away.text
						 : "waiting for the loader to name the model");
		return;
	}
	state->phase = HEARTH__PHASE__PHASE_READY;
	if (serving->away.text[0])
		board_text(&state->reason, "%s", serving->away.text);
	else
		board_text(&state->reason, "%s", serving->linked ? "" : "waiting for a worker");
}

void
serving_publish(struct serving *serving)
{
	const struct serving_figures *figures = &serving->figures;
	Hearth__State *state = board_edit(serving->board);
	Hearth__Serving *to = board_serving(state);

	publish_phase(serving, state);
	if (to) {
		to->queued = serving->queue.n;
		to->queue_limit = serving->queue_limit;
		to->active = serving->active != NULL;
		to->done = figures->done;
		to->cancelled = figures->cancelled;
		to->failed = figures->failed;
		to->refused = figures->refused;
		to->handed_on = figures->handed_on;
		to->tokens = figures->tokens;
		to->tokenizer = serving->tokenizer != NULL;
		board_text(&to->tokenizer_note, "%s", serving->note.text);
		to->worker_linked = serving->linked;
		to->first_token_ns = figures->first_token_ns;
		to->sixteenth_token_ns = figures->sixteenth_token_ns;
	}
	board_publish(serving->board);
}
