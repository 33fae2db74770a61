/* Reads that wait for more of their answer, each a client's call without its reply.  Whoever holds
 * it locks. */
#ifndef HEARTH_SCHEDULER_PARKED_H
#define HEARTH_SCHEDULER_PARKED_H

#include <stdint.h>

#include "common/endpoint.h"

/* The calls left over are for submits, cancels and reads that need not wait. */
#define MAX_PARKED (SERVER_CALLS - 16)

struct parked_read {
	struct call *call;
	uint64_t request;
	uint32_t from_index;
	uint64_t from_byte;
	uint64_t deadline_ns;
};

struct parked {
	struct parked_read reads[MAX_PARKED]; /* the one that has waited longest first */
	uint32_t n;
};

void parked_add(struct parked *parked, struct parked_read read); /* n < MAX_PARKED */
struct parked_read parked_take(struct parked *parked, uint32_t i);
uint64_t parked_deadline(const struct parked *parked); /* the first of all; 0: none */

#endif
