/* How a resident set is read: in batches of so many (layer, expert) pairs, in the order of layers.
 * What is one batch's is sorted and merged together, so that a drive gets few and large requests
 * whatever the profile has picked; batch after batch, so that experts become whole one after the
 * other and not all at the end; and the queue lets the next batch be read while this one is being
 * completed, so that no drive idles between two.  Plain arithmetic; no I/O. */
#ifndef HEARTH_LOADER_FILL_H
#define HEARTH_LOADER_FILL_H

#include "loader/piece_queue.h"

#define FILL_PAIRS 64u

/* For each piece its batch, from 0; those of no expert (the trunk) go with the first.  The caller
 * frees. -ENOMEM. */
int fill_batches(uint32_t **ret, const struct placement *placement, const struct pieces *pieces,
		 struct error *err);

#endif
