/* Heads of queries and keys before they are multiplied: norm, rotary, and where they lie. */
#ifndef HEARTH_WORKER_CUDA_HEADS_CUH
#define HEARTH_WORKER_CUDA_HEADS_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_rows.cuh"

/* By how much pair i of a head turns at a position. */
static __device__ __forceinline__ float2
turn_at(const cuda_attention &a, uint32_t pos, uint32_t i)
{
	float2 turn;

	sincosf((float)pos * a.frequency[i], &turn.y, &turn.x);
	return turn;
}

/* A head on its way: pairs (i, i + head_dim / 2), i lane, lane + 32, ... */
template <int CHUNKS> struct head_pairs {
	float low[2 * CHUNKS], high[2 * CHUNKS];
};

template <int CHUNKS>
static __device__ __forceinline__ head_pairs<CHUNKS>
head_load(const float *x, uint32_t head_dim)
{
	head_pairs<CHUNKS> ret;

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		uint32_t i = threadIdx.x % 32 + 32 * n;

		ret.low[n] = i < head_dim / 2 ? __ldcg(x + i) : 0;
		ret.high[n] = i < head_dim / 2 ? __ldcg(x + head_dim / 2 + i) : 0;
	}
	return ret;
}

/* A warp: norm over a head, then each pair turned, times `factor`; columns behind the head become
 * 0. */
template <int CHUNKS>
static __device__ __forceinline__ void
head_turn(const cuda_attention &a, const head_pairs<CHUNKS> &x, const float *weight,
	  const float2 *turn, float factor, float *to, uint32_t columns)
{
	uint32_t lane = threadIdx.x % 32, half = a.head_dim / 2;
	float squares = 0, scale;

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		squares = fmaf(x.low[n], x.low[n], squares);
		squares = fmaf(x.high[n], x.high[n], squares);
	}
	scale = 1.0f / sqrtf(warp_sum(squares) / (float)a.head_dim + a.epsilon);
#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		uint32_t i = lane + 32 * n;

		if (i >= half)
			continue;
		float low = x.low[n] * scale * weight[i],
		      high = x.high[n] * scale * weight[half + i];
		float2 by = turn[i];

		to[i] = fmaf(low, by.x, -(high * by.y)) * factor;
		to[half + i] = fmaf(high, by.x, low * by.y) * factor;
	}
	for (uint32_t i = a.head_dim + lane; i < columns; i += 32)
		to[i] = 0;
}

/* Where a token's key of a head comes from; its value is kv_heads heads further on. */
static __device__ __forceinline__ const float *
key_from(const cuda_attention &a, uint32_t token, uint32_t kv_head)
{
	return a.qkv.at + (uint64_t)token * a.qkv.stride +
	       (uint64_t)(a.heads + kv_head) * a.head_dim;
}

static __device__ __forceinline__ uint64_t
cache_place(const cuda_attention &a, uint32_t kv_head, uint32_t pos)
{
	return ((uint64_t)kv_head * a.context + pos) * CUDA_KV_ROW(a.head_dim);
}

#endif
