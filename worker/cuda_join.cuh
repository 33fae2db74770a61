/* Work of several blocks that the last of them to finish goes on with. */
#ifndef HEARTH_WORKER_CUDA_JOIN_CUH
#define HEARTH_WORKER_CUDA_JOIN_CUH

#include "worker/cuda_ptx.cuh"

/* By all threads of each of `count` blocks.  True in the last, which then sees (by loads past the
 * first cache, __ldcg) all that the others wrote before.  The counter is 0 again afterwards.
 * `room`: a word of shared memory. */
static __device__ __forceinline__ bool
last_to_arrive(uint32_t *counter, uint32_t count, uint32_t *room)
{
	__syncthreads();
	if (threadIdx.x == 0) {
		fence();
		*room = atomicAdd(counter, 1u) == count - 1;
		if (*room)
			*counter = 0;
		fence();
	}
	__syncthreads();
	return *room;
}

#endif
