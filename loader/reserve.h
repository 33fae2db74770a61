/* Reserves the arena: which pages are asked for, whether there is room, and which NUMA node is
 * preferred.  What was really got is read later, from smaps. */
#ifndef HEARTH_LOADER_RESERVE_H
#define HEARTH_LOADER_RESERVE_H

#include "common/arena.h"
#include "common/pages.h"
#include "loader/pool_limit.h"
#include "loader/room.h"

#define NUMA_NODE_NONE (-1)
#define NUMA_NODE_AUTO (-2)

struct reserve_want {
	struct room_need need;
	const struct available *available; /* read before anything was taken */
	const char *root;                  /* /sys stands behind it: "" is this machine */
	enum arena_pages pages;
	int numa_node;     /* NUMA_NODE_AUTO: the GPUs' */
	bool without_pool; /* hugetlb was tried, and was not there when it was touched */
	const struct pool_limit *limit; /* reserve_arena's own; NULL: none */
};

struct reserve {
	enum arena_pages wanted, asked; /* asked is never ARENA_PAGES_AUTO */
	struct pages_kernel kernel;     /* as it stood when that was decided */
	bool slow;                      /* huge pages came too slowly, small ones were taken */
	int numa_node;                  /* preferred; NUMA_NODE_NONE: none */
	char numa_note[128];            /* why */
};

/* Which pages to ask for.  A kind that was forced and cannot be had is -ENOTSUP or -EOVERFLOW, with
 * what is needed, what is there and what to set; or -EBUSY, where it is there and others have it
 * now: a later start may get it. */
int reserve_choose(enum arena_pages *ret, const struct reserve_want *want,
		   const struct pages_kernel *kernel, struct error *err);

/* A new, empty arena. */
int reserve_arena(struct arena *ret, struct reserve *ret_how, const struct reserve_want *want,
		  struct error *err);

/* What would give better pages than those that were got; "" when there are none better. */
void reserve_advice(char *ret, size_t room, const struct reserve *how, const struct pages_got *got,
		    uint64_t arena_bytes);

#endif
