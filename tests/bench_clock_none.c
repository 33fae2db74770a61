/* A build without CUDA has one clock. */
#include "tests/bench_clock.h"

#include <errno.h>

int
bench_clock_offset(int64_t *ret_ns, uint64_t *ret_within_ns, struct error *err)
{
	(void)ret_ns;
	(void)ret_within_ns;
	return error_set(err, -ENODEV, "built without CUDA: there is no GPU to ask for the time");
}
