/* Closing while messages come: it always comes to an end.  nng 1.5.2 lost a connection's reader
 * that was told to close between the two reads of a message, and the close then waited for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

#define ROUNDS 400
#define FOLLOWERS 4
#define LIMIT_S 120 /* a close that hangs ends the test with SIGALRM */

struct flood {
	struct publisher *publisher;
	atomic_bool over;
};

static void *
flood_run(void *arg)
{
	struct flood *flood = arg;
	uint8_t bytes[2000] = { 1 };

	while (!atomic_load(&flood->over))
		publisher_send(flood->publisher, bytes, sizeof(bytes));
	return NULL;
}

struct heard {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	uint32_t messages;
};

static void
on_message(void *arg, const uint8_t *bytes, size_t n)
{
	struct heard *heard = arg;

	(void)n;
	pthread_mutex_lock(&heard->lock);
	heard->messages += bytes != NULL;
	pthread_cond_signal(&heard->wake);
	pthread_mutex_unlock(&heard->lock);
}

static void
a_follower_closes_in_the_middle_of_messages(void **state)
{
	struct scratch scratch;
	struct flood flood = { .publisher = NULL };
	struct follower *followers[FOLLOWERS];
	struct error err;
	pthread_t thread;

	(void)state;
	scratch_open(&scratch);
	alarm(LIMIT_S);
	assert_int_equal(publisher_open(&flood.publisher, scratch.dir, "p", NULL, NULL, &err), 0);
	assert_int_equal(pthread_create(&thread, NULL, flood_run, &flood), 0);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct heard heard = { .messages = 0 };

		pthread_mutex_init(&heard.lock, NULL);
		pthread_cond_init(&heard.wake, NULL);
		for (uint32_t i = 0; i < FOLLOWERS; i++)
			assert_int_equal(follower_open(&followers[i], scratch.dir, "p", on_message,
						       &heard, &err),
					 0);
		pthread_mutex_lock(&heard.lock);
		while (heard.messages == 0)
			pthread_cond_wait(&heard.wake, &heard.lock);
		pthread_mutex_unlock(&heard.lock);
		for (uint32_t i = 0; i < FOLLOWERS; i++)
			follower_close(followers[i]);
		pthread_cond_destroy(&heard.wake);
		pthread_mutex_destroy(&heard.lock);
	}
	atomic_store(&flood.over, true);
	pthread_join(thread, NULL);
	publisher_close(flood.publisher);
	alarm(0);
	scratch_close(&scratch);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_follower_closes_in_the_middle_of_messages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
