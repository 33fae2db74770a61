#include "loader/cache_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/checked.h"
#include "common/clock.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451 /* everywhere but on alpha */
#endif

/* As linux/mman.h has them since 6.5. */
struct cache_range {
	uint64_t offset, bytes;
};

struct cache_counts {
	uint64_t cached, dirty, writeback, evicted, recently_evicted; /* pages */
};

/* Of one mincore: a byte for each page. */
#define CORE_BYTES (1ull << 30)

static int
system_stat_pages(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	struct cache_range range = { offset, bytes };
	struct cache_counts counts = { 0 };

	if (syscall(SYS_cachestat, fd, &range, &counts, 0) < 0)
		return -errno;
	*ret = counts.cached;
	return 0;
}

static int64_t
system_read_nowait(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	struct iovec part = { to, bytes };
	ssize_t n = preadv2(fd, &part, 1, (off_t)offset, RWF_NOWAIT);

	return n < 0 ? -errno : n;
}

static int
count_core(int fd, uint64_t from, uint64_t bytes, unsigned char *pages, uint64_t *count)
{
	void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, (off_t)from);
	int rc;

	if (at == MAP_FAILED)
		return -errno;
	rc = mincore(at, bytes, pages) < 0 ? -errno : 0;
	munmap(at, bytes);
	for (uint64_t i = 0; rc == 0 && i < (bytes + CACHE_PAGE - 1) / CACHE_PAGE; i++)
		*count += pages[i] & 1;
	return rc;
}

static int
system_core_pages(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	uint64_t from = round_down(offset, CACHE_PAGE), end = offset + bytes, count = 0;
	unsigned char *pages;
	struct stat st;
	char path[32];
	int rc = 0;

	if (sysconf(_SC_PAGESIZE) != CACHE_PAGE)
		return -ENOSYS;
	if (fstat(fd, &st) < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (st.st_uid != geteuid() && faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0)
		return -EPERM;
	pages = malloc(CORE_BYTES / CACHE_PAGE);
	if (!pages)
		return -ENOMEM;
	for (; from < end && rc == 0; from += CORE_BYTES)
		rc = count_core(fd, from, end - from < CORE_BYTES ? end - from : CORE_BYTES, pages,
				&count);
	free(pages);
	if (rc == 0)
		*ret = count;
	return rc;
}

static int64_t
system_read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	ssize_t n = pread(fd, to, bytes, (off_t)offset);

	return n < 0 ? -errno : n;
}

static void
system_expect_random(int fd, int random)
{
	posix_fadvise(fd, 0, 0, random ? POSIX_FADV_RANDOM : POSIX_FADV_NORMAL);
}

const struct cache_calls cache_system = {
	.stat_pages = system_stat_pages,
	.read_nowait = system_read_nowait,
	.core_pages = system_core_pages,
	.read_at = system_read_at,
	.expect_random = system_expect_random,
	.now_ns = clock_ns,
};
