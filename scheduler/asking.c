#include "scheduler/asking.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/clock.h"
#include "proto/limits.h"
#include "scheduler/hope.h"

/* Beyond what a read may wait: no answer by then is a scheduler that hangs. */
#define ANSWER_MS 10000
#define FIRST_PAUSE_NS (5 * NS_PER_MS)
#define MAX_PAUSE_NS (250 * NS_PER_MS)

/* One exchange; *ret is the caller's to free with free_unpacked. */
static int
exchange(struct client *client, const Hearth__FrontRequest *request, int timeout_ms,
	 Hearth__FrontReply **ret)
{
	size_t n = hearth__front_request__get_packed_size(request), n_answer;
	uint8_t *bytes = malloc(n + 1), *answer;
	int code;

	if (!bytes)
		return -ENOMEM;
	hearth__front_request__pack(request, bytes);
	code = client_ask(client, bytes, n, timeout_ms, &answer, &n_answer);
	free(bytes);
	if (code < 0)
		return code;
	*ret = hearth__front_reply__unpack(NULL, n_answer, answer);
	free(answer);
	return *ret ? 0 : -EPROTO;
}

static bool
may_come_back(int code)
{
	return code == -ECONNREFUSED || code == -ECONNRESET || code == -ETIMEDOUT;
}

/* Before another try; pauses grow.  -ECANCELED: interrupted. */
static int
pause_for(struct asking *asking, int code, const char *what, struct error *err)
{
	uint64_t now = clock_ns();
	int hope;

	if (!asking->patience_ns) {
		asking->patience_ns = now + ASKING_PATIENCE_S * NS_PER_SECOND;
		asking->pause_ns = FIRST_PAUSE_NS;
	}
	hope = hope_look(asking->dir, asking->supervised, err);
	if (hope < 0)
		return hope;
	if (now >= asking->patience_ns)
		return error_sys(err, code, "%s/front: %s for %d seconds", asking->dir, what,
				 ASKING_PATIENCE_S);
	if (!interrupt_pause(asking->interrupt, now + asking->pause_ns))
		return -ECANCELED;
	asking->pause_ns *= 2;
	if (asking->pause_ns > MAX_PAUSE_NS)
		asking->pause_ns = MAX_PAUSE_NS;
	return 0;
}

/* An exchange, tried until the scheduler answers and is ready.  NULL: *ret_code is -errno. */
static Hearth__FrontReply *
persist(struct asking *asking, const Hearth__FrontRequest *request, int *ret_code,
	struct error *err)
{
	Hearth__FrontReply *reply;
	const char *what;
	int code;

	do {
		code = exchange(asking->client, request, MAX_READ_WAIT_MS + ANSWER_MS, &reply);
		if (code == 0 && reply->error != HEARTH__FRONT_ERROR__FRONT_NOT_READY) {
			asking->patience_ns = 0;
			return reply;
		}
		what = code == 0 ? "not ready" : "no answer";
		if (code == 0) {
			hearth__front_reply__free_unpacked(reply, NULL);
			code = -EAGAIN;
		} else if (!may_come_back(code)) {
			*ret_code = error_sys(err, code, "%s/front", asking->dir);
			return NULL;
		}
		code = pause_for(asking, code, what, err);
	} while (code == 0);
	*ret_code = code;
	return NULL;
}

static int
grow(void **at, size_t n, size_t *room, size_t size)
{
	size_t want = *room ? *room : 256;
	void *grown;

	while (want < n)
		want *= 2;
	if (want == *room)
		return 0;
	grown = realloc(*at, want * size);
	if (!grown)
		return -ENOMEM;
	*at = grown;
	*room = want;
	return 0;
}

static int
keep_prompt(struct asking *asking, const Hearth__FrontReply *reply, struct error *err)
{
	if (asking->prompt_ids)
		return 0;
	asking->prompt_ids = malloc((reply->n_prompt_ids + 1) * sizeof(*asking->prompt_ids));
	if (!asking->prompt_ids)
		return error_sys(err, -ENOMEM, "the prompt's ids");
	if (reply->n_prompt_ids)
		memcpy(asking->prompt_ids, reply->prompt_ids,
		       reply->n_prompt_ids * sizeof(*asking->prompt_ids));
	asking->n_prompt_ids = reply->n_prompt_ids;
	return 0;
}

static int
submit(struct asking *asking, struct error *err)
{
	Hearth__FrontRequest request = HEARTH__FRONT_REQUEST__INIT;
	Hearth__FrontReply *reply;
	int code;

	request.what_case = HEARTH__FRONT_REQUEST__WHAT_SUBMIT;
	request.submit = &asking->submit;
	asking->submit.given_ids = asking->ids;
	asking->submit.n_given_ids = asking->n_ids;
	asking->compute_before_s = asking->compute_s;
	reply = persist(asking, &request, &code, err);
	if (!reply)
		return code;
	if (reply->error == HEARTH__FRONT_ERROR__FRONT_FULL)
		code = error_set(err, -EBUSY, "%s", reply->error_text);
	else if (reply->error == HEARTH__FRONT_ERROR__FRONT_AWAY)
		code = error_set(err, -ENOTCONN, "%s", reply->error_text);
	else if (reply->error != HEARTH__FRONT_ERROR__FRONT_OK)
		code = error_set(err, -EINVAL, "%s", reply->error_text);
	else
		code = keep_prompt(asking, reply, err);
	hearth__front_reply__free_unpacked(reply, NULL);
	return code;
}

/* Keeps what a read brought and hands it on. */
static int
keep(struct asking *asking, const Hearth__FrontReply *reply, struct error *err)
{
	void *ids = asking->ids, *text = asking->text;
	int code =
	    grow(&ids, asking->n_ids + reply->n_ids, &asking->ids_room, sizeof(*asking->ids));

	asking->ids = ids;
	if (code == 0)
		code = grow(&text, asking->n_text + reply->text.len, &asking->text_room, 1);
	asking->text = text;
	if (code < 0)
		return error_sys(err, code, "the answer");
	if (reply->n_ids && !asking->n_ids)
		asking->first_token_s =
		    (double)(clock_ns() - asking->begin_ns) / (double)NS_PER_SECOND;
	if (reply->n_ids)
		memcpy(asking->ids + asking->n_ids, reply->ids, reply->n_ids * sizeof(*reply->ids));
	if (reply->text.len)
		memcpy(asking->text + asking->n_text, reply->text.data, reply->text.len);
	asking->n_ids += reply->n_ids;
	asking->n_text += reply->text.len;
	asking->compute_s =
	    asking->compute_before_s + (double)reply->compute_ns / (double)NS_PER_SECOND;
	return 0;
}

static int
keep_logits(struct asking *asking, const Hearth__FrontReply *reply, struct error *err)
{
	if (!reply->logits.len || asking->logits)
		return 0;
	asking->logits = malloc(reply->logits.len);
	if (!asking->logits)
		return error_sys(err, -ENOMEM, "logits of %zu bytes", reply->logits.len);
	memcpy(asking->logits, reply->logits.data, reply->logits.len);
	asking->n_logits = reply->logits.len;
	return 0;
}

static void
end(struct asking *asking, const char *finish, Hearth__FrontError cause, const char *why)
{
	asking->cause = cause;
	strncpy(asking->finish, finish, sizeof(asking->finish) - 1);
	error_set(&asking->why, 0, "%s", why);
	asking->total_s = (double)(clock_ns() - asking->begin_ns) / (double)NS_PER_SECOND;
}

/* Once, on a connection of its own: the main thread may be waiting on the other. */
static void
cancel(void *arg)
{
	const struct asking *asking = arg;
	Hearth__FrontRequest request = HEARTH__FRONT_REQUEST__INIT;
	Hearth__Cancel what = HEARTH__CANCEL__INIT;
	Hearth__FrontReply *reply;
	struct client *client;
	struct error ignored;

	what.request = asking->submit.request;
	request.what_case = HEARTH__FRONT_REQUEST__WHAT_CANCEL;
	request.cancel = &what;
	if (client_open(&client, asking->dir, "front", &ignored) < 0)
		return;
	if (exchange(client, &request, ANSWER_MS, &reply) == 0)
		hearth__front_reply__free_unpacked(reply, NULL);
	client_close(client);
}

static int
take_reply(struct asking *asking, const Hearth__FrontReply *reply, struct error *err)
{
	int code = keep_logits(asking, reply, err);

	if (code == 0)
		code = keep(asking, reply, err);
	if (code < 0)
		return code;
	if (!asking->compute_before_s)
		asking->queued_s = reply->seconds_queued;
	if (reply->finish[0])
		end(asking, reply->finish, reply->finish_cause, reply->finish_error);
	code =
	    asking->take(asking->arg, reply->ids, reply->n_ids, reply->text.data, reply->text.len);
	if (code == 0)
		return 0;
	if (!asking->finish[0])
		cancel(asking); /* nobody takes it */
	return error_sys(err, code, "writing the answer");
}

/* Waits for more.  1: the scheduler does not know the request: submit it again. */
static int
read_more(struct asking *asking, struct error *err)
{
	Hearth__FrontRequest request = HEARTH__FRONT_REQUEST__INIT;
	Hearth__Read read = HEARTH__READ__INIT;
	Hearth__FrontReply *reply;
	int code;

	read.request = asking->submit.request;
	read.from_index = (uint32_t)asking->n_ids;
	read.from_byte = asking->n_text;
	read.wait_ms = MAX_READ_WAIT_MS;
	request.what_case = HEARTH__FRONT_REQUEST__WHAT_READ;
	request.read = &read;
	reply = persist(asking, &request, &code, err);
	if (!reply)
		return code;
	if (reply->error == HEARTH__FRONT_ERROR__FRONT_UNKNOWN)
		code = 1;
	else if (reply->error != HEARTH__FRONT_ERROR__FRONT_OK)
		code = error_set(err, -EPROTO, "%s", reply->error_text);
	else
		code = take_reply(asking, reply, err);
	hearth__front_reply__free_unpacked(reply, NULL);
	return code;
}

int
asking_open(struct asking *asking, struct error *err)
{
	uint64_t *id = &asking->submit.request;
	int code;

	do {
		if (getrandom(id, sizeof(*id), 0) != sizeof(*id))
			return error_sys(err, -errno, "a random request id");
	} while (!*id);
	asking->begin_ns = clock_ns();
	asking->supervised = hope_supervised(asking->dir);
	/* First: the threads of the endpoints must be born with the signals blocked. */
	code = interrupt_open(&asking->interrupt, cancel, asking, err);
	if (code < 0)
		return code;
	return client_open(&asking->client, asking->dir, "front", err);
}

int
asking_run(struct asking *asking, struct error *err)
{
	int code = 1;

	while (!asking->finish[0]) {
		if (code == 1)
			code = interrupt_came(asking->interrupt) ? -ECANCELED : submit(asking, err);
		/* An interrupt during the submit cancelled what was not known yet. */
		if (code == 0 && interrupt_came(asking->interrupt))
			cancel(asking);
		if (code == 0)
			code = read_more(asking, err);
		if (code == -ECANCELED) {
			cancel(asking);
			end(asking, "cancelled", HEARTH__FRONT_ERROR__FRONT_OK, "");
			return 0;
		}
		if (code < 0)
			return code;
	}
	return 0;
}

void
asking_close(struct asking *asking)
{
	interrupt_close(asking->interrupt);
	client_close(asking->client);
	free(asking->prompt_ids);
	free(asking->ids);
	free(asking->text);
	free(asking->logits);
}
