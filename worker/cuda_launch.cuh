/* How kernels are launched.  The same source is compiled for a GPU and, in tests/cuda_cpu, for the
 * CPU: so no <<<>>>, and no other way to shared memory of a size known at the launch. */
#ifndef HEARTH_WORKER_CUDA_LAUNCH_CUH
#define HEARTH_WORKER_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>
#include <errno.h>

extern "C" {
#include "common/error.h"
}
#include "worker/cuda_probe.cuh"

#define SHARED_UNASKED (48u << 10) /* what every kernel may have */

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

/* *ret: bytes that a block may have. */
static inline int
cuda_shared_most(int *ret, struct error *err)
{
	int device = 0;
	int r = cuda_check(cudaGetDevice(&device), "cudaGetDevice", err);

	return r ? r
		 : cuda_check(
		       cudaDeviceGetAttribute(ret, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
		       "cudaDeviceGetAttribute", err);
}

/* *ret: bytes that each of `blocks` may have for all of them to have room on an SM at once.  Some
 * of an SM's memory is the system's, so much a block. */
static inline int
cuda_shared_each(int blocks, int *ret, struct error *err)
{
	int device = 0, all = 0, reserved = 0;
	int r = cuda_check(cudaGetDevice(&device), "cudaGetDevice", err);

	if (!r)
		r = cuda_check(cudaDeviceGetAttribute(
				   &all, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
			       "cudaDeviceGetAttribute", err);
	if (!r)
		r = cuda_check(cudaDeviceGetAttribute(
				   &reserved, cudaDevAttrReservedSharedMemoryPerBlock, device),
			       "cudaDeviceGetAttribute", err);
	if (!r)
		*ret = all / blocks - reserved;
	return r;
}

/* -ENOTSUP: the device gives its blocks less. */
static inline int
cuda_has_shared(const char *name, size_t shared, struct error *err)
{
	int most = 0;
	int r = cuda_shared_most(&most, err);

	if (!r && shared > (size_t)most)
		r = error_set(err, -ENOTSUP,
			      "cuda: %s needs %zu KiB of shared memory a block, the device has %d",
			      name, (shared + 1023) >> 10, most >> 10);
	return r;
}

/* What the kernel may have of an SM: all of its memory as shared memory, as every kernel here, for
 * kernels overlap only where they want it divided alike. */
template <class... Params>
static inline int
cuda_allow_shared(const char *name, void (*kernel)(Params...), size_t shared, struct error *err)
{
	int r =
	    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
					    cudaSharedmemCarveoutMaxShared),
		       name, err);

	if (r || shared <= SHARED_UNASKED)
		return r;
	r = cuda_has_shared(name, shared, err);
	return r ? r
		 : cuda_check(cudaFuncSetAttribute(
				  kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared),
			      name, err);
}

/* The kernel may begin before the one launched before it has ended (previous_done in
 * cuda_ptx.cuh), where the device can do that and the kernel was compiled to wait for it. */
template <class... Params>
static inline int
cuda_overlap(cudaLaunchConfig_t *config, cudaLaunchAttribute *room, const char *name,
	     void (*kernel)(Params...), struct error *err)
{
	cudaFuncAttributes is = {};
	int device = 0, major = 0;
	int r = cuda_check(cudaGetDevice(&device), name, err);

	if (!r)
		r = cuda_check(
		    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), name,
		    err);
	if (!r)
		r = cuda_check(cudaFuncGetAttributes(&is, kernel), name, err);
	if (!r && major >= 9 && is.ptxVersion >= 90) {
		room->id = cudaLaunchAttributeProgrammaticStreamSerialization;
		room->val.programmaticStreamSerializationAllowed = 1;
		config->attrs = room;
		config->numAttrs = 1;
	}
	return r;
}

/* `shared`: bytes of the kernel's CUDA_SHARED.  `behind_copy`: what comes before is a copy, or
 * something else that is no kernel; only kernels are promised to overlap. */
template <class... Params, class... Args>
static inline int
cuda_launch_behind(bool behind_copy, const char *name, void (*kernel)(Params...), dim3 grid,
		   dim3 block, size_t shared, void *stream, struct error *err, Args... args)
{
	cudaLaunchConfig_t config = {};
	cudaLaunchAttribute overlap = {};
	int r = cuda_allow_shared(name, kernel, shared, err);

	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared;
	config.stream = (cudaStream_t)stream;
	if (!r && !behind_copy)
		r = cuda_overlap(&config, &overlap, name, kernel, err);
	return r ? r
		 : cuda_check(cudaLaunchKernelEx(&config, kernel, args... PROBE_ARG(name, grid)),
			      name, err);
}

/* Behind a kernel. */
template <class... Params, class... Args>
static inline int
cuda_launch(const char *name, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared,
	    void *stream, struct error *err, Args... args)
{
	return cuda_launch_behind(false, name, kernel, grid, block, shared, stream, err, args...);
}

/* At the top of a kernel: type *name, as long as the launch says.  One a kernel, of its own name.
 */
#ifndef CUDA_SHARED
#define CUDA_SHARED(type, name) extern __shared__ __align__(128) type name[]
#endif

#endif
