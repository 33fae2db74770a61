/* A layer's experts that are left to a CPU: chosen, ordered and waited for. */
#ifndef HEARTH_WORKER_CUDA_SHARE_CUH
#define HEARTH_WORKER_CUDA_SHARE_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_probe.cuh"
#include "worker/cuda_ptx.cuh"

/* Past the first cache: places are written by copies, between kernels. */
static __device__ __forceinline__ const uint8_t *
role_at(const struct cuda_moe &moe, uint32_t expert, enum role role)
{
	return (const uint8_t *)__ldcg((const unsigned long long *)&moe.places[expert].role[role]);
}

/* Of the layer, in this forward. */
static __device__ __forceinline__ uint64_t
share_sequence(const struct cuda_share &share)
{
	return __ldcg((const unsigned long long *)&share.in->turn) * share.layers + share.layer + 1;
}

/* By a warp, a lane one of the chosen: of those that the CPU can read too, the last ones, as many
 * as its share says. */
static __device__ __forceinline__ void
share_give(const struct cuda_moe &moe)
{
	const struct cuda_share &share = moe.share;
	uint32_t lane = threadIdx.x % 32, common = 0, before, n, all;
	uint32_t expert = __ldcg(moe.chosen + min(lane, moe.top_k - 1));

	if (lane < moe.top_k)
		common = (uintptr_t)role_at(moe, expert, ROLE_GATE) - (uintptr_t)share.memory <
			 share.memory_bytes;
	common = __ballot_sync(0xffffffffu, common != 0);
	all = __popc(common);
	n = min(min((uint32_t)fmaf((float)all, __ldcg(&share.in->share), 0.5f), all), SHARE_MAX);
	before = __popc(common & ((1u << lane) - 1));
	if (lane == 0) {
		*share.seen = share_seen{ all, n, 0 };
		share.order->layer = share.layer;
		share.order->n = n;
	}
	if (lane >= moe.top_k)
		return;
	if ((common >> lane & 1) == 0 || before < all - n) {
		share.given[lane] = 0;
		return;
	}
	share.given[lane] = before - (all - n) + 1;
	share.order->experts[before - (all - n)] =
	    share_expert{ expert, __ldcg(moe.weights + lane) };
}

/* Whether a chosen expert was left to the CPU. */
static __device__ __forceinline__ bool
share_given(const struct cuda_share &share, uint32_t k)
{
	return share.order && __ldcg(share.given + k) > 0;
}

/* By whole warps: what a lane's chosen expert is among those left to the CPU, counted from 1; 0:
 * not one of them. */
static __device__ __forceinline__ uint32_t
share_lane_given(const struct cuda_share &share, uint32_t top_k)
{
	uint32_t lane = threadIdx.x % 32;

	return lane < top_k ? __ldcg(share.given + lane) : 0;
}

static __device__ __forceinline__ bool
share_any_given(const struct cuda_share &share, uint32_t top_k)
{
	return __any_sync(0xffffffffu, share_lane_given(share, top_k) > 0);
}

/* Where the order's vector lies. */
static __device__ __forceinline__ uint8_t *
share_vector(const struct cuda_share &share)
{
	return (uint8_t *)share.order + SHARE_ORDER_BYTES;
}

/* By a block, all of which has written: the order is there. */
static __device__ __forceinline__ void
share_order(const struct cuda_share &share)
{
	__syncthreads();
	if (threadIdx.x > 0)
		return;
	PROBE_TIME(begin);
	fence_for_host();
	store_for_host(&share.order->sequence, share_sequence(share));
	PROBE_TIME(stored);
	fence_for_host();
	PROBE(PROBE_HANDED);
	PROBE_AT(PROBE_HANDING, begin);
	PROBE_AT(PROBE_STORED, stored);
}

/* What of `sequence` the block waits for: the first one to come looks at the host's memory, the
 * others at what it has seen.  Whether it had to wait. */
static __device__ __forceinline__ bool
share_meet(const struct cuda_share &share, uint64_t sequence, bool first)
{
	bool waited = false;

	if (first) {
		for (; load_of_host(&share.answer->sequence) != sequence; waited = true)
			wait_briefly();
		atomicExch(share.met, (unsigned long long)sequence);
	} else {
		for (; __ldcv(share.met) != sequence; waited = true)
			wait_briefly();
	}
	fence();
	return waited;
}

/* By all blocks of the kernel that needs the answer: until it is there, if anything was ordered.
 * The last block to come knows whether the GPU had nothing else to do. */
static __device__ __forceinline__ void
share_await(const struct cuda_share &share, uint32_t top_k)
{
	bool any = threadIdx.x < 32 && share_any_given(share, top_k);

	if (threadIdx.x == 0 && any) {
		PROBE(PROBE_HANDING);
		uint32_t before = atomicAdd(share.arrived, 1u);

		if (before == gridDim.x - 1)
			*share.arrived = 0;
		if (share_meet(share, share_sequence(share), before == 0) &&
		    before == gridDim.x - 1)
			share.seen->late = 1;
		PROBE(PROBE_HANDED);
	}
	__syncthreads();
}

/* A row of the answer to the expert that is number `given`, from 1, of those left to the CPU. */
static __device__ __forceinline__ float
share_answer_at(const struct cuda_share &share, uint32_t given, uint32_t hidden, uint32_t row)
{
	const float *out = (const float *)((const uint8_t *)share.answer + SHARE_ANSWER_BYTES);

	return __ldcv(out + (uint64_t)(given - 1) * hidden + row);
}

#endif
