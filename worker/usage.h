/* The profile as it grows: how often each expert was chosen, in memory that the pinner lends and
 * that outlives the worker, and from there in a file, for the next start.  One writer: the worker
 * that holds the region's lock; a worker that dies takes along what it has not added yet. */
#ifndef HEARTH_WORKER_USAGE_H
#define HEARTH_WORKER_USAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/profile.h"

/* As it lies in the lent region. */
struct usage_page {
	_Atomic uint64_t magic; /* whoever finds it finds the rest */
	struct profile_shape shape;
	uint64_t counts[]; /* (layers, experts) */
};

struct usage {
	const char *path;
	struct usage_page *page;
	bool unsaved; /* the file lacks some */
};

uint64_t usage_bytes(const struct profile_shape *shape);

/* Takes the region as the last worker left it, else what the file holds, if there is one.
 * -EBADMSG: the file is another model's, or no profile. */
int usage_open(struct usage *ret, void *region, const struct profile_shape *shape, const char *path,
	       struct error *err);

/* (layers, experts) more. */
void usage_add(struct usage *usage, const uint64_t *counts);

/* Writes the file if it lacks something that this process added. */
int usage_save(struct usage *usage, struct error *err);

#endif
