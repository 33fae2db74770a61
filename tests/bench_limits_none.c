/* A build without CUDA has no device to measure. */
#include "tests/bench_limits.h"

#include <errno.h>

static int
none(struct error *err)
{
	return error_set(err, -ENODEV, "built without CUDA: there is no GPU to measure");
}

int
bench_limits_open(uint32_t ordinal, char ret_name[128], struct error *err)
{
	(void)ordinal;
	(void)ret_name;
	return none(err);
}

int
bench_limits_copy(double *ret_gb_s, struct error *err)
{
	(void)ret_gb_s;
	return none(err);
}

int
bench_limits_read(double *ret_gb_s, struct error *err)
{
	(void)ret_gb_s;
	return none(err);
}

int
bench_limits_to_device(void *at, uint64_t bytes, double *ret_gb_s, struct error *err)
{
	(void)at;
	(void)bytes;
	(void)ret_gb_s;
	return none(err);
}

int
bench_limits_in_place(void *at, uint64_t bytes, double *ret_gb_s, struct error *err)
{
	(void)at;
	(void)bytes;
	(void)ret_gb_s;
	return none(err);
}

int
bench_limits_together(void *at, uint64_t bytes, uint32_t threads, double *ret_gpu_gb_s,
		      double *ret_cpu_gb_s, struct error *err)
{
	(void)at;
	(void)bytes;
	(void)threads;
	(void)ret_gpu_gb_s;
	(void)ret_cpu_gb_s;
	return none(err);
}
