/* Devices, errors and memory. */
#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>

#include "tests/cuda_cpu/stream.h"

#define DEVICE_BYTES (16ull << 30)
#define GARBAGE 0xff

std::recursive_mutex cuda_cpu_lock;
struct cuda_cpu_calls cuda_cpu_counted;

static std::map<const unsigned char *, size_t> device_memory, pinned_memory, registered_memory;
static size_t device_used;
static thread_local cudaError_t last_error;

struct cuda_cpu_calls
cuda_cpu_counts(void)
{
	CUDA_CPU_LOCKED;

	return cuda_cpu_counted;
}

/* -- errors and devices -- */

static std::string failing_call;
static uint64_t failing_in;

void
cuda_cpu_fail(const char *call, uint64_t which)
{
	CUDA_CPU_LOCKED;

	failing_call = call;
	failing_in = which;
}

bool
cuda_cpu_fails(const char *call)
{
	CUDA_CPU_LOCKED;

	return failing_in > 0 && failing_call == call && --failing_in == 0;
}

cudaError_t
cuda_cpu_result(cudaError_t error)
{
	if (error)
		last_error = error;
	return error;
}

cudaError_t
cudaGetLastError(void)
{
	cudaError_t error = last_error;

	last_error = cudaSuccess;
	return error;
}

cudaError_t
cudaPeekAtLastError(void)
{
	return last_error;
}

const char *
cudaGetErrorName(cudaError_t error)
{
	static const char *const names[] = { CUDA_CPU_ERRORS(CUDA_CPU_ERROR_NAME) };

	return names[error];
}

const char *
cudaGetErrorString(cudaError_t error)
{
	return error == cudaErrorLaunchFailure ? cuda_cpu_failure : cudaGetErrorName(error);
}

cudaError_t
cudaDriverGetVersion(int *ret)
{
	*ret = CUDART_VERSION;
	return cudaSuccess;
}

/* .cu files are compiled for a CPU that has these. */
cudaError_t
cudaGetDeviceCount(int *ret)
{
	*ret = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	return *ret ? cudaSuccess : cuda_cpu_result(cudaErrorNoDevice);
}

cudaError_t
cudaGetDevice(int *ret)
{
	*ret = 0;
	return cudaSuccess;
}

cudaError_t
cudaSetDevice(int device)
{
	if (cuda_cpu_fails("cudaSetDevice"))
		return cuda_cpu_result(cudaErrorIllegalState);
	return device == 0 ? cudaSuccess : cuda_cpu_result(cudaErrorInvalidDevice);
}

cudaError_t
cudaGetDeviceProperties(cudaDeviceProp *ret, int device)
{
	*ret = cudaDeviceProp{ "the CPU, by tests/cuda_cpu", 9, 0, 1, 132 };
	return cudaSetDevice(device);
}

cudaError_t
cudaDeviceGetAttribute(int *ret, cudaDeviceAttr which, int device)
{
	switch (which) {
	case cudaDevAttrComputeCapabilityMajor:
		*ret = 9;
		break;
	case cudaDevAttrComputeCapabilityMinor:
		*ret = 0;
		break;
	case cudaDevAttrMultiProcessorCount:
		*ret = 132;
		break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		*ret = (int)cuda_cpu_shared_max;
		break;
	case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
		*ret = (int)cuda_cpu_shared_max + CUDA_CPU_RESERVED;
		break;
	case cudaDevAttrReservedSharedMemoryPerBlock:
		*ret = CUDA_CPU_RESERVED;
		break;
	}
	return cudaSetDevice(device);
}

/* -- memory -- */

static bool
is_in(const std::map<const unsigned char *, size_t> &map, const void *at)
{
	auto after = map.upper_bound((const unsigned char *)at);

	return after != map.begin() &&
	       (const unsigned char *)at < std::prev(after)->first + std::prev(after)->second;
}

cudaError_t
cuda_cpu_malloc(void **ret, size_t bytes, bool pinned)
{
	void *at;
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	if (!pinned && bytes > DEVICE_BYTES - device_used)
		return cuda_cpu_result(cudaErrorMemoryAllocation);
	if (posix_memalign(&at, 256, bytes))
		return cuda_cpu_result(cudaErrorMemoryAllocation);
	memset(at, GARBAGE, bytes);
	(pinned ? pinned_memory : device_memory)[(unsigned char *)at] = bytes;
	device_used += pinned ? 0 : bytes;
	*ret = at;
	return cudaSuccess;
}

cudaError_t
cuda_cpu_host_alloc(void **ret, size_t bytes)
{
	if (cuda_cpu_fails("cudaHostAlloc"))
		return cuda_cpu_result(cudaErrorMemoryAllocation);
	return cuda_cpu_malloc(ret, bytes, true);
}

static cudaError_t
release(std::map<const unsigned char *, size_t> &map, void *at)
{
	auto found = map.find((unsigned char *)at);

	if (!at)
		return cudaSuccess;
	if (found == map.end())
		return cuda_cpu_result(cudaErrorInvalidValue);
	cuda_cpu_counted.allocations++;
	cudaDeviceSynchronize();
	device_used -= &map == &device_memory ? found->second : 0;
	map.erase(found);
	free(at);
	return cudaSuccess;
}

cudaError_t
cudaFree(void *at)
{
	CUDA_CPU_LOCKED;

	return release(device_memory, at);
}

cudaError_t
cudaFreeHost(void *at)
{
	CUDA_CPU_LOCKED;

	return release(pinned_memory, at);
}

cudaError_t
cudaMemGetInfo(size_t *ret_free, size_t *ret_total)
{
	CUDA_CPU_LOCKED;

	*ret_free = DEVICE_BYTES - device_used;
	*ret_total = DEVICE_BYTES;
	return cudaSuccess;
}

cudaError_t
cudaHostRegister(void *at, size_t bytes, unsigned)
{
	unsigned char *begin = (unsigned char *)at;
	CUDA_CPU_LOCKED;
	auto next = registered_memory.lower_bound(begin);

	if (!at || bytes == 0)
		return cuda_cpu_result(cudaErrorInvalidValue);
	if (is_in(registered_memory, at) ||
	    (next != registered_memory.end() && next->first < begin + bytes))
		return cuda_cpu_result(cudaErrorHostMemoryAlreadyRegistered);
	registered_memory[begin] = bytes;
	return cudaSuccess;
}

cudaError_t
cudaHostUnregister(void *at)
{
	CUDA_CPU_LOCKED;

	cudaDeviceSynchronize();
	return registered_memory.erase((unsigned char *)at)
		   ? cudaSuccess
		   : cuda_cpu_result(cudaErrorHostMemoryNotRegistered);
}

/* Memory of another process: not here. */
cudaError_t
cudaIpcGetMemHandle(cudaIpcMemHandle_t *, void *)
{
	return cuda_cpu_result(cudaErrorNotSupported);
}

cudaError_t
cudaIpcOpenMemHandle(void **, cudaIpcMemHandle_t, unsigned)
{
	return cuda_cpu_result(cudaErrorNotSupported);
}

cudaError_t
cudaIpcCloseMemHandle(void *)
{
	return cuda_cpu_result(cudaErrorNotSupported);
}

/* -- copies -- */

/* From the host's pageable memory: taken over at once; to it: waited for. */
cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
	CUDA_CPU_LOCKED;
	bool captures = cuda_cpu_stream_captures(stream);
	const void *host = kind == cudaMemcpyDeviceToHost ? to : from;
	bool pageable = kind != cudaMemcpyDeviceToDevice && !captures &&
			!is_in(pinned_memory, host) && !is_in(registered_memory, host) &&
			!is_in(device_memory, host);

	cuda_cpu_counted.copies += !captures;
	if (pageable && kind != cudaMemcpyDeviceToHost) {
		std::vector<unsigned char> taken((const unsigned char *)from,
						 (const unsigned char *)from + bytes);

		cuda_cpu_stream_add(stream, [to, taken] {
			memcpy(to, taken.data(), taken.size());
			return cudaSuccess;
		});
		return cudaSuccess;
	}
	cuda_cpu_stream_add(stream, [to, from, bytes] {
		memmove(to, from, bytes);
		return cudaSuccess;
	});
	return pageable ? cuda_cpu_result(cuda_cpu_stream_finish(stream)) : cudaSuccess;
}

cudaError_t
cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.copies += !cuda_cpu_stream_captures(stream);
	cuda_cpu_stream_add(stream, [to, value, bytes] {
		memset(to, value, bytes);
		return cudaSuccess;
	});
	return cudaSuccess;
}

cudaError_t
cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
	CUDA_CPU_LOCKED;
	cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, NULL);

	cuda_cpu_counted.waits++;
	return error ? error : cuda_cpu_result(cuda_cpu_stream_finish(NULL));
}

cudaError_t
cudaMemset(void *to, int value, size_t bytes)
{
	CUDA_CPU_LOCKED;

	cudaMemsetAsync(to, value, bytes, NULL);
	return cuda_cpu_result(cuda_cpu_stream_finish(NULL));
}
