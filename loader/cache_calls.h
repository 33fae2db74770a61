/* The system calls that tell what of a file is in the page cache, so that a test can put others in
 * their place: a kernel without one, a container that forbids it.  Each answers with 0 or more, or
 * -errno. */
#ifndef HEARTH_LOADER_CACHE_CALLS_H
#define HEARTH_LOADER_CACHE_CALLS_H

#include <stdint.h>

#define CACHE_PAGE 4096u

struct cache_calls {
	/* cachestat (Linux 6.5): pages of the range that are cached. */
	int (*stat_pages)(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret);
	/* preadv2 with RWF_NOWAIT: -EAGAIN where it would have to wait for the drive. */
	int64_t (*read_nowait)(int fd, void *to, uint64_t bytes, uint64_t offset);
	/* mincore; -EPERM where the kernel would answer that all is there: to files of others. */
	int (*core_pages)(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret);
	int64_t (*read_at)(int fd, void *to, uint64_t bytes, uint64_t offset);
	/* Whether reads come in no order: then nothing is read ahead of them. */
	void (*expect_random)(int fd, int random);
	uint64_t (*now_ns)(void);
};

extern const struct cache_calls cache_system;

#endif
