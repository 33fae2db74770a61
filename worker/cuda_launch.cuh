/* What every launcher ends with. */
#ifndef HEARTH_WORKER_CUDA_LAUNCH_CUH
#define HEARTH_WORKER_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <errno.h>

extern "C" {
#include "common/error.h"
}

/* The error is cleared: it belongs to this launch alone. */
static inline int
cuda_check(cudaError_t failure, const char *what, struct error *err)
{
	if (failure == cudaSuccess)
		return 0;
	cudaGetLastError();
	return error_set(err, -EIO, "cuda: %s: %s (%s)", what, cudaGetErrorString(failure),
			 cudaGetErrorName(failure));
}

static inline int
cuda_launched(const char *kernel, struct error *err)
{
	return cuda_check(cudaGetLastError(), kernel, err);
}

#endif
