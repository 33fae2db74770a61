/* Heads of queries and keys before they are multiplied: norm, rotary, fixed point; and where keys
 * and values lie. */
#ifndef HEARTH_WORKER_CUDA_HEADS_CUH
#define HEARTH_WORKER_CUDA_HEADS_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_rows.cuh"

#define LOG2_E 1.44269504088896340736f

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

/* Radians a position of each pair of a lane. */
template <int CHUNKS> struct head_frequencies {
	float of[2 * CHUNKS];
};

template <int CHUNKS>
static __device__ __forceinline__ head_frequencies<CHUNKS>
frequencies_load(const cuda_attention &a)
{
	head_frequencies<CHUNKS> ret;

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		uint32_t i = threadIdx.x % 32 + 32 * n;

		ret.of[n] = i < a.head_dim / 2 ? __ldcg(a.frequency + i) : 0;
	}
	return ret;
}

/* By how much each pair of a lane turns at a position. */
template <int CHUNKS> struct head_turns {
	float cosine[2 * CHUNKS], sine[2 * CHUNKS];
};

template <int CHUNKS>
static __device__ __forceinline__ head_turns<CHUNKS>
turns_at(const head_frequencies<CHUNKS> &frequencies, uint32_t pos)
{
	head_turns<CHUNKS> ret;

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++)
		sincosf((float)pos * frequencies.of[n], &ret.sine[n], &ret.cosine[n]);
	return ret;
}

/* A warp: what a head is to be multiplied with.  Without the branches of a square root and of a
 * division, so that the work of two heads overlaps. */
template <int CHUNKS>
static __device__ __forceinline__ float
head_scale(const cuda_attention &a, const head_pairs<CHUNKS> &x)
{
	float squares = 0;

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		squares = fmaf(x.low[n], x.low[n], squares);
		squares = fmaf(x.high[n], x.high[n], squares);
	}
	return rsqrtf(__fdividef(warp_sum(squares), (float)a.head_dim) + a.epsilon);
}

/* A head times `scale`, then each pair turned, times `factor`, to 128 * CHUNKS columns of shared
 * memory; those behind the head become 0. */
template <int CHUNKS>
static __device__ __forceinline__ void
head_turn(const cuda_attention &a, const head_pairs<CHUNKS> &x, float scale,
	  const head_pairs<CHUNKS> &weight, const head_turns<CHUNKS> &turns, float factor,
	  float *to)
{
	uint32_t lane = threadIdx.x % 32, half = a.head_dim / 2;

#pragma unroll
	for (uint32_t n = 0; n < 2 * CHUNKS; n++) {
		uint32_t i = lane + 32 * n;
		float low = x.low[n] * scale * weight.low[n];
		float high = x.high[n] * scale * weight.high[n];
		float first = fmaf(low, turns.cosine[n], -(high * turns.sine[n])) * factor;
		float second = fmaf(high, turns.cosine[n], low * turns.sine[n]) * factor;

		if (i < half)
			to[i] = first;
		if (i < half)
			to[half + i] = second;
	}
#pragma unroll
	for (uint32_t i = 0; i < 128 * CHUNKS; i += 32)
		if (i + lane >= a.head_dim)
			to[i + lane] = 0;
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

/* The newest position's key and its block's part of the value, as a lane has them of a warp. */
template <int CHUNKS> struct newest_row {
	struct fixed_four key[CHUNKS], value;
};

/* What a warp asks for before all else, for a load waits behind those of its SM before it. */
template <int CHUNKS> struct head_form {
	head_pairs<CHUNKS> q_norm, k_norm;
	head_frequencies<CHUNKS> frequencies;
};

template <int CHUNKS>
static __device__ __forceinline__ head_form<CHUNKS>
form_load(const cuda_attention &a)
{
	return head_form<CHUNKS>{ head_load<CHUNKS>(a.q_norm, a.head_dim),
				  head_load<CHUNKS>(a.k_norm, a.head_dim),
				  frequencies_load<CHUNKS>(a) };
}

/* Of q: scores are exponents of 2. */
static __device__ __forceinline__ float
query_factor(const cuda_attention &a)
{
	return LOG2_E / sqrtf((float)a.head_dim);
}

/* A head in a line, by a warp. */
template <int CHUNKS>
static __device__ __forceinline__ void
line_fix(const float *line, struct fixed_four (&ret)[CHUNKS])
{
#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++)
		ret[c] = fixed_four_of<KV_LANES>(
		    *(const float4 *)(line + 128 * c + 4 * (threadIdx.x % 32)));
}

/* Where lanes' columns of a position lie in the cache. */
template <int CHUNKS>
static __device__ __forceinline__ void
key_append(const cuda_attention &a, uint32_t kv_head, uint32_t pos,
	   const struct fixed_four (&key)[CHUNKS])
{
	struct cuda_kv_tile *to = a.keys + tile_place(a, kv_head, pos);

#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++) {
		uint32_t group = 4 * c + threadIdx.x % 32 / 8;

		if (group < CUDA_KV_GROUPS(a.head_dim))
			key_put(to + group, pos, key[c]);
	}
}

static __device__ __forceinline__ void
value_append(const cuda_attention &a, uint32_t kv_head, uint32_t pos, uint32_t chunk,
	     const struct fixed_four &value)
{
	uint32_t group = 4 * chunk + threadIdx.x % 32 / 8;

	if (group < CUDA_KV_GROUPS(a.head_dim))
		value_put(a.values + tile_place(a, kv_head, pos) + group, pos, value);
}

#endif
