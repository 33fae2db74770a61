/* How much of what is to be read is in the page cache already.  Asked while nobody reads the same
 * drive; the best way that this kernel and container allow is used, and named. */
#ifndef HEARTH_LOADER_CACHED_H
#define HEARTH_LOADER_CACHED_H

#include "loader/cache_calls.h"

struct cached_range {
	int fd; /* ranges of one file stand together */
	uint64_t offset, bytes;
	uint64_t file_bytes; /* of the whole file */
};

struct cached {
	uint64_t looked, cached; /* bytes: all of the ranges, or what the samples stand for */
	const char *probe;       /* "cachestat", "preadv2", "mincore", "timed reads", "none" */
};

#define CACHED_SAMPLES 512             /* pages that preadv2 looks at */
#define CACHED_READS 16                /* timed reads of each file */
#define CACHED_READ_BYTES (64u << 10)  /* about 10 us cached, 80 or more from a drive */
#define CACHED_READ_NS 30000u          /* faster ones were cached */
#define CACHED_SMALL_FILE (128u << 10) /* files up to here tell nothing by time */

/* Never fails: what cannot be read is not cached, and the reader will say why.  `seed` must differ
 * from start to start, for a sample leaves its own place cached. */
void cached_measure(struct cached *ret, const struct cache_calls *calls,
		    const struct cached_range *ranges, uint64_t n, uint64_t seed);

#endif
