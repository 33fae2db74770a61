/* Work of several blocks that the last of them to finish goes on with. */
#ifndef HEARTH_WORKER_CUDA_JOIN_CUH
#define HEARTH_WORKER_CUDA_JOIN_CUH

#include "worker/cuda_ptx.cuh"

/* By the first warp of each of `count` blocks, behind a barrier of the block.  True in the
 * last, whose warp then sees (by loads past the first cache, __ldcg) all that the others wrote
 * before.  The counter is 0 again afterwards. */
static __device__ __forceinline__ bool
last_to_arrive_of_warp(uint32_t *counter, uint32_t count)
{
	uint32_t before = threadIdx.x == 0 ? arrive(counter, count - 1) : 0;

	before = __shfl_sync(0xffffffffu, before, 0);
	__syncwarp();
	return before == count - 1;
}

/* The same of whole blocks, by all their threads.  `room`: a word of shared memory. */
static __device__ __forceinline__ bool
last_to_arrive(uint32_t *counter, uint32_t count, uint32_t *room)
{
	__syncthreads();
	if (threadIdx.x < 32)
		*room = last_to_arrive_of_warp(counter, count);
	__syncthreads();
	return *room;
}

#endif
