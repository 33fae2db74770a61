/* What kernels of the experts share, whichever way they read the rows: a block's rows as whole
 * pieces (cuda_landed.cu), warp by warp in slices (cuda_experts.cu), or for several tokens at once
 * (cuda_grouped.cu). */
#ifndef HEARTH_WORKER_CUDA_EXPERTS_CUH
#define HEARTH_WORKER_CUDA_EXPERTS_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_plan.cuh"
#include "worker/cuda_share.cuh"
#include "worker/silu.h"

/* The launchers where a block's rows fit into its shared memory whole: then *ret_done is true. */
int cuda_landed_in(void *stream, const struct cuda_moe *moe, bool *ret_done, struct error *err);
int cuda_landed_out(void *stream, const struct cuda_moe *moe, bool *ret_done, struct error *err);

/* The launchers for several tokens. */
int cuda_grouped_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err);
int cuda_grouped_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err);

/* ROWS of act, 16 or 32, from shared memory, in both forms; by one warp. */
template <uint32_t ROWS>
static __device__ __forceinline__ void
act_store(const struct cuda_moe &moe, uint64_t slot, uint32_t first, const float *act)
{
	uint32_t lane = threadIdx.x % 32;
	bool mine = lane < ROWS / 4;

	fixed_store<true>(moe.act.fixed.at + slot * moe.act.fixed.stride,
			  first + 4 * (lane % (ROWS / 4)),
			  mine ? ((const float4 *)act)[lane] : make_float4(0, 0, 0, 0), mine);
	if (lane < ROWS && first + lane < moe.width)
		moe.act.rows.at[slot * moe.act.rows.stride + first + lane] = act[lane];
}

/* sum + each segment's sum, one after the other. */
static __device__ __forceinline__ float
segments_add(float sum, struct segment_parts parts, uint32_t segments)
{
#pragma unroll 1
	for (uint32_t first = 0; first < segments; first += SEGMENTS_AT_ONCE) {
		float of_all = segments_sum(parts.from(first), segments - first);

#pragma unroll
		for (uint32_t k = 0; k < SEGMENTS_AT_ONCE; k++) {
			float of_one = __shfl_sync(0xffffffffu, of_all, 4 * k);

			if (first + k < segments)
				sum += of_one;
		}
	}
	return sum;
}

/* By a block of WARPS that has met at a barrier, and does so again: in the parts of its ROWS rows,
 * (ROWS, top_k), sums that the CPU made in place of what is there.  Those of an expert's rows lie
 * side by side and are read at once, for over PCIe a word takes as long as a line. */
template <uint32_t ROWS, uint32_t WARPS>
static __device__ __forceinline__ void
parts_take(const struct cuda_moe &moe, struct segment_parts parts, uint32_t first)
{
	uint32_t lane = threadIdx.x % 32, row = first + lane;
	uint32_t given = share_lane_given(moe.share, moe.top_k);

	for (uint32_t k = threadIdx.x / 32; k < moe.top_k; k += WARPS) {
		uint32_t place = __shfl_sync(0xffffffffu, given, k);
		float sum = 0;

		if (place == 0)
			continue;
		if (lane < ROWS && row < moe.hidden)
			sum = share_answer_at(moe.share, place, moe.hidden, row);
#pragma unroll
		for (uint32_t i = 0; i < ROWS; i++) {
			float of_row = __shfl_sync(0xffffffffu, sum, i);

			parts.from(i * moe.top_k + k).at[lane] = lane == 0 ? of_row : 0;
		}
	}
	__syncthreads();
}

static __device__ __forceinline__ float
act_of(float gate, float up, float weight)
{
	return silu(gate) * up * weight;
}

#endif
