#include "tests/fake_worker.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define LIMIT_SECONDS 30

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
