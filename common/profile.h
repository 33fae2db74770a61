/* How often each expert was chosen, as a file that outlives all processes: the worker writes it,
 * the loader keeps the most used experts in RAM by it.  Text: a line
 *
 *   hearth-profile 2 <fingerprint of the model by its content, 16 hex digits> <layers> <experts>
 *
 * then one line of <experts> counts for each layer. */
#ifndef HEARTH_COMMON_PROFILE_H
#define HEARTH_COMMON_PROFILE_H

#include <stdint.h>

#include "common/error.h"

/* Whose counts. */
struct profile_shape {
	uint64_t fingerprint;
	uint32_t layers, experts;
};

/* counts: (layers, experts).  -ENOENT: there is none yet; -EBADMSG: it is no profile, or another
 * model's. */
int profile_read(const char *path, const struct profile_shape *shape, uint64_t *ret_counts,
		 struct error *err);

/* In the place of what is there, at once. */
int profile_write(const char *path, const struct profile_shape *shape, const uint64_t *counts,
		  struct error *err);

#endif
