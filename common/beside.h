/* A text file that takes the place of another at once: written beside it and renamed, so that a
 * reader never sees half of it.  Not made to outlive a power cut.  What is no file (a device, a
 * pipe) is written to as it is. */
#ifndef HEARTH_COMMON_BESIDE_H
#define HEARTH_COMMON_BESIDE_H

#include <limits.h>
#include <stdio.h>

#include "common/error.h"

struct beside {
	FILE *file; /* to write to */
	const char *path;
	char made[PATH_MAX]; /* "": no file beside it */
};

/* `path` must outlive it. */
int beside_open(struct beside *ret, const char *path, struct error *err);

/* Into its place, or, where not all of it could be written, away. */
int beside_close(struct beside *beside, struct error *err);

#endif
