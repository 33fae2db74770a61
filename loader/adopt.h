/* Takes a warm arena back: after a restart the pinner still holds the one that the last loader
 * made. Trusted is what the pinner says is filled, with its checksum, in an arena of the very same
 * model and layout; nothing of a slice that was being filled. */
#ifndef HEARTH_LOADER_ADOPT_H
#define HEARTH_LOADER_ADOPT_H

#include <stdbool.h>

#include "common/arena.h"

/* True: *ret is attached, and filled[i], checksums[i] are set for each of n_slices.  It is writable
 * unless it is sealed, and sealed only when all of it was filled (filled[i] may be false then if
 * the pinner had not heard yet).  False: *ret_why says why there is none to take. */
bool adopt_arena(struct arena *ret, const char *dir, const struct arena_head *head, bool *filled,
		 uint64_t *checksums, struct error *ret_why);

/* With a budget: the pinner's arena is of this model and this budget; ret[0 .. n-1] are the experts
 * (layers, experts) that are resident in it.  False: it has no such arena. */
bool adopt_resident(const char *dir, uint64_t stamp, uint64_t budget, uint64_t n, bool *ret);

#endif
