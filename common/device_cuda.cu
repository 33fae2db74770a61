/* The cuda device: cudaMalloc and CUDA IPC to lend memory, cudaHostRegister for host ranges, copies
 * on a stream of its own.  The runtime is linked statically and finds the driver when it is first
 * called: without one, open says so.  Each entry sets the device, since it may run on any thread,
 * and clears the error that it reports, so that none is left for the next, unrelated call. */
#include <cuda_runtime.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/checked.h"
#include "common/device_ops.h"
}

#define CAPABILITY_MIN 75                /* the oldest GPU that the toolkit builds for */
#define REGISTER_MAX_BYTES (64ull << 30) /* larger single calls are known to fail */
#define ALLOCATION_GRAIN (2ull << 20)    /* what an IPC handle opens to the other process */

struct cuda_impl {
	int ordinal;
	cudaStream_t copies;
	bool registers_read_only;
};

static_assert(sizeof(cudaIpcMemHandle_t) == DEVICE_HANDLE_BYTES, "a handle's bytes");

static struct cuda_impl *
impl_of(struct device *device)
{
	return (struct cuda_impl *)device->impl;
}

static int
code_of(cudaError_t failure)
{
	switch (failure) {
	case cudaErrorMemoryAllocation:
		return -ENOMEM;
	case cudaErrorNotPermitted:
	case cudaErrorNotSupported:
		return -EPERM;
	case cudaErrorHostMemoryAlreadyRegistered:
		return -EEXIST;
	case cudaErrorInvalidValue:
	case cudaErrorInvalidResourceHandle:
		return -EINVAL;
	default:
		return -EIO;
	}
}

static int
fail(struct error *err, struct device *device, cudaError_t failure, const char *what)
{
	int code = code_of(failure);

	cudaGetLastError();
	return error_set(err, error_exit_code(code) == EXIT_INPUT ? -EIO : code, "%s: %s: %s (%s)",
			 device->info.name, what, cudaGetErrorString(failure),
			 cudaGetErrorName(failure));
}

static int
enter(struct device *device, struct error *err)
{
	cudaError_t failure = cudaSetDevice(impl_of(device)->ordinal);

	return failure ? fail(err, device, failure, "cudaSetDevice") : 0;
}

static void
cuda_close(struct device *device)
{
	struct cuda_impl *impl = impl_of(device);

	if (!impl)
		return;
	if (impl->copies && cudaSetDevice(impl->ordinal) == cudaSuccess)
		cudaStreamDestroy(impl->copies);
	cudaGetLastError();
	free(impl);
	device->impl = NULL;
}

static int
cuda_memory_room(struct device *device, uint64_t *ret_free, uint64_t *ret_total)
{
	size_t room, total;
	cudaError_t failure = cudaSetDevice(impl_of(device)->ordinal);

	if (!failure)
		failure = cudaMemGetInfo(&room, &total);
	if (failure) {
		cudaGetLastError();
		return code_of(failure);
	}
	*ret_free = room;
	*ret_total = total;
	return 0;
}

static int
no_room(struct device *device, uint64_t bytes, struct error *err)
{
	uint64_t room = 0, total = 0;

	cudaGetLastError();
	cuda_memory_room(device, &room, &total);
	return error_set(err, -ENOMEM, "%s: no room for %llu MiB: %llu of %llu MiB are free",
			 device->info.name, (unsigned long long)(bytes >> 20),
			 (unsigned long long)(room >> 20), (unsigned long long)(total >> 20));
}

/* Whole grains: an IPC handle opens the grain that the memory lies in, and nothing else of this
 * process shall be in it. */
static int
cuda_alloc(struct device *device, uint64_t bytes, struct device_memory *ret, struct error *err)
{
	struct cuda_impl *impl = impl_of(device);
	uint64_t whole;
	void *at;
	cudaError_t failure;
	int r = enter(device, err);

	if (r)
		return r;
	if (bytes == 0)
		return error_set(err, -EINVAL, "%s: 0 bytes of memory asked for",
				 device->info.name);
	if (!checked_round_up(bytes, ALLOCATION_GRAIN, &whole))
		return no_room(device, bytes, err);
	failure = cudaMalloc(&at, whole);
	if (failure == cudaErrorMemoryAllocation)
		return no_room(device, bytes, err);
	if (failure)
		return fail(err, device, failure, "cudaMalloc");
	failure = cudaMemsetAsync(at, 0, whole, impl->copies);
	if (!failure)
		failure = cudaStreamSynchronize(impl->copies);
	if (failure) {
		r = fail(err, device, failure, "zeroing new memory");
		cudaFree(at);
		return r;
	}
	*ret = device_memory{ at, bytes, -1, false };
	return 0;
}

static void
cuda_free(struct device *device, struct device_memory *memory)
{
	if (!memory->at || cudaSetDevice(impl_of(device)->ordinal) != cudaSuccess)
		return;
	if (memory->imported)
		cudaIpcCloseMemHandle(memory->at);
	else
		cudaFree(memory->at);
	cudaGetLastError();
	*memory = device_memory{ NULL, 0, -1, false };
}

static int
cuda_export(struct device *device, const struct device_memory *memory,
	    uint8_t ret_handle[DEVICE_HANDLE_BYTES], struct error *err)
{
	cudaIpcMemHandle_t handle;
	cudaError_t failure;
	int r = enter(device, err);

	if (r)
		return r;
	failure = cudaIpcGetMemHandle(&handle, memory->at);
	if (failure)
		return fail(err, device, failure, "cudaIpcGetMemHandle");
	memcpy(ret_handle, &handle, sizeof handle);
	return 0;
}

static int
cuda_import(struct device *device, const uint8_t bytes_of[DEVICE_HANDLE_BYTES], uint64_t bytes,
	    struct device_memory *ret, struct error *err)
{
	cudaIpcMemHandle_t handle;
	void *at;
	cudaError_t failure;
	int r = enter(device, err);

	if (r)
		return r;
	memcpy(&handle, bytes_of, sizeof handle);
	failure = cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess);
	if (failure)
		return fail(err, device, failure,
			    "cudaIpcOpenMemHandle (does the process that lends it still live?)");
	*ret = device_memory{ at, bytes, -1, true };
	return 0;
}

/* What would help, by what was refused. */
static const char *
register_advice(cudaError_t failure, bool read_only)
{
	switch (failure) {
	case cudaErrorMemoryAllocation:
		return "is there room in RAM and under the cgroup's memory.max?";
	case cudaErrorNotPermitted:
	case cudaErrorNotSupported:
		return "the driver may not lock memory here: raise ulimit -l or leave the sandbox";
	case cudaErrorHostMemoryAlreadyRegistered:
		return "a part of it is registered already: unregister that first";
	case cudaErrorInvalidValue:
		return read_only ? "is all of it mapped?"
				 : "is all of it mapped, and writable? a read-only mapping must be "
				   "registered as such";
	default:
		return "see the kernel's log";
	}
}

static int
cuda_register(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	unsigned flags = cudaHostRegisterMapped;
	cudaError_t failure;
	int r = enter(device, err);

	if (r)
		return r;
	if (bytes == 0 || bytes > REGISTER_MAX_BYTES)
		return error_set(err, -EINVAL, "%s: registering %llu bytes: want 1 to %llu a call",
				 device->info.name, (unsigned long long)bytes,
				 (unsigned long long)REGISTER_MAX_BYTES);
	if (read_only) {
		if (!impl_of(device)->registers_read_only)
			return error_set(err, -EPERM,
					 "%s: cannot register a read-only mapping: this driver or "
					 "GPU lacks it; a newer driver may have it",
					 device->info.name);
		flags |= cudaHostRegisterReadOnly;
	}
	failure = cudaHostRegister(at, bytes, flags);
	if (!failure)
		return 0;
	cudaGetLastError();
	return error_set(err, code_of(failure), "%s: cudaHostRegister of %llu KiB: %s; %s",
			 device->info.name, (unsigned long long)(bytes >> 10),
			 cudaGetErrorString(failure), register_advice(failure, read_only));
}

static void
cuda_unregister(struct device *device, void *at, uint64_t bytes)
{
	(void)bytes; /* the runtime knows each range by its beginning */
	if (cudaSetDevice(impl_of(device)->ordinal) == cudaSuccess)
		cudaHostUnregister(at);
	cudaGetLastError();
}

static int
cuda_copy_in(struct device *device, void *to, const void *from, uint64_t bytes, struct error *err)
{
	cudaError_t failure;
	int r = enter(device, err);

	if (r || bytes == 0)
		return r;
	failure = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, impl_of(device)->copies);
	return failure ? fail(err, device, failure,
			      "cudaMemcpyAsync (a copy must lie within one registered range)")
		       : 0;
}

static int
cuda_wait(struct device *device, struct error *err)
{
	cudaError_t failure;
	int r = enter(device, err);

	if (r)
		return r;
	failure = cudaStreamSynchronize(impl_of(device)->copies);
	return failure ? fail(err, device, failure, "waiting for copies") : 0;
}

static const struct device_ops cuda_ops = {
	cuda_close,
	cuda_memory_room,
	cuda_alloc,
	cuda_free,
	cuda_export,
	cuda_import,
	NULL /* import_path: there is no path to device memory */,
	cuda_register,
	cuda_unregister,
	cuda_copy_in,
	cuda_wait,
};

static int
find_device(int ordinal, int *ret, struct error *err)
{
	int count = 0, driver = 0;
	cudaError_t failure = cudaGetDeviceCount(&count);

	cudaGetLastError();
	if (failure == cudaErrorInsufficientDriver) {
		cudaDriverGetVersion(&driver);
		if (driver == 0)
			return error_set(err, -ENODEV, "cuda: no NVIDIA driver on this machine");
		return error_set(
		    err, -ENODEV,
		    "cuda: the driver is for CUDA %d.%d, this build wants %d.%d or later",
		    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
		    CUDART_VERSION % 1000 / 10);
	}
	if (failure == cudaErrorNoDevice || (!failure && count == 0))
		return error_set(err, -ENODEV, "cuda: the driver sees no GPU");
	if (failure)
		return error_set(err, -ENODEV, "cuda: cannot list GPUs: %s",
				 cudaGetErrorString(failure));
	if (ordinal >= count)
		return error_set(err, -ENODEV, "cuda:%d: no such GPU; there are %d, from cuda:0",
				 ordinal, count);
	*ret = ordinal < 0 ? 0 : ordinal;
	return 0;
}

static int
describe(struct device *device, int ordinal, struct error *err)
{
	cudaDeviceProp prop;
	cudaError_t failure = cudaGetDeviceProperties(&prop, ordinal);

	if (failure) {
		cudaGetLastError();
		return error_set(err, -ENODEV, "cuda:%d: cannot be described: %s", ordinal,
				 cudaGetErrorString(failure));
	}
	if (prop.major * 10 + prop.minor < CAPABILITY_MIN)
		return error_set(err, -ENODEV,
				 "cuda:%d: %s has compute capability %d.%d, want 7.5 or later",
				 ordinal, prop.name, prop.major, prop.minor);
	snprintf(device->info.name, sizeof device->info.name, "cuda:%d %.100s", ordinal, prop.name);
	device->info.cuda = true;
	device->info.computes_from_host = false;
	device->info.register_method = "cudaHostRegister";
	device->info.ordinal = (uint32_t)ordinal;
	impl_of(device)->registers_read_only = prop.hostRegisterReadOnlySupported != 0;
	return 0;
}

extern "C" int
device_cuda_open(struct device *device, int ordinal, struct error *err)
{
	struct cuda_impl *impl;
	cudaError_t failure;
	int r = find_device(ordinal, &ordinal, err);

	if (r)
		return r;
	impl = (struct cuda_impl *)calloc(1, sizeof *impl);
	if (!impl)
		return error_sys(err, -ENOMEM, "cuda:%d", ordinal);
	impl->ordinal = ordinal;
	device->impl = impl;
	device->ops = &cuda_ops;
	r = describe(device, ordinal, err);
	if (r)
		goto out;
	failure = cudaSetDevice(ordinal);
	if (!failure)
		failure = cudaStreamCreateWithFlags(&impl->copies, cudaStreamNonBlocking);
	if (!failure)
		return 0;
	r = fail(err, device, failure, "cannot be opened");
	/* A GPU that is full or taken by another process alone is there, but not for us. */
	if (r == -EIO)
		r = -ENODEV;
out:
	cuda_close(device);
	return r;
}
