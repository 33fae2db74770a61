/* What the scheduler wants, as its link's threads hear it and the main thread takes it: the newest
 * request, whether it or the one at work is cancelled, and the link's ups and downs.
 * All fields are under the service's lock; each event wakes the service. */
#ifndef HEARTH_WORKER_REQUESTS_H
#define HEARTH_WORKER_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "common/service.h"
#include "proto/work.pb-c.h"

struct requests {
	struct service *service;
	uint64_t current; /* the request at work; 0 = none */
	bool current_cancelled;
	Hearth__ToWorker *next; /* a Generate that has not been taken */
	bool next_cancelled;
	bool greet; /* a connection has come: it wants a Hello */
	bool drop;  /* a connection was lost: nobody waits for the one at work */
};

void requests_open(struct requests *ret, struct service *service);
/* After the link is closed. */
void requests_close(struct requests *requests);

/* A link_fn; arg is the struct requests. */
void requests_hear(void *requests, enum link_event event, const uint8_t *bytes, size_t n);

/* Something waits to be taken: the main thread should come to an end of what it does. */
bool requests_waiting(void *requests);

/* The connection that the request at work came by is lost: nothing of it may be sent to the next.
 */
bool requests_lost(struct requests *requests);

/* What to do, in this order. */
struct orders {
	bool drop;              /* forget the one at work */
	bool greet;             /* send a Hello */
	bool cancel;            /* end the one at work: it is cancelled */
	Hearth__ToWorker *next; /* begin this, in the place of any other; the taker frees it */
	bool cancel_next;       /* and end it at once */
};

/* False: nothing. */
bool requests_take(struct requests *requests, struct orders *ret);

/* This one has ended; another that was taken in its place since goes on. */
void requests_ended(struct requests *requests, uint64_t request);

#endif
