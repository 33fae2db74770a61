#include "common/memory_lock.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define KIB ((uint64_t)1024)

int
memory_lock(const void *at, uint64_t bytes, struct error *err)
{
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
	int rc;

	if (mlock(at, bytes) == 0)
		return 0;
	rc = -errno;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		return error_sys(err, rc, "mlock of %" PRIu64 " KiB refused", bytes / KIB);
	return error_sys(err, rc,
			 "mlock of %" PRIu64 " KiB refused (ulimit -l is %" PRIu64
			 " KiB, raise it to lock all)",
			 bytes / KIB, (uint64_t)limit.rlim_cur / KIB);
}
