/* Of CUDA's runtime calls, those that this project makes, on the CPU: runtime.cc. */
#ifndef HEARTH_TESTS_CUDA_CPU_CALLS_H
#define HEARTH_TESTS_CUDA_CPU_CALLS_H

#include <tuple>

#include "tests/cuda_cpu/fibers.h"

#define CUDART_VERSION 13000

#define CUDA_CPU_ERRORS(X)                      \
	X(cudaSuccess)                          \
	X(cudaErrorInvalidValue)                \
	X(cudaErrorMemoryAllocation)            \
	X(cudaErrorInvalidConfiguration)        \
	X(cudaErrorInsufficientDriver)          \
	X(cudaErrorNoDevice)                    \
	X(cudaErrorInvalidDevice)               \
	X(cudaErrorHostMemoryAlreadyRegistered) \
	X(cudaErrorHostMemoryNotRegistered)     \
	X(cudaErrorInvalidResourceHandle)       \
	X(cudaErrorIllegalState)                \
	X(cudaErrorLaunchFailure)               \
	X(cudaErrorNotReady)                    \
	X(cudaErrorStreamCaptureUnsupported)    \
	X(cudaErrorNotPermitted)                \
	X(cudaErrorNotSupported)

#define CUDA_CPU_ERROR(name) name,
#define CUDA_CPU_ERROR_NAME(name) #name,
enum cudaError_t { CUDA_CPU_ERRORS(CUDA_CPU_ERROR) };

enum cudaMemcpyKind {
	cudaMemcpyHostToHost,
	cudaMemcpyHostToDevice,
	cudaMemcpyDeviceToHost,
	cudaMemcpyDeviceToDevice,
	cudaMemcpyDefault,
};

enum cudaDeviceAttr {
	cudaDevAttrComputeCapabilityMajor,
	cudaDevAttrComputeCapabilityMinor,
	cudaDevAttrMultiProcessorCount,
	cudaDevAttrMaxSharedMemoryPerBlockOptin,
	cudaDevAttrMaxSharedMemoryPerMultiprocessor,
	cudaDevAttrReservedSharedMemoryPerBlock,
};

enum cudaFuncAttribute {
	cudaFuncAttributeMaxDynamicSharedMemorySize,
	cudaFuncAttributePreferredSharedMemoryCarveout,
};

enum cudaSharedCarveout { cudaSharedmemCarveoutMaxShared = 100 };

enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed };

enum {
	cudaStreamNonBlocking = 1,
	cudaEventDisableTiming = 2,
	cudaHostRegisterMapped = 2,
	cudaHostRegisterReadOnly = 8,
	cudaHostAllocMapped = 2,
	cudaIpcMemLazyEnablePeerAccess = 1,
};

typedef struct cuda_cpu_stream *cudaStream_t;
typedef struct cuda_cpu_event *cudaEvent_t;
typedef struct cuda_cpu_graph *cudaGraph_t;
typedef struct cuda_cpu_graph *cudaGraphExec_t;

struct cudaDeviceProp {
	char name[256];
	int major, minor, hostRegisterReadOnlySupported, multiProcessorCount;
};

struct cudaIpcMemHandle_t {
	char reserved[64];
};

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization };

struct cudaLaunchAttribute {
	enum cudaLaunchAttributeID id;
	struct {
		int programmaticStreamSerializationAllowed;
	} val;
};

struct cudaLaunchConfig_t {
	dim3 gridDim, blockDim;
	size_t dynamicSmemBytes;
	cudaStream_t stream;
	cudaLaunchAttribute *attrs;
	unsigned numAttrs;
};

const char *cudaGetErrorName(cudaError_t error);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);

cudaError_t cudaDriverGetVersion(int *ret);
cudaError_t cudaGetDeviceCount(int *ret);
cudaError_t cudaGetDevice(int *ret);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *ret, int device);
cudaError_t cudaDeviceGetAttribute(int *ret, cudaDeviceAttr which, int device);
cudaError_t cudaDeviceSynchronize(void);

/* Whether this call is the one that is to fail. */
bool cuda_cpu_fails(const char *call);

cudaError_t cuda_cpu_malloc(void **ret, size_t bytes, bool pinned);
cudaError_t cuda_cpu_host_alloc(void **ret, size_t bytes);
cudaError_t cudaFree(void *at);
cudaError_t cudaFreeHost(void *at);
cudaError_t cudaMemGetInfo(size_t *ret_free, size_t *ret_total);
cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *at);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *ret, void *at);
cudaError_t cudaIpcOpenMemHandle(void **ret, cudaIpcMemHandle_t handle, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void *at);

template <class T>
static inline cudaError_t
cudaMalloc(T **ret, size_t bytes)
{
	return cuda_cpu_malloc((void **)ret, bytes, false);
}

template <class T>
static inline cudaError_t
cudaMallocHost(T **ret, size_t bytes)
{
	return cuda_cpu_malloc((void **)ret, bytes, true);
}

template <class T>
static inline cudaError_t
cudaHostAlloc(T **ret, size_t bytes, unsigned)
{
	return cuda_cpu_host_alloc((void **)ret, bytes);
}

template <class T>
static inline cudaError_t
cudaHostGetDevicePointer(T **ret, void *at, unsigned)
{
	*ret = (T *)at;
	return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
			    cudaStream_t stream = 0);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = 0);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

cudaError_t cuda_cpu_launch(const cudaLaunchConfig_t *config, const void *kernel,
			    std::function<void()> thread, const char *signature);
cudaError_t cuda_cpu_allow_shared(const void *kernel, size_t bytes);

template <class... Params, class... Args>
static inline cudaError_t
cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Params...), Args &&...args)
{
	std::tuple<Params...> kept(static_cast<Params>(args)...);

	return cuda_cpu_launch(
	    config, (const void *)kernel, [kernel, kept] { std::apply(kernel, kept); },
	    __PRETTY_FUNCTION__);
}

template <class Kernel>
static inline cudaError_t
cudaFuncSetAttribute(Kernel *kernel, cudaFuncAttribute which, int value)
{
	if (which != cudaFuncAttributeMaxDynamicSharedMemorySize)
		return cudaSuccess;
	return cuda_cpu_allow_shared((const void *)kernel, (size_t)value);
}

struct cudaFuncAttributes {
	int ptxVersion;
};

/* As if compiled for sm_90: kernels overlap. */
template <class... Params>
static inline cudaError_t
cudaFuncGetAttributes(cudaFuncAttributes *ret, void (*)(Params...))
{
	ret->ptxVersion = 90;
	return cudaSuccess;
}

#endif
