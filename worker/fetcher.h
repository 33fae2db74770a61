/* Asking the loader for experts: those that a forward needs now, ahead of what it reads in order,
 * or those that have no place in RAM.  For the main thread alone, which is never kept waiting here:
 * an answer wakes the service. */
#ifndef HEARTH_WORKER_FETCHER_H
#define HEARTH_WORKER_FETCHER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "common/error.h"
#include "common/model.h"
#include "common/service.h"
#include "proto/fetch.pb-c.h"

struct fetcher {
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
int fetcher_open(struct fetcher *ret, const char *dir, struct service *service, uint32_t max,
		 struct error *err);
void fetcher_close(struct fetcher *fetcher); /* of a zeroed one is fine */

/* Forgets the question before, if any.  -ECONNREFUSED: there is no loader. */
int fetcher_begin(struct fetcher *fetcher, uint32_t layer, const uint32_t *experts, uint32_t n);

/* 1: answered, *ret is the caller's to free; 0: not yet; -errno: the loader was lost, or its answer
 * is none. */
int fetcher_look(struct fetcher *fetcher, Hearth__FetchReply **ret);

void fetcher_drop(struct fetcher *fetcher);

#endif
