/* Heads of queries and keys before they are multiplied: norm, rotary, fixed point; and where keys
 * and values lie. */
#ifndef HEARTH_WORKER_CUDA_HEADS_CUH
#define HEARTH_WORKER_CUDA_HEADS_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_rows.cuh"

/* Of a lane: pairs (i, i + head_dim / 2) of a head, i lane, lane + 32, ... */
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

/* By how much each pair of a lane turns at a position. */
template <int CHUNKS> struct head_turns {
	float cosine[2 * CHUNKS], sine[2 * CHUNKS];
};

template <int CHUNKS>
static __device__ __forceinline__ head_turns<CHUNKS>
turns_at(const cuda_attention &a, uint32_t pos)
{
	head_turns<CHUNKS> ret = {};

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		uint32_t i = threadIdx.x % 32 + 32 * n;

		if (i < a.head_dim / 2)
			sincosf((float)pos * a.frequency[i], &ret.sine[n], &ret.cosine[n]);
	}
	return ret;
}

/* A warp: norm over a head, then each pair turned, times `factor`, to 128 * CHUNKS columns of
 * shared memory; those behind the head become 0. */
template <int CHUNKS>
static __device__ __forceinline__ void
head_turn(const cuda_attention &a, const head_pairs<CHUNKS> &x, const head_pairs<CHUNKS> &weight,
	  const head_turns<CHUNKS> &turns, float factor, float *to)
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
		float low = x.low[n] * scale * weight.low[n],
		      high = x.high[n] * scale * weight.high[n];

		if (i >= half)
			continue;
		to[i] = fmaf(low, turns.cosine[n], -(high * turns.sine[n])) * factor;
		to[half + i] = fmaf(high, turns.cosine[n], low * turns.sine[n]) * factor;
	}
	for (uint32_t i = a.head_dim + lane; i < 128 * CHUNKS; i += 32)
		to[i] = 0;
}

/* Where a token's key of a head comes from; its value is kv_heads heads further on. */
static __device__ __forceinline__ const float *
key_from(const cuda_attention &a, uint32_t token, uint32_t kv_head)
{
	return a.qkv.at + (uint64_t)token * a.qkv.stride +
	       (uint64_t)(a.heads + kv_head) * a.head_dim;
}

/* Columns 128 * chunk + 4 * lane .. of a value. */
static __device__ __forceinline__ float4
value_load(const cuda_attention &a, uint32_t token, uint32_t kv_head, uint32_t chunk)
{
	uint32_t i = 128 * chunk + 4 * (threadIdx.x % 32);
	const float *from = key_from(a, token, kv_head) + (uint64_t)a.kv_heads * a.head_dim + i;

	return make_float4(
	    i < a.head_dim ? __ldcg(from) : 0, i + 1 < a.head_dim ? __ldcg(from + 1) : 0,
	    i + 2 < a.head_dim ? __ldcg(from + 2) : 0, i + 3 < a.head_dim ? __ldcg(from + 3) : 0);
}

/* The first of a position's tiles. */
static __device__ __forceinline__ uint64_t
tile_place(const cuda_attention &a, uint32_t kv_head, uint32_t pos)
{
	return ((uint64_t)kv_head * CUDA_KV_TILES(a.context) + pos / CUDA_KV_TILE) *
	       CUDA_KV_GROUPS(a.head_dim);
}

#define KV_LANES 8 /* with four columns each have a tile's row */

/* Eight lanes at a multiple of 8, each with the next four columns of a key: to its place in a tile.
 */
static __device__ __forceinline__ void
key_put(struct cuda_kv_tile *tile, uint32_t pos, const struct fixed_four &x)
{
	uint32_t p = pos % CUDA_KV_TILE, part = threadIdx.x % 8;
	uint8_t *run = tile->run[p % 8 / 2][8 * (p / 8) + 4 * (p % 2) + part / 2];

	*(uint32_t *)(run + part % 2 * 4) = high_bytes(x);
	*(uint32_t *)(run + 8 + part % 2 * 4) = low_bytes(x);
	if (part == 0)
		tile->unit[p] = x.unit;
}

/* The same of a value: bytes that no other position shares. */
static __device__ __forceinline__ void
value_put(struct cuda_kv_tile *tile, uint32_t pos, const struct fixed_four &x)
{
	uint32_t p = pos % CUDA_KV_TILE, part = threadIdx.x % 8;

#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t column = 4 * part + i;
		uint8_t *run = tile->run[column / 8][4 * (column % 8) + p / 8] + p % 8;

		run[0] = (uint8_t)((x.v[i] + 128) >> 8);
		run[8] = (uint8_t)x.v[i];
	}
	if (part == 0)
		tile->unit[p] = x.unit;
}

#endif
