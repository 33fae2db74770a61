#include "loader/fill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "common/model.h"

#define NO_BATCH UINT32_MAX

/* True: the expert has pieces to read.  A small one may share them with the expert before it. */
static bool
put_expert(uint32_t *batch, const struct arena_expert *expert, const struct pieces *pieces,
	   uint32_t to)
{
	bool found = false;

	for (uint32_t role = 0; role < N_ROLES; role++) {
		uint64_t piece = expert->role_offset[role] == 0
				     ? PIECE_NONE
				     : pieces_find(pieces, expert->role_offset[role]);

		if (piece == PIECE_NONE)
			continue;
		found = true;
		if (batch[piece] == NO_BATCH)
			batch[piece] = to;
	}
	return found;
}

int
fill_batches(uint32_t **ret, const struct placement *placement, const struct pieces *pieces,
	     struct error *err)
{
	uint32_t *batch = calloc(pieces->n + 1, sizeof(*batch));
	uint64_t pairs = 0;

	if (!batch)
		return error_sys(err, -ENOMEM, "%" PRIu64 " pieces", pieces->n);
	for (uint64_t i = 0; i < pieces->n; i++)
		batch[i] = NO_BATCH;
	for (uint64_t i = 0; i < placement->n_experts; i++)
		pairs += put_expert(batch, &placement->experts[i], pieces,
				    (uint32_t)(pairs / FILL_PAIRS));
	for (uint64_t i = 0; i < pieces->n; i++)
		if (batch[i] == NO_BATCH)
			batch[i] = 0;
	*ret = batch;
	return 0;
}
