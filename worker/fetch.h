/* Asking the loader for experts: those that a forward needs now, ahead of what it reads in order,
 * or those that have no place in RAM.  For the main thread alone, which is never kept waiting here:
 * an answer wakes the service. */
#ifndef HEARTH_WORKER_FETCH_H
#define HEARTH_WORKER_FETCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "common/error.h"
#include "common/model.h"
#include "common/service.h"
#include "proto/fetch.pb-c.h"

struct fetch {
	struct client *client;
	struct service *service;
	uint8_t *packed; /* (packed_bytes) */
	size_t packed_bytes;
	pthread_mutex_t lock;
	bool told;                  /* an answer is there; under lock */
	int rc;                     /* how it came; under lock */
	Hearth__FetchReply *answer; /* NULL unless rc is 0; under lock */
};

/* `max`: experts of one question. */
int fetch_open(struct fetch *ret, const char *dir, struct service *service, uint32_t max,
	       struct error *err);
void fetch_close(struct fetch *fetch); /* of a zeroed one is fine */

/* Forgets the question before, if any.  -ECONNREFUSED: there is no loader. */
int fetch_begin(struct fetch *fetch, uint32_t layer, const uint32_t *experts, uint32_t n);

/* 1: answered, *ret is the caller's to free; 0: not yet; -errno: the loader was lost, or its answer
 * is none. */
int fetch_look(struct fetch *fetch, Hearth__FetchReply **ret);

void fetch_drop(struct fetch *fetch);

#endif
