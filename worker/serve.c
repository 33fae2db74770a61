#include "worker/serve.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/log.h"
#include "worker/answer.h"

#define SOCKET_WORK "work"
#define MESSAGE_OVERHEAD 4096u /* all of a message but its logits; error lines are the longest */

struct serve {
	struct serve_config config;
	struct link *link;
	struct answer answer;
	Hearth__ToWorker *asked; /* what the answer is to; NULL = idle */
	uint64_t token_ns;       /* computing since the last token */
	uint64_t begun_ns;       /* since then the device computes what follows; 0: it does not */
	struct compute_result result; /* of the last forward that wanted one */
	struct sample_scratch *scratch;
	uint8_t *packed; /* (packed_bytes) */
	size_t packed_bytes;
	uint64_t seen; /* of the service's events */
	struct serve_tally tally;
};

static void
serve_report(struct serve *serve, bool now)
{
	if (serve->config.report != NULL)
		serve->config.report(serve->config.arg, &serve->tally, now);
}

/* Nobody waits for what was begun behind the last token. */
static void
serve_rest(struct serve *serve)
{
	if (serve->result.ahead && serve->config.ops->drop != NULL)
		serve->config.ops->drop(serve->config.compute);
	serve->result.ahead = false;
}

/* Back to nothing to do. */
static void
serve_idle(struct serve *serve)
{
	hearth__to_worker__free_unpacked(serve->asked, NULL);
	serve->asked = NULL;
	serve->tally.request = 0;
	serve_rest(serve);
	serve_report(serve, true);
}

/* The answer ends here, told or not. */
static void
serve_drop(struct serve *serve)
{
	if (serve->asked == NULL)
		return;
	requests_ended(serve->config.requests, serve->asked->generate->request);
	serve_idle(serve);
}

/* A scheduler that does not take its tokens is left: the next connection begins anew, and the
 * request comes again. */
static int
serve_dial_again(struct serve *serve, struct error *err)
{
	log_warn("work: %d messages wait and are not taken: connecting again", LINK_QUEUE);
	link_close(serve->link);
	serve->link = NULL;
	serve_drop(serve);
	return link_dial(&serve->link, serve->config.dir, SOCKET_WORK, requests_hear,
			 serve->config.requests, err);
}

/* 1 = queued; 0 = not: the connection is not what it was, and the answer has been dropped. */
static int
serve_send(struct serve *serve, const Hearth__FromWorker *message, struct error *err)
{
	size_t n = hearth__from_worker__get_packed_size(message);
	int rc;

	if (n > serve->packed_bytes)
		return error_set(err, -EMSGSIZE, "work: message of %zu bytes, at most %zu", n,
				 serve->packed_bytes);
	hearth__from_worker__pack(message, serve->packed);
	rc = link_send(serve->link, serve->packed, n);
	if (rc == 0)
		return 1;
	if (rc == -ENOBUFS)
		return serve_dial_again(serve, err);
	if (rc != -ENOTCONN)
		return error_sys(err, rc, "work: send");
	serve_drop(serve);
	return 0;
}

static int
serve_hello(struct serve *serve, struct error *err)
{
	Hearth__Hello hello = HEARTH__HELLO__INIT;
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	int rc;

	hello.pid = (uint32_t)getpid();
	hello.context = serve->config.context;
	hello.vocabulary = serve->config.vocabulary;
	message.what_case = HEARTH__FROM_WORKER__WHAT_HELLO;
	message.hello = &hello;
	rc = serve_send(serve, &message, err);
	return rc < 0 ? rc : 0;
}

/* `tokens` generated in all; `error` "" unless finish is "error". */
static int
serve_finish(struct serve *serve, const char *finish, const char *error, uint32_t tokens,
	     struct error *err)
{
	Hearth__Finished finished = HEARTH__FINISHED__INIT;
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	int rc;

	finished.request = serve->asked->generate->request;
	finished.finish = (char *)finish;
	finished.error = (char *)error;
	finished.tokens = tokens;
	message.what_case = HEARTH__FROM_WORKER__WHAT_FINISHED;
	message.finished = &finished;
	rc = serve_send(serve, &message, err);
	if (rc == 1)
		serve_drop(serve);
	return rc < 0 ? rc : 0;
}

static int
serve_begin(struct serve *serve, Hearth__ToWorker *asked, bool cancelled, struct error *err)
{
	struct answer *answer = &serve->answer;
	struct error wrong;
	const char *finish;

	if (serve->asked != NULL)
		hearth__to_worker__free_unpacked(serve->asked, NULL);
	serve->asked = asked;
	serve->token_ns = serve->begun_ns = 0;
	if (answer_begin(answer, asked->generate, &wrong) < 0)
		return serve_finish(serve, "error", wrong.text, 0, err);
	if (cancelled)
		return serve_finish(serve, "cancelled", "", answer_index(answer), err);
	finish = answer_finish(answer);
	if (finish != NULL)
		return serve_finish(serve, finish, "", answer_index(answer), err);
	answer->done = journal_keep(serve->config.journal, answer->ids, answer->n_ids);
	serve->tally.request = answer->request;
	serve->tally.tokens_kept += answer->done;
	serve_report(serve, true);
	return 0;
}

static int
serve_follow_orders(struct serve *serve, struct error *err)
{
	struct orders orders;
	int rc = 0;

	if (!requests_take(serve->config.requests, &orders))
		return 0;
	if (orders.cancel && serve->asked != NULL)
		rc = serve_finish(serve, "cancelled", "", answer_index(&serve->answer), err);
	if (orders.drop && serve->asked != NULL)
		serve_idle(serve);
	if (orders.greet && rc == 0)
		rc = serve_hello(serve, err);
	if (orders.next != NULL && rc == 0)
		return serve_begin(serve, orders.next, orders.cancel_next, err);
	if (orders.next != NULL)
		hearth__to_worker__free_unpacked(orders.next, NULL);
	return rc;
}

/* No token follows from what is no number; greedy would give the first one of the vocabulary. */
static int
serve_no_number(struct serve *serve, float logit, struct error *err)
{
	uint32_t index = answer_index(&serve->answer);
	struct error wrong;

	error_set(&wrong, -EBADMSG,
		  "token %" PRIu32 ": its logit is %s, want a number: the model's weights are "
		  "damaged, or one of its keys is",
		  index, isnan(logit) ? "nan" : "infinite");
	return serve_finish(serve, "error", wrong.text, index, err);
}

static uint32_t
serve_pick(const struct serve *serve, float *ret_logit)
{
	const struct compute_result *result = &serve->result;
	const struct answer *answer = &serve->answer;
	uint32_t id;

	*ret_logit = result->logit;
	if (sampling_is_greedy(&answer->sampling))
		return result->greatest;
	id = sample(result->logits, answer->vocabulary, &answer->sampling, answer_index(answer),
		    serve->scratch);
	*ret_logit = result->logits[id];
	return id;
}

static int
serve_token(struct serve *serve, struct error *err)
{
	struct answer *answer = &serve->answer;
	Hearth__Token token = HEARTH__TOKEN__INIT;
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	uint64_t begin = clock_ns(), now;
	const char *finish;
	float logit;
	int rc;

	token.request = answer->request;
	token.index = answer_index(answer);
	token.id = serve_pick(serve, &logit);
	if (!isfinite(logit))
		return serve_no_number(serve, logit, err);
	if (token.index == 0 && answer->want_logits) {
		token.logits.data = (uint8_t *)serve->result.logits;
		token.logits.len = answer->vocabulary * sizeof(float);
	}
	now = clock_ns();
	token.compute_ns = serve->token_ns + now - begin;
	serve->begun_ns = serve->result.ahead ? now : 0;
	message.what_case = HEARTH__FROM_WORKER__WHAT_TOKEN;
	message.token = &token;
	rc = serve_send(serve, &message, err);
	if (rc != 1)
		return rc;
	answer_add(answer, token.id);
	serve->token_ns = 0;
	serve->tally.compute_ns += token.compute_ns;
	serve->tally.tokens_out++;
	if (serve->tally.tokens_out == 1) {
		serve->tally.first_token_ns = clock_ns();
		service_served(serve->config.service);
	}
	if (serve->tally.tokens_out == 16)
		serve->tally.sixteenth_token_ns = clock_ns();
	serve_report(serve, serve->tally.tokens_out == 1 || serve->tally.tokens_out == 16);
	finish = answer_finish(answer);
	if (finish != NULL)
		return serve_finish(serve, finish, "", answer_index(answer), err);
	return 0;
}

static struct compute_want
serve_want(const struct serve *serve)
{
	const struct answer *answer = &serve->answer;
	bool greedy = sampling_is_greedy(&answer->sampling);

	return (struct compute_want){
		.logits = !greedy || (answer->want_logits && answer_index(answer) == 0),
		.ahead =
		    greedy && answer_has_room(answer) && !requests_waiting(serve->config.requests),
	};
}

/* One forward, and the token that it leads to. */
static int
serve_step(struct serve *serve, struct error *err)
{
	struct answer *answer = &serve->answer;
	const uint32_t *ids = answer->ids + answer->done;
	uint32_t left = answer->n_ids - answer->done;
	uint32_t n = left < COMPUTE_BATCH ? left : COMPUTE_BATCH;
	uint64_t begin = serve->begun_ns != 0 ? serve->begun_ns : clock_ns();
	struct compute_want want;
	int rc;

	serve->begun_ns = 0;
	rc =
	    serve->config.wait_trunk != NULL ? serve->config.wait_trunk(serve->config.arg, err) : 0;
	want = serve_want(serve);
	if (rc == 0)
		rc = serve->config.ops->forward(serve->config.compute, ids, n, answer->done,
						n == left ? &want : NULL, &serve->result, err);
	if (rc == -ECANCELED)
		return 0; /* an order, the pinner's end or leaving: the caller looks which */
	if (rc < 0)
		return rc;
	journal_append(serve->config.journal, ids, n);
	if (answer->done < answer->prompt_tokens || n > 1)
		serve->tally.tokens_in += n;
	answer->done += n;
	serve->token_ns += clock_ns() - begin;
	if (n == left && !requests_lost(serve->config.requests))
		return serve_token(serve, err);
	serve_report(serve, false);
	return 0;
}

static int
serve_loop(struct serve *serve, struct error *err)
{
	const struct serve_config *config = &serve->config;
	bool woken = true, worked;
	uint64_t before;
	int more = 0, rc;

	for (;;) {
		if (config->upkeep != NULL) {
			more = config->upkeep(config->arg, woken, err);
			if (more < 0)
				return more;
		}
		rc = serve_follow_orders(serve, err);
		worked = serve->asked != NULL;
		if (rc == 0 && worked)
			rc = serve_step(serve, err);
		if (rc < 0)
			return rc;
		/* With work at hand, or just done, a deadline that has passed: look, do not wait.
		 */
		before = serve->seen;
		if (!service_wait(config->service, &serve->seen,
				  worked || serve->asked != NULL || more ? 1 : 0))
			return 0;
		woken = serve->seen != before;
	}
}

int
serve_run(struct serve *serve, struct error *err)
{
	int rc = serve_loop(serve, err);

	serve_rest(serve);
	return rc;
}

int
serve_open(struct serve **ret, const struct serve_config *config, struct error *err)
{
	struct serve *serve = calloc(1, sizeof(*serve));
	int rc;

	if (serve == NULL)
		return error_set(err, -ENOMEM, "no memory for the token loop");
	serve->config = *config;
	serve->packed_bytes = config->vocabulary * sizeof(float) + MESSAGE_OVERHEAD;
	serve->packed = malloc(serve->packed_bytes);
	rc = answer_open(&serve->answer, config->context, config->vocabulary);
	if (rc == 0)
		rc = sample_scratch_open(&serve->scratch, config->vocabulary);
	if (rc < 0 || serve->packed == NULL) {
		serve_close(serve);
		return error_set(err, -ENOMEM,
				 "no memory for a context of %" PRIu32
				 " and a vocabulary of %" PRIu32,
				 config->context, config->vocabulary);
	}
	rc =
	    link_dial(&serve->link, config->dir, SOCKET_WORK, requests_hear, config->requests, err);
	if (rc < 0) {
		serve_close(serve);
		return rc;
	}
	*ret = serve;
	return 0;
}

void
serve_close(struct serve *serve)
{
	if (serve == NULL)
		return;
	link_close(serve->link);
	if (serve->asked != NULL)
		hearth__to_worker__free_unpacked(serve->asked, NULL);
	answer_close(&serve->answer);
	sample_scratch_close(serve->scratch);
	free(serve->packed);
	free(serve);
}
