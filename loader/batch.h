/* Reads that are wanted at once, as few requests as are good for a drive: windows of one file that
 * lie near each other become one.  Plain arithmetic; no I/O. */
#ifndef HEARTH_LOADER_BATCH_H
#define HEARTH_LOADER_BATCH_H

#include <stdint.h>

#include "loader/scatter_read.h"

#define BATCH_GAP (1ull << 20)      /* this far apart they are two requests */
#define BATCH_REQUEST (32ull << 20) /* and so are those that would be longer together */
#define BATCH_WINDOWS SCATTER_MOST  /* or more */

struct batch_window {
	uint32_t shard, slice;
	uint64_t file_offset, bytes;
	uint64_t arena_offset; /* where they belong */
	uint64_t tag;          /* the caller's */
};

struct batch_request {
	uint32_t shard;
	uint64_t file_offset, bytes;
	uint64_t first, n; /* windows, as they are sorted now */
};

/* Sorts the windows by shard and offset and writes the requests (room for n).  Returns how many. A
 * window is never cut: one that is longer than BATCH_REQUEST is a request by itself. */
uint64_t batch_merge(struct batch_window *windows, uint64_t n, struct batch_request *ret);

#endif
