#include "loader/reserve.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "loader/numa.h"

#define SYS "/sys" /* in messages */

/* The groups' limit is less than what is needed, or what is left of it. */
static int
refuse_limit(const struct pool_limit *limit, uint64_t need, struct error *err)
{
	if (limit->most >= need)
		return error_set(
		    err, -EBUSY,
		    "--pages hugetlb: needs %" PRIu64 " pages of 2 MiB, %" PRIu64 " of the %" PRIu64
		    " that %s allows are free, others have the rest: wait for them, or "
		    "--pages auto",
		    need, limit->pages, limit->most, limit->where);
	return error_set(err, -EOVERFLOW,
			 "--pages hugetlb: needs %" PRIu64 " pages of 2 MiB, %s allows %" PRIu64
			 ": want %" PRIu64 " bytes there, or --pages auto",
			 need, limit->where, limit->most, (uint64_t)(need * PAGES_HUGE_BYTES));
}

static int
refuse_pool(const struct pages_kernel *kernel, const struct pool_limit *limit, uint64_t need,
	    struct error *err)
{
	if (!kernel->has_pool)
		return error_set(err, -ENOTSUP,
				 "--pages hugetlb: this kernel has no pool of 2 MiB pages (" SYS
				 "/" PAGES_POOL_KNOB "), want --pages auto");
	if (kernel->pool_all < need)
		return error_set(err, -EOVERFLOW,
				 "--pages hugetlb: needs %" PRIu64 " pages of 2 MiB, %" PRIu64
				 " of %" PRIu64 " are free: as root echo %" PRIu64 " > " SYS
				 "/" PAGES_POOL_KNOB ", or --pages auto",
				 need, kernel->pool_free, kernel->pool_all,
				 kernel->pool_all + need - kernel->pool_free);
	if (limit && limit->pages < need)
		return refuse_limit(limit, need, err);
	if (kernel->pool_free >= need)
		return error_set(err, -EBUSY,
				 "--pages hugetlb: %" PRIu64 " pages of 2 MiB are free, %" PRIu64
				 " are needed and were refused: a limit that is not seen here "
				 "(hugetlb.2MB.max, cpuset.mems)?, want --pages auto",
				 kernel->pool_free, need);
	return error_set(
	    err, -EBUSY,
	    "--pages hugetlb: needs %" PRIu64 " pages of 2 MiB, %" PRIu64 " of %" PRIu64
	    " are free, others have the rest: wait for them, or as root echo %" PRIu64 " > " SYS
	    "/" PAGES_POOL_KNOB ", or --pages auto",
	    need, kernel->pool_free, kernel->pool_all, kernel->pool_all + need - kernel->pool_free);
}

static int
refuse_thp(const struct pages_kernel *kernel, struct error *err)
{
	if (!kernel->shmem[0])
		return error_set(
		    err, -ENOTSUP,
		    "--pages thp: this kernel has no huge pages for shared memory (" SYS
		    "/" PAGES_SHMEM_KNOB "), want --pages auto");
	return error_set(err, -ENOTSUP,
			 "--pages thp: " SYS "/" PAGES_SHMEM_KNOB
			 " is %s: as root echo advise > it, or --pages auto",
			 kernel->shmem);
}

int
reserve_choose(enum arena_pages *ret, const struct reserve_want *want,
	       const struct pages_kernel *kernel, struct error *err)
{
	uint64_t need = pages_needed(want->need.bytes);
	bool pool = kernel->has_pool && kernel->pool_free >= need && !want->without_pool &&
		    (!want->limit || want->limit->pages >= need);
	bool thp = pages_thp_possible(kernel);

	switch (want->pages) {
	case ARENA_PAGES_HUGETLB:
		if (!pool)
			return refuse_pool(kernel, want->limit, need, err);
		break;
	case ARENA_PAGES_THP:
		if (!thp)
			return refuse_thp(kernel, err);
		break;
	case ARENA_PAGES_4K:
		break;
	case ARENA_PAGES_AUTO:
		*ret = pool ? ARENA_PAGES_HUGETLB : thp ? ARENA_PAGES_THP : ARENA_PAGES_4K;
		return 0;
	}
	*ret = want->pages;
	return 0;
}

/* Pages of the pool are set aside already: what is available does not count them. */
static int
create(struct arena *ret, const struct reserve_want *want, enum arena_pages pages,
       struct error *err)
{
	int rc = 0;

	if (pages != ARENA_PAGES_HUGETLB)
		rc = room_check(&want->need, want->available, err);
	return rc < 0 ? rc : arena_create(ret, want->need.bytes, pages, err);
}

static int
choose_node(struct reserve *how, const struct reserve_want *want, const char *sys,
	    struct error *err)
{
	int rc;

	how->numa_node = want->numa_node;
	if (want->numa_node == NUMA_NODE_AUTO) {
		how->numa_node = numa_find_node(sys, how->numa_note, sizeof(how->numa_note));
	} else if (want->numa_node != NUMA_NODE_NONE) {
		rc = numa_check_node(sys, want->numa_node, err);
		if (rc < 0)
			return rc;
		snprintf(how->numa_note, sizeof(how->numa_note), "--numa-node %d%s",
			 want->numa_node, rc ? ", the only one with memory" : "");
		if (rc)
			how->numa_node = NUMA_NODE_NONE;
	}
	return 0;
}

/* A wish: where it cannot be granted, the arena lies elsewhere, and the note says so. */
static void
prefer_node(struct reserve *how, const struct arena *arena)
{
	int rc;

	if (how->numa_node == NUMA_NODE_NONE)
		return;
	rc = numa_prefer(arena->base, arena->bytes, how->numa_node);
	if (rc == 0)
		return;
	snprintf(how->numa_note, sizeof(how->numa_note), "preferring node %d: mbind: %s",
		 how->numa_node, strerror(-rc));
	log_warn("%s", how->numa_note);
	how->numa_node = NUMA_NODE_NONE;
}

int
reserve_arena(struct arena *ret, struct reserve *ret_how, const struct reserve_want *want,
	      struct error *err)
{
	struct reserve how = { .wanted = want->pages };
	struct reserve_want own = *want;
	struct arena arena = { .fd = -1 };
	struct pool_limit limit;
	char sys[PATH_MAX];
	int rc;

	snprintf(sys, sizeof(sys), "%s/sys", want->root);
	pool_limit_read(&limit, want->root);
	own.limit = &limit;
	rc = choose_node(&how, want, sys, err);
	pages_read_kernel(&how.kernel, sys);
	if (rc == 0)
		rc = reserve_choose(&how.asked, &own, &how.kernel, err);
	if (rc < 0)
		return rc;
	rc = create(&arena, want, how.asked, err);
	/* Somebody was faster at the pool. */
	if (rc == -ENOMEM && how.asked == ARENA_PAGES_HUGETLB) {
		pages_read_kernel(&how.kernel, sys);
		pool_limit_read(&limit, want->root);
		own.without_pool = true;
		rc = reserve_choose(&how.asked, &own, &how.kernel, err);
		if (rc == 0)
			rc = create(&arena, want, how.asked, err);
	}
	if (rc < 0)
		return rc;
	prefer_node(&how, &arena);
	*ret = arena;
	*ret_how = how;
	return 0;
}

void
reserve_advice(char *ret, size_t room, const struct reserve *how, const struct pages_got *got,
	       uint64_t arena_bytes)
{
	const struct pages_kernel *kernel = &how->kernel;

	*ret = '\0';
	if (got->bytes == 0 || got->thp + got->hugetlb >= got->bytes)
		return;
	if (how->wanted == ARENA_PAGES_4K)
		snprintf(ret, room, "--pages 4k was asked for; --pages auto takes what is better");
	else if (how->slow)
		snprintf(ret, room,
			 "huge pages came too slowly, memory is fragmented: as root echo 1 > "
			 "/proc/sys/vm/compact_memory before the start, or a pool (./run.sh tune)");
	else if (pages_thp_possible(kernel))
		snprintf(ret, room,
			 "the kernel had no whole huge page free: as root echo 1 > "
			 "/proc/sys/vm/compact_memory before the start, or a pool (./run.sh tune)");
	else if (kernel->shmem[0])
		snprintf(ret, room,
			 SYS "/" PAGES_SHMEM_KNOB " is %s: as root echo advise > it, or "
			     "./run.sh tune --apply",
			 kernel->shmem);
	else if (kernel->has_pool)
		snprintf(ret, room,
			 "this kernel has no huge pages for shared memory: as root echo %" PRIu64
			 " > " SYS "/" PAGES_POOL_KNOB ", or ./run.sh tune",
			 kernel->pool_all + pages_needed(arena_bytes) - kernel->pool_free);
	else
		snprintf(ret, room, "this kernel has no huge pages");
}
