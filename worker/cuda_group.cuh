/* The choices of several tokens, by expert: for the kernels of cuda_grouped.cu. */
#ifndef HEARTH_WORKER_CUDA_GROUP_CUH
#define HEARTH_WORKER_CUDA_GROUP_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_ptx.cuh"

/* moe->groups and members, from chosen. */
int cuda_group_choices(void *stream, const struct cuda_moe *moe, uint32_t tokens,
		       struct error *err);

static __device__ __forceinline__ struct cuda_group
group_at(const struct cuda_moe &moe, uint32_t i)
{
	const struct cuda_group *at = moe.groups + i;

	return cuda_group{ __ldcg(&at->expert), __ldcg(&at->first), __ldcg(&at->count) };
}

#endif
