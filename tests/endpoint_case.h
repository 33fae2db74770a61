/* What the tests of common/endpoint.h serve and ask with (cmocka). */
#ifndef HEARTH_TESTS_ENDPOINT_CASE_H
#define HEARTH_TESTS_ENDPOINT_CASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

/* A server's fn: the question is the answer. */
void endpoint_echo(void *arg, struct call *call, const uint8_t *bytes, size_t n);

/* Keeps every call unanswered. */
struct endpoint_parking {
	struct gate gate;
	struct call *calls[SERVER_CALLS];
	atomic_int n;
};
/* Another; arg is the parking. */
void endpoint_park(void *arg, struct call *call, const uint8_t *bytes, size_t n);

/* The answer as text, or what client_ask gives. */
int endpoint_ask(struct client *client, const char *text, int timeout_ms, char *ret, size_t room);

/* Asks in a thread, with time enough; rc once it is joined. */
struct endpoint_asker {
	struct client *client;
	int rc;
	pthread_t thread;
};
void endpoint_asker_start(struct endpoint_asker *asker);

#endif
