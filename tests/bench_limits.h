/* What a GPU and its way to host memory can do at most, by the plainest means: copies and a kernel
 * that reads and does nothing else.  GB are 1e9 bytes.  0 or -errno; without CUDA -ENODEV. */
#ifndef HEARTH_TESTS_BENCH_LIMITS_H
#define HEARTH_TESTS_BENCH_LIMITS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/error.h"

/* The device that the following calls are about; its name goes to ret_name. */
int bench_limits_open(uint32_t ordinal, char ret_name[128], struct error *err);

/* Copies within device memory: each byte counts twice, as read and as written. */
int bench_limits_copy(double *ret_gb_s, struct error *err);
/* A kernel reads device memory. */
int bench_limits_read(double *ret_gb_s, struct error *err);

/* Of host memory that is there already: registered here, and let go again. */
int bench_limits_to_device(void *at, uint64_t bytes, double *ret_gb_s, struct error *err);
/* A kernel reads it in place. */
int bench_limits_in_place(void *at, uint64_t bytes, double *ret_gb_s, struct error *err);
/* The same, while threads of the CPU read it too. */
int bench_limits_together(void *at, uint64_t bytes, uint32_t threads, double *ret_gpu_gb_s,
			  double *ret_cpu_gb_s, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
