/* The hidden state between kernels.  Who computes columns of h makes at once what the product
 * behind the next norm wants of them: so no kernel norms a vector before it multiplies. */
#ifndef HEARTH_WORKER_CUDA_HIDDEN_CUH
#define HEARTH_WORKER_CUDA_HIDDEN_CUH

#include "worker/cuda_rows.cuh"

#define HIDDEN_GROUP 16u /* columns: of fixed point, and of a sum of squares */

static inline struct cuda_scale
cuda_scale_of(const struct cuda_hidden *state, uint32_t columns, float epsilon)
{
	return cuda_scale{ state->squares, columns, epsilon };
}

/* Four weights of the next norm, 0 behind the last. */
static __device__ __forceinline__ float4
hidden_weights(const float *next, uint32_t column, uint32_t columns)
{
	return make_float4(column < columns ? next[column] : 0,
			   column + 1 < columns ? next[column + 1] : 0,
			   column + 2 < columns ? next[column + 2] : 0,
			   column + 3 < columns ? next[column + 3] : 0);
}

/* By a whole warp: four columns of each lane, `column` a multiple of 4, 0 behind the last.  Four
 * lanes at a multiple of 4 have those of a group; a lane at `columns` or behind has none. */
static __device__ __forceinline__ void
hidden_store(const struct cuda_hidden &to, uint64_t token, uint32_t column, uint32_t columns,
	     float4 h, float4 weights)
{
	float4 x = make_float4(h.x * weights.x, h.y * weights.y, h.z * weights.z, h.w * weights.w);
	float squares = fmaf(h.x, h.x, fmaf(h.y, h.y, fmaf(h.z, h.z, h.w * h.w)));

	squares += __shfl_xor_sync(0xffffffffu, squares, 1);
	squares += __shfl_xor_sync(0xffffffffu, squares, 2);
	fixed_store(to.x.fixed.at + token * to.x.fixed.stride, column, x, column < columns);
	if (column >= columns)
		return;
	*(float4 *)(to.h.at + token * to.h.stride + column) = h;
	*(float4 *)(to.x.rows.at + token * to.x.rows.stride + column) = x;
	if (column % HIDDEN_GROUP == 0)
		to.squares.at[token * to.squares.stride + column / HIDDEN_GROUP] = squares;
}

/* The same by a block's first warp of the HIDDEN_GROUP columns from `first` on, which lie in shared
 * memory; the weights are those of hidden_weights at hidden_column. */
static __device__ __forceinline__ uint32_t
hidden_column(uint32_t first, uint32_t columns)
{
	uint32_t lane = threadIdx.x % 32;

	return lane < HIDDEN_GROUP / 4 ? first + 4 * lane : columns;
}

static __device__ __forceinline__ void
hidden_store_group(const struct cuda_hidden &to, uint64_t token, uint32_t first, uint32_t columns,
		   const float *h, float4 weights)
{
	uint32_t lane = threadIdx.x % 32 % (HIDDEN_GROUP / 4);

	hidden_store(to, token, hidden_column(first, columns), columns, ((const float4 *)h)[lane],
		     weights);
}

/* A lane's share of a token's squares. */
static __device__ __forceinline__ float
scale_part(const struct cuda_scale &scale, uint64_t token)
{
	const float *squares = scale.squares.at + token * scale.squares.stride;
	float sum = 0;

	for (uint32_t i = threadIdx.x % 32; i < (scale.columns + HIDDEN_GROUP - 1) / HIDDEN_GROUP;
	     i += 32)
		sum += __ldcg(squares + i);
	return sum;
}

/* What products are to be multiplied with, by a warp; `part`: scale_part. */
static __device__ __forceinline__ float
scale_of(const struct cuda_scale &scale, float part)
{
	return rsqrtf(warp_sum(part) / (float)scale.columns + scale.epsilon);
}

#endif
