/* Faults the arena's pages in, a huge page's worth at a time, so that missing memory is an error
 * here and no SIGBUS later: by threads that run ahead of the readers, and by each reader for what
 * it is about to fill.  The threads end when the readers overtake them: then they help nobody.
 *
 * Where huge pages are asked for and come too slowly (memory is fragmented, and the kernel moves
 * other pages away to make one), they are given up for the rest of the arena.
 *
 * The arena outlives this.  Any number of threads may call populate_range at once. */
#ifndef HEARTH_LOADER_POPULATE_H
#define HEARTH_LOADER_POPULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

/* What a test puts others in the place of; 0 or -errno. */
struct populate_calls {
	int (*populate)(void *at, uint64_t bytes);
	int (*no_huge)(void *at, uint64_t bytes); /* huge pages are no longer asked for */
	uint64_t (*now_ns)(void);
};

extern const struct populate_calls populate_system;

/* 16 threads that populate at once get 0.4 to 0.6 GB/s each of huge pages and 0.3 of small ones,
 * one alone 6 and 2 (measured on 16 cores): far below, each huge page is made by moving others
 * away. */
#define POPULATE_SLOW_MB_PER_S 100
#define POPULATE_WATCH_BYTES (64ull << 20) /* looked at together: one slow page means nothing */

struct populate_config {
	const struct populate_calls *calls;
	uint8_t *base; /* 2 MiB aligned, as its bytes */
	uint64_t bytes;
	uint32_t threads; /* ahead of the readers; 0: each reader for itself */
	bool watch;       /* huge pages are asked for and may be given up */
};

struct populate;

int populate_open(struct populate **ret, const struct populate_config *config, struct error *err);

/* The range is there already (a slice taken over warm).  Before populate_start. */
void populate_skip(struct populate *populate, uint64_t from, uint64_t to);

/* Starts the threads; that there are fewer of them is no error. */
void populate_start(struct populate *populate);

/* Returns once every page of the range is there; 0 or -errno. */
int populate_range(struct populate *populate, uint64_t from, uint64_t to);

struct populate_said {
	uint64_t ahead_bytes; /* by the threads */
	uint64_t bytes;       /* by everybody */
	uint64_t ns;          /* inside the calls, summed over all threads */
	bool slow;            /* huge pages were given up */
	bool overtaken;       /* the threads ended because the readers were faster */
	int failed;           /* -errno of the first call that failed, else 0 */
};
struct populate_said populate_said(struct populate *populate);

/* Waits for the threads: until all is there or they were overtaken. */
void populate_join(struct populate *populate);
void populate_stop(struct populate *populate);  /* each ends after its chunk; waits for that */
void populate_close(struct populate *populate); /* stops; NULL is fine */

#endif
