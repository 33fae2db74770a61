#include "scheduler/front.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "proto/front.pb-c.h"
#include "proto/limits.h"
#include "scheduler/front_check.h"
#include "scheduler/work.h"

/* One reply holds at most so much of an answer, so that it fits a message beside the logits; the
 * client reads on. */
#define MAX_REPLY_IDS (256u << 10)
#define MAX_REPLY_TEXT (2u << 20)

/* FrontReply { error: FRONT_NOT_READY }, packed: the client asks again. */
static const uint8_t no_memory[] = { 0x08, HEARTH__FRONT_ERROR__FRONT_NOT_READY };

static void
reply(struct call *call, const Hearth__FrontReply *message)
{
	size_t n = hearth__front_reply__get_packed_size(message);
	uint8_t *bytes = malloc(n + 1);

	if (bytes) {
		hearth__front_reply__pack(message, bytes);
		call_reply(call, bytes, n);
	} else {
		call_reply(call, no_memory, sizeof(no_memory));
	}
	free(bytes);
}

static void
reply_error(struct call *call, Hearth__FrontError error, const char *text)
{
	Hearth__FrontReply message = HEARTH__FRONT_REPLY__INIT;

	message.error = error;
	message.error_text = (char *)text;
	reply(call, &message);
}

static double
seconds_since(uint64_t from_ns, uint64_t to_ns)
{
	return to_ns > from_ns ? (double)(to_ns - from_ns) / (double)NS_PER_SECOND : 0;
}

static void
put_times(Hearth__FrontReply *message, const struct session *session)
{
	uint64_t end = session->end_ns ? session->end_ns : clock_ns();
	uint64_t begin = session->begin_ns ? session->begin_ns : end;

	message->seconds_queued = seconds_since(session->submit_ns, begin);
	message->seconds_first_token = seconds_since(session->submit_ns, session->first_ns);
	message->seconds_total = seconds_since(session->submit_ns, end);
	message->compute_ns = session->compute_ns;
}

/* What there is from the read's places on. */
static void
reply_read(struct call *call, const struct session *session, uint32_t from_index,
	   uint64_t from_byte)
{
	Hearth__FrontReply message = HEARTH__FRONT_REPLY__INIT;
	size_t n_ids = 0, n_text = 0, visible = session_visible(session);
	bool whole;

	if (from_index < session->n_tokens)
		n_ids = session->n_tokens - from_index;
	if (from_byte < visible)
		n_text = visible - from_byte;
	whole = n_ids <= MAX_REPLY_IDS && n_text <= MAX_REPLY_TEXT;
	message.n_ids = n_ids < MAX_REPLY_IDS ? n_ids : MAX_REPLY_IDS;
	message.text.len = n_text < MAX_REPLY_TEXT ? n_text : MAX_REPLY_TEXT;
	if (n_ids)
		message.ids = session->ids + session->n_prompt + from_index;
	if (n_text)
		message.text.data = session->text + from_byte;
	if (from_index == 0 && n_ids) {
		message.logits.data = session->logits;
		message.logits.len = session->n_logits;
	}
	if (session->finish && whole) {
		message.finish = (char *)session->finish;
		message.finish_error = (char *)session->why.text;
		message.finish_cause = session->cause;
	}
	put_times(&message, session);
	reply(call, &message);
}

static bool
has_news(const struct session *session, uint32_t from_index)
{
	return session->finish || session->n_tokens > from_index;
}

void
front_answer_parked(struct serving *serving, const struct session *session)
{
	struct parked *parked = &serving->parked;

	for (uint32_t i = 0; i < parked->n;) {
		struct parked_read read = parked->reads[i];

		if (read.request != session->request || !has_news(session, read.from_index)) {
			i++;
			continue;
		}
		parked_take(parked, i);
		reply_read(read.call, session, read.from_index, read.from_byte);
	}
}

/* Answers one with what there is. */
static void
let_go(struct serving *serving, uint32_t i)
{
	struct parked_read read = parked_take(&serving->parked, i);
	const struct session *session = sessions_find(&serving->sessions, read.request);

	if (session)
		reply_read(read.call, session, read.from_index, read.from_byte);
	else
		reply_error(read.call, HEARTH__FRONT_ERROR__FRONT_UNKNOWN, "no such request");
}

/* Gives the time of the next one, 0: none. */
static uint64_t
cancel_unread(struct serving *serving, uint64_t now_ns)
{
	struct session *session;

	while ((session = sessions_unheard(&serving->sessions)) != NULL) {
		if (session->heard_ns + serving->unread_ns > now_ns)
			return session->heard_ns + serving->unread_ns;
		log_info("request %016" PRIx64 ": not read for %.0f s: cancelled", session->request,
			 (double)serving->unread_ns / (double)NS_PER_SECOND);
		work_cancel(serving, session);
		serving_publish(serving);
	}
	return 0;
}

uint64_t
front_expire(struct serving *serving, uint64_t now_ns)
{
	uint64_t next, unread;

	pthread_mutex_lock(&serving->lock);
	for (uint32_t i = 0; i < serving->parked.n;) {
		if (serving->parked.reads[i].deadline_ns <= now_ns)
			let_go(serving, i);
		else
			i++;
	}
	unread = cancel_unread(serving, now_ns);
	next = parked_deadline(&serving->parked);
	if (!next || (unread && unread < next))
		next = unread;
	pthread_mutex_unlock(&serving->lock);
	return next;
}

/* A client of the session is there; with the lock held, as the next four. */
static void
hear(struct session *session)
{
	uint64_t now = clock_ns();

	if (session->heard_ns < now)
		session->heard_ns = now;
}

static void
park(struct serving *serving, struct call *call, struct session *session, const Hearth__Read *read)
{
	uint32_t wait_ms = read->wait_ms < MAX_READ_WAIT_MS ? read->wait_ms : MAX_READ_WAIT_MS;
	uint64_t first = parked_deadline(&serving->parked);
	struct parked_read parked = { .call = call,
				      .request = read->request,
				      .from_index = read->from_index,
				      .from_byte = read->from_byte,
				      .deadline_ns = clock_ns() + wait_ms * NS_PER_MS };

	if (serving->parked.n == MAX_PARKED)
		let_go(serving, 0);
	parked_add(&serving->parked, parked);
	if (session->heard_ns < parked.deadline_ns)
		session->heard_ns = parked.deadline_ns;
	if (!first || parked.deadline_ns < first)
		service_wake(serving->service); /* the main thread waits for the first deadline */
}

static void
on_read(struct serving *serving, struct call *call, const Hearth__Read *read)
{
	struct session *session = sessions_find(&serving->sessions, read->request);

	if (session)
		hear(session);
	if (!session)
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_UNKNOWN, "no such request");
	else if (has_news(session, read->from_index) || !read->wait_ms)
		reply_read(call, session, read->from_index, read->from_byte);
	else
		park(serving, call, session, read);
}

static void
on_cancel(struct serving *serving, struct call *call, const Hearth__Cancel *cancel)
{
	struct session *session = sessions_find(&serving->sessions, cancel->request);

	if (!session) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_UNKNOWN, "no such request");
		return;
	}
	if (!session->finish) {
		work_cancel(serving, session);
		serving_publish(serving);
	}
	reply_error(call, HEARTH__FRONT_ERROR__FRONT_OK, "");
}

/* True if the call is answered: the request is known already, or it cannot be looked at now. */
static bool
answer_known(struct serving *serving, struct call *call, const Hearth__Submit *submit)
{
	struct session *session = sessions_find(&serving->sessions, submit->request);
	Hearth__FrontReply message = HEARTH__FRONT_REPLY__INIT;

	if (session) {
		hear(session);
		message.prompt_ids = session->ids;
		message.n_prompt_ids = session->n_prompt;
		reply(call, &message);
		return true;
	}
	if (!serving->decided && serving->away.text[0]) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_AWAY, serving->away.text);
		return true;
	}
	if (!serving->decided) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_NOT_READY,
			    "starting: the model is not known yet");
		return true;
	}
	if (!submit->n_prompt_ids && !serving->tokenizer) {
		struct error err;

		error_set(&err, 0, "no text for this model, only prompt ids: %.400s",
			  serving->note.text);
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_BAD, err.text);
		return true;
	}
	return false;
}

/* With the lock held: `ids` are the prompt's. */
static void
take(struct serving *serving, struct call *call, const Hearth__Submit *submit, const uint32_t *ids,
     uint32_t n_ids)
{
	Hearth__FrontReply message = HEARTH__FRONT_REPLY__INIT;
	struct session *session;
	struct error err;
	int code;

	if (answer_known(serving, call, submit))
		return;
	if (serving->away.text[0]) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_AWAY, serving->away.text);
		return;
	}
	if (serving_check_prompt(serving, ids, n_ids, &err) < 0) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_BAD, err.text);
		return;
	}
	code = session_open(&session, submit, ids, n_ids, serving->tokenizer);
	if (code == 0) {
		code = serving_take(serving, session);
		if (code < 0)
			session_close(session);
	}
	if (code == -ENOSPC) {
		error_set(&err, 0, "the queue is full (%u requests wait): try later",
			  serving->queue.n);
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_FULL, err.text);
	} else if (code < 0) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_FULL, "no memory: try later");
	} else {
		service_wake(serving->service); /* it waits for the first time that is due */
		message.prompt_ids = (uint32_t *)ids;
		message.n_prompt_ids = n_ids;
		reply(call, &message);
	}
}

/* Text is tokenized without the lock: it may be long. */
static void
on_submit(struct serving *serving, struct call *call, const Hearth__Submit *submit)
{
	const struct tokenizer *tokenizer;
	uint32_t *made = NULL, n_ids = (uint32_t)submit->n_prompt_ids;
	struct error err;
	bool answered;

	pthread_mutex_lock(&serving->lock);
	answered = answer_known(serving, call, submit);
	tokenizer = serving->tokenizer;
	pthread_mutex_unlock(&serving->lock);
	if (answered)
		return;
	if (!submit->n_prompt_ids && tokenizer_encode(tokenizer, submit->text, strlen(submit->text),
						      &made, &n_ids, &err) < 0) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_BAD, err.text);
		return;
	}
	pthread_mutex_lock(&serving->lock);
	take(serving, call, submit, made ? made : submit->prompt_ids, n_ids);
	pthread_mutex_unlock(&serving->lock);
	free(made);
}

static void
on_call(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	struct serving *serving = arg;
	Hearth__FrontRequest *request = hearth__front_request__unpack(NULL, n, bytes);
	struct error err;

	if (!request) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_BAD,
			    "a message that does not parse: want hearth.FrontRequest");
		return;
	}
	if (front_check(request, &err) < 0) {
		reply_error(call, HEARTH__FRONT_ERROR__FRONT_BAD, err.text);
	} else if (request->what_case == HEARTH__FRONT_REQUEST__WHAT_SUBMIT) {
		on_submit(serving, call, request->submit);
	} else {
		pthread_mutex_lock(&serving->lock);
		if (request->what_case == HEARTH__FRONT_REQUEST__WHAT_READ)
			on_read(serving, call, request->read);
		else
			on_cancel(serving, call, request->cancel);
		pthread_mutex_unlock(&serving->lock);
	}
	hearth__front_request__free_unpacked(request, NULL);
}

int
front_open(struct server **ret, struct serving *serving, const char *dir, struct error *err)
{
	return server_open(ret, dir, "front", on_call, serving, err);
}
