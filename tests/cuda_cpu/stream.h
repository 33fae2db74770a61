/* What runtime.cc and stream.cc share: the lock, the calls, and streams as lists of what is to be
 * done. */
#ifndef HEARTH_TESTS_CUDA_CPU_STREAM_H
#define HEARTH_TESTS_CUDA_CPU_STREAM_H

#include <mutex>
#include <vector>

#include "tests/cuda_cpu/cuda_cpu.h"
#include "tests/cuda_cpu/runtime.h"

/* Each call of the runtime holds it to its end. */
extern std::recursive_mutex cuda_cpu_lock;
extern struct cuda_cpu_calls cuda_cpu_counted;

extern size_t cuda_cpu_shared_max; /* of a block that asks for it */
#define CUDA_CPU_LOCKED std::lock_guard<std::recursive_mutex> locked(cuda_cpu_lock)

/* What the last kernel that failed did. */
extern char cuda_cpu_failure[512];

/* Kept for cudaGetLastError. */
cudaError_t cuda_cpu_result(cudaError_t error);

bool cuda_cpu_stream_captures(cudaStream_t stream);
void cuda_cpu_stream_add(cudaStream_t stream, std::function<cudaError_t()> what);
/* Does it all.  The first failure is the result, and the end of what was to be done. */
cudaError_t cuda_cpu_stream_finish(cudaStream_t stream);

#endif
