/* How hot each expert is (slot_policy.h), in memory that the pinner lends and that outlives the
 * worker: its successor goes on with what the router chose before.  It decides what is moved and
 * never what is computed, so what a worker leaves that dies in the midst of ageing it will do. */
#ifndef HEARTH_WORKER_HEAT_H
#define HEARTH_WORKER_HEAT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/profile.h"

/* As it lies in the lent region. */
struct heat_page {
	_Atomic uint64_t magic; /* whoever finds it finds the rest */
	struct profile_shape shape;
	float heat[]; /* (layers, experts) */
};

uint64_t heat_bytes(const struct profile_shape *shape);

/* True: as the last worker left it.  False: it is another model's or none, and all cold now. */
bool heat_open(struct heat_page *page, const struct profile_shape *shape);

#endif
