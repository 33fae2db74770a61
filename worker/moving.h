/* Asking the pinner for experts in slots, one request at a time, without waiting for it: an answer
 * wakes the service.  All but the answer is the main thread's. */
#ifndef HEARTH_WORKER_MOVING_H
#define HEARTH_WORKER_MOVING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "common/error.h"
#include "common/service.h"
#include "proto/lend.pb-c.h"
#include "worker/slot_plan.h"

struct moving {
	struct client *client;
	struct service *service;
	uint32_t max;             /* moves of one request */
	uint32_t lease;           /* of the slots */
	Hearth__Move__One *ones;  /* (max) */
	Hearth__Move__One **list; /* (max) */
	uint8_t *packed;          /* (packed_bytes) */
	size_t packed_bytes;
	pthread_mutex_t lock;
	bool told;        /* an answer is there; under lock */
	int rc;           /* how it ended; under lock */
	struct error why; /* if badly; under lock */
};

int moving_open(struct moving *ret, const char *dir, struct service *service, uint32_t max,
		uint32_t lease, struct error *err);
void moving_close(struct moving *moving); /* of a zeroed one is fine */

/* At most `max`, when nothing is under way.  -ECANCELED: the pinner is gone. */
int moving_begin(struct moving *moving, uint64_t slot_bytes, const struct slot_fill *moves,
		 uint32_t n, struct error *err);

/* 1: the experts are in their slots; 0: not yet; -ECANCELED: the pinner is gone; other codes are
 * its refusals: what the slots hold is not known. */
int moving_look(struct moving *moving, struct error *err);

#endif
