#include "common/descriptors.h"

#include <errno.h>
#include <sys/resource.h>

int
descriptors_want(const char *who, uint32_t n, struct error *err)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return error_sys(err, -errno, "the number of descriptors");
	if (limit.rlim_cur >= n)
		return 0;
	if (limit.rlim_max < n)
		return error_set(err, -EMFILE,
				 "%llu descriptors are allowed, the %s needs %u: ulimit -n %u",
				 (unsigned long long)limit.rlim_max, who, n, n);
	limit.rlim_cur = n;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return error_sys(err, -errno, "allowing %u descriptors", n);
	return 0;
}
