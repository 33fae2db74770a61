/* How kernels are launched.  The same source is compiled for a GPU and, in tests/cuda_cpu, for the
 * CPU: so no <<<>>>, and no other way to shared memory of a size known at the launch. */
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

/* `shared`: bytes of the kernel's CUDA_SHARED. */
template <class... Params, class... Args>
static inline int
cuda_launch(const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
	    void *stream, struct error *err, Args... args)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared;
	config.stream = (cudaStream_t)stream;
	return cuda_check(cudaLaunchKernelEx(&config, kernel, args...), name, err);
}

/* At the top of a kernel: type *name, as long as the launch says.  One a kernel, of its own name.
 */
#ifndef CUDA_SHARED
#define CUDA_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

#endif
