#include "tests/front_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/gguf.h"
#include "scheduler/front.h"
#include "scheduler/work.h"

#define LIMIT_SECONDS 30
#define ASK_MS 20000

struct tokenizer *
front_stage_tokenizer(void)
{
	const char *path = "tests/data/kjv-16x1m.gguf";
	struct tokenizer *tokenizer = NULL;
	struct gguf gguf = { 0 };
	struct error err;
	struct stat about;
	void *bytes;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &about), 0);
	bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_int_equal(
	    gguf_parse(&gguf, bytes, (uint64_t)about.st_size, (uint64_t)about.st_size, path, &err),
	    0);
	assert_int_equal(tokenizer_open(&tokenizer, &gguf, &err), 0);
	gguf_close(&gguf);
	munmap(bytes, (size_t)about.st_size);
	close(fd);
	return tokenizer;
}

static void *
stage_main(void *arg)
{
	struct front_stage *stage = arg;
	uint64_t seen = 0, deadline;

	do
		deadline = front_expire(&stage->serving, clock_ns());
	while (service_wait(&stage->service, &seen, deadline));
	return NULL;
}

void
front_stage_start(struct front_stage *stage)
{
	pthread_condattr_t monotonic;
	struct error err;

	stage->service = (struct service){ .stage = "scheduler" };
	pthread_mutex_init(&stage->service.lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&stage->service.wake, &monotonic);
	pthread_condattr_destroy(&monotonic);
	assert_int_equal(board_open(&stage->board, stage->scratch.dir, "scheduler", &err), 0);
	assert_int_equal(
	    serving_open(&stage->serving, &stage->service, stage->board, stage->queue_limit, &err),
	    0);
	assert_int_equal(work_open(&stage->serving, stage->scratch.dir, &err), 0);
	assert_int_equal(front_open(&stage->front, &stage->serving, stage->scratch.dir, &err), 0);
	assert_int_equal(pthread_create(&stage->main, NULL, stage_main, stage), 0);
}

void
front_stage_open(struct front_stage *stage, uint32_t queue_limit)
{
	memset(stage, 0, sizeof(*stage));
	stage->queue_limit = queue_limit;
	scratch_open(&stage->scratch);
	front_stage_start(stage);
}

void
front_stage_decide(struct front_stage *stage, struct tokenizer *tokenizer)
{
	serving_decide(&stage->serving, tokenizer, tokenizer ? "qwen2" : "this file has none");
}

void
front_stage_stop(struct front_stage *stage)
{
	service_leave(&stage->service);
	pthread_join(stage->main, NULL);
	server_close(stage->front);
	work_close(&stage->serving);
	serving_close(&stage->serving);
	board_close(stage->board);
	pthread_cond_destroy(&stage->service.wake);
	pthread_mutex_destroy(&stage->service.lock);
}

void
front_stage_close(struct front_stage *stage)
{
	front_stage_stop(stage);
	scratch_close(&stage->scratch);
}

void
front_stage_wait_parked(struct front_stage *stage, uint32_t n)
{
	uint64_t limit = clock_ns() + LIMIT_SECONDS * NS_PER_SECOND;
	uint32_t parked;

	do {
		pthread_mutex_lock(&stage->serving.lock);
		parked = stage->serving.parked.n;
		pthread_mutex_unlock(&stage->serving.lock);
		sched_yield();
	} while (parked != n && clock_ns() < limit);
	assert_int_equal(parked, n);
}

void
front_stage_wait_unlinked(struct front_stage *stage)
{
	uint64_t limit = clock_ns() + LIMIT_SECONDS * NS_PER_SECOND;
	bool linked;

	do {
		pthread_mutex_lock(&stage->serving.lock);
		linked = stage->serving.linked;
		pthread_mutex_unlock(&stage->serving.lock);
		sched_yield();
	} while (linked && clock_ns() < limit);
	assert_false(linked);
}

/* -- the client -- */

Hearth__FrontReply *
front_ask(struct front_stage *stage, const Hearth__FrontRequest *request)
{
	size_t n = hearth__front_request__get_packed_size(request), n_answer;
	uint8_t *bytes = malloc(n + 1), *answer;
	Hearth__FrontReply *reply;
	struct client *client;
	struct error err;

	assert_non_null(bytes);
	hearth__front_request__pack(request, bytes);
	assert_int_equal(client_open(&client, stage->scratch.dir, "front", &err), 0);
	assert_int_equal(client_ask(client, bytes, n, ASK_MS, &answer, &n_answer), 0);
	client_close(client);
	reply = hearth__front_reply__unpack(NULL, n_answer, answer);
	assert_non_null(reply);
	free(answer);
	free(bytes);
	return reply;
}

Hearth__FrontReply *
front_submit_message(struct front_stage *stage, Hearth__Submit *submit)
{
	Hearth__FrontRequest request = HEARTH__FRONT_REQUEST__INIT;

	request.what_case = HEARTH__FRONT_REQUEST__WHAT_SUBMIT;
	request.submit = submit;
	return front_ask(stage, &request);
}

static Hearth__FrontError
error_of(Hearth__FrontReply *reply)
{
	Hearth__FrontError error = reply->error;

	hearth__front_reply__free_unpacked(reply, NULL);
	return error;
}

Hearth__FrontError
front_submit(struct front_stage *stage, uint64_t request, uint32_t n_prompt, uint32_t max_tokens)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	uint32_t ids[256];

	assert_true(n_prompt <= 256);
	for (uint32_t i = 0; i < n_prompt; i++)
		ids[i] = i + 1;
	submit.request = request;
	submit.prompt_ids = ids;
	submit.n_prompt_ids = n_prompt;
	submit.max_tokens = max_tokens;
	return error_of(front_submit_message(stage, &submit));
}

Hearth__FrontReply *
front_read(struct front_stage *stage, uint64_t request, uint32_t from_index, uint64_t from_byte,
	   uint32_t wait_ms)
{
	Hearth__FrontRequest message = HEARTH__FRONT_REQUEST__INIT;
	Hearth__Read read = HEARTH__READ__INIT;

	read.request = request;
	read.from_index = from_index;
	read.from_byte = from_byte;
	read.wait_ms = wait_ms;
	message.what_case = HEARTH__FRONT_REQUEST__WHAT_READ;
	message.read = &read;
	return front_ask(stage, &message);
}

Hearth__FrontError
front_cancel(struct front_stage *stage, uint64_t request)
{
	Hearth__FrontRequest message = HEARTH__FRONT_REQUEST__INIT;
	Hearth__Cancel cancel = HEARTH__CANCEL__INIT;

	cancel.request = request;
	message.what_case = HEARTH__FRONT_REQUEST__WHAT_CANCEL;
	message.cancel = &cancel;
	return error_of(front_ask(stage, &message));
}

void
front_assert_finish(struct front_stage *stage, uint64_t request, const char *finish, uint32_t n)
{
	Hearth__FrontReply *reply = front_read(stage, request, 0, 0, 0);

	/* Every read from the last token on waits for what comes next. */
	while (reply->error == HEARTH__FRONT_ERROR__FRONT_OK && !reply->finish[0]) {
		uint32_t have = (uint32_t)reply->n_ids;

		hearth__front_reply__free_unpacked(reply, NULL);
		reply = front_read(stage, request, have, 0, 10000);
		hearth__front_reply__free_unpacked(reply, NULL);
		reply = front_read(stage, request, 0, 0, 0);
		assert_true(reply->finish[0] || reply->n_ids > have);
	}
	assert_int_equal(reply->error, HEARTH__FRONT_ERROR__FRONT_OK);
	assert_string_equal(reply->finish, finish);
	assert_int_equal(reply->n_ids, n);
	hearth__front_reply__free_unpacked(reply, NULL);
}

uint32_t
front_token(struct front_stage *stage, uint64_t request, uint32_t index)
{
	Hearth__FrontReply *reply = front_read(stage, request, index, 0, 10000);
	uint32_t id;

	assert_int_equal(reply->error, HEARTH__FRONT_ERROR__FRONT_OK);
	assert_true(reply->n_ids > 0);
	id = reply->ids[0];
	hearth__front_reply__free_unpacked(reply, NULL);
	return id;
}

/* -- the worker -- */

/* At every connection: the first may be turned away, while its forerunner's is still there. */
static void
worker_greet(struct fake_worker *worker)
{
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	Hearth__Hello hello = HEARTH__HELLO__INIT;
	uint8_t bytes[64];
	size_t n;

	hello.pid = 1;
	hello.context = worker->context;
	hello.vocabulary = worker->vocabulary;
	message.what_case = HEARTH__FROM_WORKER__WHAT_HELLO;
	message.hello = &hello;
	n = hearth__from_worker__pack(&message, bytes);
	link_send(worker->link, bytes, n); /* where it is gone already, the next one is greeted */
}

static void
worker_hear(void *arg, enum link_event event, const uint8_t *bytes, size_t n)
{
	struct fake_worker *worker = arg;

	if (event == LINK_UP)
		worker_greet(worker);
	pthread_mutex_lock(&worker->lock);
	if (event == LINK_UP)
		worker->ups++;
	if (event == LINK_MESSAGE && worker->n < FAKE_WORKER_INBOX)
		worker->inbox[(worker->head + worker->n++) % FAKE_WORKER_INBOX] =
		    hearth__to_worker__unpack(NULL, n, bytes);
	pthread_cond_broadcast(&worker->came);
	pthread_mutex_unlock(&worker->lock);
}

/* With the lock held; false after the limit. */
static bool
worker_wait(struct fake_worker *worker)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIMIT_SECONDS;
	return pthread_cond_timedwait(&worker->came, &worker->lock, &until) != ETIMEDOUT;
}

void
fake_worker_open(struct fake_worker *worker, const char *dir, uint32_t context, uint32_t vocabulary)
{
	struct error err;
	bool up;

	memset(worker, 0, sizeof(*worker));
	worker->context = context;
	worker->vocabulary = vocabulary;
	pthread_mutex_init(&worker->lock, NULL);
	pthread_cond_init(&worker->came, NULL);
	assert_int_equal(link_dial(&worker->link, dir, "work", worker_hear, worker, &err), 0);
	pthread_mutex_lock(&worker->lock);
	while (!(up = worker->ups > 0) && worker_wait(worker))
		;
	pthread_mutex_unlock(&worker->lock);
	assert_true(up);
}

void
fake_worker_close(struct fake_worker *worker)
{
	link_close(worker->link);
	for (; worker->n; worker->n--) {
		hearth__to_worker__free_unpacked(worker->inbox[worker->head], NULL);
		worker->head = (worker->head + 1) % FAKE_WORKER_INBOX;
	}
	pthread_cond_destroy(&worker->came);
	pthread_mutex_destroy(&worker->lock);
}

Hearth__ToWorker *
fake_worker_next(struct fake_worker *worker)
{
	Hearth__ToWorker *message = NULL;

	pthread_mutex_lock(&worker->lock);
	while (!worker->n && worker_wait(worker))
		;
	if (worker->n) {
		message = worker->inbox[worker->head];
		worker->head = (worker->head + 1) % FAKE_WORKER_INBOX;
		worker->n--;
	}
	pthread_mutex_unlock(&worker->lock);
	if (!message)
		fail_msg("the scheduler said nothing for %d seconds", LIMIT_SECONDS);
	return message;
}

void
fake_worker_assert_asked(struct fake_worker *worker, uint64_t request, uint32_t n_ids)
{
	Hearth__ToWorker *message = fake_worker_next(worker);

	assert_int_equal(message->what_case, HEARTH__TO_WORKER__WHAT_GENERATE);
	assert_int_equal(message->generate->request, request);
	assert_int_equal(message->generate->n_ids, n_ids);
	hearth__to_worker__free_unpacked(message, NULL);
}

void
fake_worker_send(struct fake_worker *worker, const Hearth__FromWorker *message)
{
	size_t n = hearth__from_worker__get_packed_size(message);
	uint8_t *bytes = malloc(n + 1);

	assert_non_null(bytes);
	hearth__from_worker__pack(message, bytes);
	assert_int_equal(link_send(worker->link, bytes, n), 0);
	free(bytes);
}

void
fake_worker_token(struct fake_worker *worker, uint64_t request, uint32_t index, uint32_t id)
{
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	Hearth__Token token = HEARTH__TOKEN__INIT;

	token.request = request;
	token.index = index;
	token.id = id;
	token.compute_ns = 1000;
	message.what_case = HEARTH__FROM_WORKER__WHAT_TOKEN;
	message.token = &token;
	fake_worker_send(worker, &message);
}

void
fake_worker_finish(struct fake_worker *worker, uint64_t request, const char *finish,
		   uint32_t tokens)
{
	Hearth__FromWorker message = HEARTH__FROM_WORKER__INIT;
	Hearth__Finished finished = HEARTH__FINISHED__INIT;

	finished.request = request;
	finished.finish = (char *)finish;
	finished.tokens = tokens;
	message.what_case = HEARTH__FROM_WORKER__WHAT_FINISHED;
	message.finished = &finished;
	fake_worker_send(worker, &message);
}
