/* What the router chose, held against what was in slots at that time.  Counted between forwards,
 * and always before a place changes, so that each use is of the table it was computed by. */
#ifndef HEARTH_WORKER_SLOT_USE_H
#define HEARTH_WORKER_SLOT_USE_H

#include <stdint.h>

#include "worker/compute.h"
#include "worker/slot_plan.h"

struct slot_use {
	const struct model *model;
	uint64_t *counts; /* (layers, experts): of the last count alone */
	/* Since slot_use_open; a use is one expert of one layer for one token. */
	uint64_t uses, hits;
	uint64_t bytes_slots, bytes_arena; /* that these read */
};

int slot_use_open(struct slot_use *ret, const struct model *model);
void slot_use_close(struct slot_use *use);

/* Takes what was chosen since the last call.  -errno: as compute_ops.usage. */
int slot_use_count(struct slot_use *use, const struct slot_plan *slots,
		   const struct compute_ops *ops, struct compute *compute);

/* Of which all uses so far are. */
uint64_t slot_use_tokens(const struct slot_use *use);

#endif
