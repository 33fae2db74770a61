#include "tests/fake_scheduler.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define LIMIT_SECONDS 30

static void
scheduler_hear(void *arg, enum link_event event, const uint8_t *bytes, size_t n)
{
	struct fake_scheduler *scheduler = arg;

	pthread_mutex_lock(&scheduler->lock);
	if (event == LINK_DOWN)
		scheduler->downs++;
	if (event == LINK_MESSAGE && scheduler->n < FAKE_INBOX)
		scheduler->inbox[(scheduler->head + scheduler->n++) % FAKE_INBOX] =
		    hearth__from_worker__unpack(NULL, n, bytes);
	pthread_cond_broadcast(&scheduler->came);
	pthread_mutex_unlock(&scheduler->lock);
}

void
fake_scheduler_listen(struct fake_scheduler *scheduler, const char *dir)
{
	struct error err;

	if (link_listen(&scheduler->link, dir, "work", scheduler_hear, scheduler, &err) < 0)
		fail_msg("%s", err.text);
}

void
fake_scheduler_open(struct fake_scheduler *scheduler, const char *dir)
{
	memset(scheduler, 0, sizeof(*scheduler));
	pthread_mutex_init(&scheduler->lock, NULL);
	pthread_cond_init(&scheduler->came, NULL);
	fake_scheduler_listen(scheduler, dir);
}

static void
scheduler_forget(struct fake_scheduler *scheduler)
{
	for (; scheduler->n != 0; scheduler->n--) {
		hearth__from_worker__free_unpacked(scheduler->inbox[scheduler->head], NULL);
		scheduler->head = (scheduler->head + 1) % FAKE_INBOX;
	}
}

void
fake_scheduler_close(struct fake_scheduler *scheduler)
{
	link_close(scheduler->link);
	scheduler_forget(scheduler);
	pthread_cond_destroy(&scheduler->came);
	pthread_mutex_destroy(&scheduler->lock);
}

void
fake_scheduler_restart(struct fake_scheduler *scheduler, const char *dir)
{
	link_close(scheduler->link);
	scheduler_forget(scheduler);
	fake_scheduler_listen(scheduler, dir);
}

/* With the lock held; false after the limit. */
static bool
scheduler_wait(struct fake_scheduler *scheduler)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LIMIT_SECONDS;
	return pthread_cond_timedwait(&scheduler->came, &scheduler->lock, &until) != ETIMEDOUT;
}

void
fake_scheduler_wait_down(struct fake_scheduler *scheduler, uint32_t downs)
{
	bool there;

	pthread_mutex_lock(&scheduler->lock);
	while ((there = scheduler->downs >= downs) == false)
		if (!scheduler_wait(scheduler))
			break;
	pthread_mutex_unlock(&scheduler->lock);
	assert_true(there);
}

Hearth__FromWorker *
fake_scheduler_next(struct fake_scheduler *scheduler)
{
	Hearth__FromWorker *message = NULL;

	pthread_mutex_lock(&scheduler->lock);
	while (scheduler->n == 0)
		if (!scheduler_wait(scheduler))
			break;
	if (scheduler->n != 0) {
		message = scheduler->inbox[scheduler->head];
		scheduler->head = (scheduler->head + 1) % FAKE_INBOX;
		scheduler->n--;
	}
	pthread_mutex_unlock(&scheduler->lock);
	if (message == NULL)
		fail_msg("the worker said nothing for %d seconds", LIMIT_SECONDS);
	return message;
}

void
fake_scheduler_send_bytes(struct fake_scheduler *scheduler, const uint8_t *bytes, size_t n)
{
	assert_int_equal(link_send(scheduler->link, bytes, n), 0);
}

static void
scheduler_send(struct fake_scheduler *scheduler, const Hearth__ToWorker *message)
{
	size_t n = hearth__to_worker__get_packed_size(message);
	uint8_t *bytes = malloc(n);

	assert_non_null(bytes);
	hearth__to_worker__pack(message, bytes);
	fake_scheduler_send_bytes(scheduler, bytes, n);
	free(bytes);
}

void
fake_scheduler_send(struct fake_scheduler *scheduler, const Hearth__Generate *generate)
{
	Hearth__ToWorker message = HEARTH__TO_WORKER__INIT;

	message.what_case = HEARTH__TO_WORKER__WHAT_GENERATE;
	message.generate = (Hearth__Generate *)generate;
	scheduler_send(scheduler, &message);
}

void
fake_scheduler_cancel(struct fake_scheduler *scheduler, uint64_t request)
{
	Hearth__ToWorker message = HEARTH__TO_WORKER__INIT;
	Hearth__CancelWork cancel = HEARTH__CANCEL_WORK__INIT;

	cancel.request = request;
	message.what_case = HEARTH__TO_WORKER__WHAT_CANCEL;
	message.cancel = &cancel;
	scheduler_send(scheduler, &message);
}

uint32_t
fake_scheduler_hello(struct fake_scheduler *scheduler)
{
	Hearth__FromWorker *message = fake_scheduler_next(scheduler);
	uint32_t context;

	assert_int_equal(message->what_case, HEARTH__FROM_WORKER__WHAT_HELLO);
	context = message->hello->context;
	hearth__from_worker__free_unpacked(message, NULL);
	return context;
}

/* The next message that is no Hello: where a connection came back twice, it may be said twice. */
static Hearth__FromWorker *
next_answer(struct fake_scheduler *scheduler)
{
	Hearth__FromWorker *message = fake_scheduler_next(scheduler);

	while (message->what_case == HEARTH__FROM_WORKER__WHAT_HELLO) {
		hearth__from_worker__free_unpacked(message, NULL);
		message = fake_scheduler_next(scheduler);
	}
	return message;
}

uint32_t
fake_scheduler_token(struct fake_scheduler *scheduler, uint64_t request, uint32_t index)
{
	Hearth__FromWorker *message = next_answer(scheduler);
	uint32_t id;

	assert_int_equal(message->what_case, HEARTH__FROM_WORKER__WHAT_TOKEN);
	assert_int_equal(message->token->request, request);
	assert_int_equal(message->token->index, index);
	id = message->token->id;
	hearth__from_worker__free_unpacked(message, NULL);
	return id;
}

uint32_t
fake_scheduler_finish(struct fake_scheduler *scheduler, uint64_t request, const char *finish)
{
	Hearth__FromWorker *message = next_answer(scheduler);
	uint32_t tokens;

	assert_int_equal(message->what_case, HEARTH__FROM_WORKER__WHAT_FINISHED);
	assert_int_equal(message->finished->request, request);
	assert_string_equal(message->finished->finish, finish);
	assert_int_equal(message->finished->error[0] != '\0', strcmp(finish, "error") == 0);
	tokens = message->finished->tokens;
	hearth__from_worker__free_unpacked(message, NULL);
	return tokens;
}
