/* Which experts stay in memory within a budget, and how large the window for the others is.  The
 * budget covers both; the trunk comes on top.  Plain arithmetic; no I/O. */
#ifndef HEARTH_LOADER_RESIDENT_H
#define HEARTH_LOADER_RESIDENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/model.h"

struct resident {
	uint32_t n_layers, n_experts; /* of a layer */
	uint64_t budget;              /* bytes, as asked for */
	bool *in;                     /* (layers, experts) */
	uint32_t n_in;
	uint64_t bytes_in, bytes_out;      /* of the matrices */
	uint64_t expert_bytes[N_ROLES];    /* of the largest */
	uint64_t role_at[N_ROLES];         /* in a slot: room for it at any offset in a block */
	uint64_t slot_bytes, window_slots; /* one for each of a layer, or of all that are outside */
};

/* The bytes of all experts' matrices. */
uint64_t resident_all_bytes(const struct model *model);

/* `counts` (layers, experts): the most used first; NULL: of each layer the first ones, as many of
 * each.  -EOVERFLOW, with what would do: not even the window fits. */
int resident_open(struct resident *ret, const struct model *model, uint64_t budget,
		  const uint64_t *counts, struct error *err);

/* The set of a warm arena instead, chosen once from the same budget. */
void resident_take(struct resident *resident, const struct model *model, const bool *in);

void resident_close(struct resident *resident); /* of a zeroed one is fine */

#endif
