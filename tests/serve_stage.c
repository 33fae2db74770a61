#include "tests/serve_stage.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct journal_identity identity = { 1, 2, 3, CONTEXT };

static void
take_tally(void *arg, const struct serve_tally *tally, bool now)
{
	struct stage *stage = arg;

	(void)now;
	pthread_mutex_lock(&stage->lock);
	stage->tally = *tally;
	pthread_cond_broadcast(&stage->told);
	pthread_mutex_unlock(&stage->lock);
}

static int
upkeep(void *arg, bool woken, struct error *err)
{
	struct stage *stage = arg;

	(void)woken;
	if (stage->upkeep_code < 0)
		return error_set(err, stage->upkeep_code, "as told");
	pthread_mutex_lock(&stage->lock);
	stage->upkeeps_after += stage->tally.tokens_out != 0 && stage->tally.request == 0;
	pthread_cond_broadcast(&stage->told);
	pthread_mutex_unlock(&stage->lock);
	return 0;
}

static void *
worker_thread(void *arg)
{
	struct stage *stage = arg;

	return (void *)(intptr_t)serve_run(stage->serve, &stage->err);
}

void
worker_start(struct stage *stage)
{
	struct serve_config config = {
		.service = &stage->service,
		.requests = &stage->requests,
		.dir = stage->scratch.dir,
		.ops = &fake_compute_ops,
		.compute = &stage->compute,
		.journal = &stage->journal,
		.vocabulary = FAKE_VOCABULARY,
		.context = CONTEXT,
		.upkeep = upkeep,
		.report = take_tally,
		.arg = stage,
	};

	stage->service = (struct service){ .stage = "worker" };
	pthread_mutex_init(&stage->service.lock, NULL);
	pthread_cond_init(&stage->service.wake, NULL);
	requests_open(&stage->requests, &stage->service);
	journal_open(&stage->journal, stage->page, &identity, false);
	fake_compute_init(&stage->compute, stage->kv, CONTEXT);
	memset(&stage->tally, 0, sizeof(stage->tally));
	assert_int_equal(serve_open(&stage->serve, &config, &stage->err), 0);
	assert_int_equal(pthread_create(&stage->thread, NULL, worker_thread, stage), 0);
	assert_int_equal(fake_scheduler_hello(&stage->scheduler), CONTEXT);
}

int
worker_join(struct stage *stage)
{
	void *rc;

	pthread_join(stage->thread, &rc);
	serve_close(stage->serve);
	requests_close(&stage->requests);
	fake_compute_done(&stage->compute);
	pthread_cond_destroy(&stage->service.wake);
	pthread_mutex_destroy(&stage->service.lock);
	return (int)(intptr_t)rc;
}

void
worker_end(struct stage *stage)
{
	uint32_t downs = stage->scheduler.downs;

	service_leave(&stage->service);
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(worker_join(stage), 0);
	fake_scheduler_wait_down(&stage->scheduler, downs + 1);
}

int
serve_setup(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	scratch_open(&stage->scratch);
	stage->page = calloc(1, journal_bytes(CONTEXT));
	pthread_mutex_init(&stage->lock, NULL);
	pthread_cond_init(&stage->told, NULL);
	fake_scheduler_open(&stage->scheduler, stage->scratch.dir);
	worker_start(stage);
	*state = stage;
	return 0;
}

int
serve_teardown(void **state)
{
	struct stage *stage = *state;

	worker_end(stage);
	fake_scheduler_close(&stage->scheduler);
	scratch_close(&stage->scratch);
	free(stage->page);
	pthread_cond_destroy(&stage->told);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
	return 0;
}

struct text
text_make(uint32_t n, uint32_t seed)
{
	struct text text = { .n = n, .prompt = n };

	for (uint32_t i = 0; i < n; i++)
		text.ids[i] = (i * 7 + seed) % FAKE_VOCABULARY;
	return text;
}

uint32_t
text_grow(struct text *text)
{
	text->ids[text->n] = fake_compute_next(text->ids, text->n, FAKE_VOCABULARY);
	return text->ids[text->n++];
}

Hearth__Generate
ask(const struct text *text, uint64_t request, uint32_t max_tokens)
{
	Hearth__Generate generate = HEARTH__GENERATE__INIT;

	generate.request = request;
	generate.ids = (uint32_t *)text->ids;
	generate.n_ids = text->n;
	generate.prompt_tokens = text->prompt;
	generate.max_tokens = max_tokens;
	return generate;
}

void
send_ask(struct stage *stage, const struct text *text, uint64_t request, uint32_t max_tokens)
{
	Hearth__Generate generate = ask(text, request, max_tokens);

	fake_scheduler_send(&stage->scheduler, &generate);
}

void
read_tokens(struct stage *stage, struct text *text, uint64_t request, uint32_t until)
{
	for (uint32_t index = text->n - text->prompt; index < until; index++) {
		uint32_t id = fake_scheduler_token(&stage->scheduler, request, index);

		assert_int_equal(id, text_grow(text));
	}
}

void
wait_for_upkeep_after(struct stage *stage)
{
	pthread_mutex_lock(&stage->lock);
	while (stage->upkeeps_after == 0)
		pthread_cond_wait(&stage->told, &stage->lock);
	pthread_mutex_unlock(&stage->lock);
}

struct serve_tally
tally_when_idle(struct stage *stage)
{
	struct serve_tally tally;

	pthread_mutex_lock(&stage->lock);
	while (stage->tally.request != 0)
		pthread_cond_wait(&stage->told, &stage->lock);
	tally = stage->tally;
	pthread_mutex_unlock(&stage->lock);
	return tally;
}

void
wait_for_order(struct stage *stage)
{
	while (!requests_waiting(&stage->requests))
		sched_yield();
}

/* nng 1.5.2 forgets a message that is just being handed to a connection when that is closed. */
const char *__lsan_default_suppressions(void);
const char *
__lsan_default_suppressions(void)
{
	return "leak:link_send\n";
}
