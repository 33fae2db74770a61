/* The greatest logit: of each block's part, then, by the last block, of all parts; and what goes on
 * from it. */
#include "worker/cuda_join.cuh"
#include "worker/cuda_kernels.h"
#include "worker/cuda_launch.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define PART CUDA_GREATEST_PART

static_assert(PART % (4 * THREADS) == 0, "whole quads of every thread");

/* The first of the greatest has the greatest key.  A NaN comes behind every number. */
static __device__ __forceinline__ unsigned long long
key_of(float logit, uint32_t id)
{
	uint32_t bits = logit == 0 ? 0 : __float_as_uint(logit); /* two zeros are equal */
	uint32_t order = bits >> 31 ? ~bits : bits | 1u << 31;

	return (unsigned long long)(isnan(logit) ? 0 : order) << 32 | ~id;
}

/* By the whole block, for all its threads.  `room`: WARPS of them, which nobody reads any more. */
static __device__ __forceinline__ unsigned long long
greatest_of_block(unsigned long long key, unsigned long long *room)
{
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		key = max(key, __shfl_xor_sync(0xffffffffu, key, step));
	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = key;
	__syncthreads();
#pragma unroll
	for (uint32_t warp = 0; warp < WARPS; warp++)
		key = max(key, room[warp]);
	return key;
}

static __device__ __forceinline__ unsigned long long
greatest_of_thread(const float *logits, uint32_t vocabulary)
{
	unsigned long long key = 0;

#pragma unroll
	for (uint32_t quad = 0; quad < PART / (4 * THREADS); quad++) {
		uint32_t id = blockIdx.x * PART + 4 * (threadIdx.x + THREADS * quad);

		if (id >= vocabulary)
			continue;
		float4 v = __ldcg((const float4 *)(logits + id));

		key = max(key, key_of(v.x, id));
		key = id + 1 < vocabulary ? max(key, key_of(v.y, id + 1)) : key;
		key = id + 2 < vocabulary ? max(key, key_of(v.z, id + 2)) : key;
		key = id + 3 < vocabulary ? max(key, key_of(v.w, id + 3)) : key;
	}
	return key;
}

static __global__ void
__launch_bounds__(THREADS) greatest_kernel(struct cuda_pick p PROBE_PARAM)
{
	CUDA_SHARED(unsigned long long, greatest_memory); /* WARPS, and one */
	unsigned long long key;

	PROBE_BEGIN();
	previous_done();
	key = greatest_of_block(greatest_of_thread(p.logits.at, p.vocabulary), greatest_memory);
	if (threadIdx.x == 0)
		p.parts[blockIdx.x] = key;
	PROBE_END();
	if (!last_to_arrive(p.arrived, gridDim.x, (uint32_t *)(greatest_memory + WARPS)))
		return;
	PROBE(PROBE_ARRIVED);
	key = 0;
	for (uint32_t part = threadIdx.x; part < gridDim.x; part += THREADS)
		key = max(key, __ldcg(p.parts + part));
	key = greatest_of_block(key, greatest_memory);
	if (threadIdx.x == 0) {
		uint32_t id = ~(uint32_t)key, pos = __ldcg(&p.in->pos);
		uint64_t turn = __ldcg((const unsigned long long *)&p.in->turn);

		p.ret[turn % 2] = cuda_greatest{ id, __ldcg(p.logits.at + id) };
		p.in->ids[0] = id;
		p.in->pos = pos + p.tokens;
		p.in->turn = turn + 1;
	}
}

extern "C" int
cuda_pick_greatest(void *stream, const struct cuda_pick *pick, struct error *err)
{
	return cuda_launch("greatest_kernel", greatest_kernel,
			   CUDA_GREATEST_PARTS(pick->vocabulary), THREADS,
			   (WARPS + 1) * sizeof(unsigned long long), stream, err, *pick);
}
