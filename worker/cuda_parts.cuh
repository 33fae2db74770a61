/* What the warps of a block, and then the splits of a context, have added up becomes the output.
 */
#ifndef HEARTH_WORKER_CUDA_PARTS_CUH
#define HEARTH_WORKER_CUDA_PARTS_CUH

#include "worker/cuda_split.cuh"

/* Each warp leaves its sums in its ring, as (HEADS, SUMS_ROW), and what they count. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
warp_leave(block_room<CHUNKS, SMALL> *room, const struct running &state,
	   const float (&sums)[CHUNK][8])
{
	uint32_t warp = threadIdx.x / 32, head = threadIdx.x % 32 / 4, part = threadIdx.x % 4;
	float *to = (float *)room->ring[warp][0] + SUMS_ROW * head + 2 * part;
	float sum = head_sum(state.sum);

	if (part == 0)
		room->stats[warp][head] = make_float2(state.top, sum);
#pragma unroll
	for (uint32_t i = 0; i < 4 * CHUNK; i++)
		*(float2 *)(to + 8 * i) =
		    make_float2(sums[i / 4][i % 4 * 2], sums[i / 4][i % 4 * 2 + 1]);
}

static __device__ __forceinline__ void
add_scaled(float4 *to, float factor, const float4 &v)
{
	to->x = fmaf(factor, v.x, to->x);
	to->y = fmaf(factor, v.y, to->y);
	to->z = fmaf(factor, v.z, to->z);
	to->w = fmaf(factor, v.w, to->w);
}

/* Four columns of a head so far: the sum is to be divided by stat.y. */
struct part {
	float4 sum;
	float2 stat;
};

/* A warp: what all warps left, in their order, of a head. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ part
warps_join(const block_room<CHUNKS, SMALL> *room, uint32_t head)
{
	constexpr uint32_t WARPS = block_room<CHUNKS, SMALL>::WARPS;
	part ret = {};

	ret.stat.x = -INFINITY;
#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++)
		ret.stat.x = fmaxf(ret.stat.x, room->stats[w][head].x);
#pragma unroll
	for (uint32_t w = 0; w < WARPS; w++) {
		float2 stat = room->stats[w][head];
		float factor = exp2_fast(stat.x - ret.stat.x);

		ret.stat.y = fmaf(factor, stat.y, ret.stat.y);
		add_scaled(&ret.sum, factor,
			   *(const float4 *)((const float *)room->ring[w][0] + SUMS_ROW * head +
					     4 * (threadIdx.x % 32)));
	}
	return ret;
}

/* By a whole warp: the block's columns of a head, four of each lane. */
static __device__ __forceinline__ void
part_output(const cuda_attention &a, const split &at, uint32_t head, part p)
{
	uint32_t column = 32 * CHUNK * at.chunk + 4 * (threadIdx.x % 32);
	uint32_t place = (at.head + head) * a.head_dim + column;
	float *out = a.out.rows.at + (uint64_t)at.token * a.out.rows.stride + place;
	float scale = __fdividef(1, p.stat.y);
	float4 x = make_float4(p.sum.x * scale, p.sum.y * scale, p.sum.z * scale, p.sum.w * scale);

	if (a.head_dim % 32 == 0)
		fixed_store(a.out.fixed.at + (uint64_t)at.token * a.out.fixed.stride, place, x,
			    column < a.head_dim);
	if (column < a.head_dim)
		out[0] = x.x;
	if (column + 1 < a.head_dim)
		out[1] = x.y;
	if (column + 2 < a.head_dim)
		out[2] = x.z;
	if (column + 3 < a.head_dim)
		out[3] = x.w;
}

/* The first of a head's places in partials. */
static __device__ __forceinline__ uint64_t
partial_place(const cuda_attention &a, const partials &partial, const split &at, uint32_t head)
{
	return (((uint64_t)blockIdx.z * a.heads + at.head + head) * at.n_chunks + at.chunk) *
	       partial.splits;
}

/* Splits whose sums have room in a warp's ring, which nobody else needs any more. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ constexpr uint32_t
sums_at_once(const block_room<CHUNKS, SMALL> *)
{
	return sizeof(block_room<CHUNKS, SMALL>::ring[0]) / sizeof(float[32 * CHUNK]);
}

/* Of `count` splits a lane's four columns, all on their way at once: each lane reads what it has
 * copied itself, so copies_wait is all it waits for. */
static __device__ __forceinline__ void
sums_load(float4 *to, const float *sums, uint32_t count)
{
#pragma unroll 4
	for (uint32_t i = 0; i < count; i++)
		copy16(to + 32 * i, sums + (uint64_t)i * 32 * CHUNK);
}

/* A warp: what each split counts, to `factors`; returns greatest score and sum. */
static __device__ __forceinline__ float2
splits_weigh(const float2 *stats, uint32_t count, float *factors)
{
	uint32_t lane = threadIdx.x % 32;
	float2 stat[SPLITS_MAX / 32], ret = make_float2(-INFINITY, 0);

#pragma unroll
	for (uint32_t n = 0; n < SPLITS_MAX / 32; n++) {
		stat[n] = make_float2(-INFINITY, 0);
		if (lane + 32 * n < count)
			stat[n] = __ldcg(&stats[lane + 32 * n]);
		ret.x = fmaxf(ret.x, stat[n].x);
	}
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		ret.x = fmaxf(ret.x, __shfl_xor_sync(0xffffffffu, ret.x, step));
#pragma unroll
	for (uint32_t n = 0; n < SPLITS_MAX / 32; n++) {
		if (lane + 32 * n >= count)
			continue;
		float factor = exp2_fast(stat[n].x - ret.x);

		factors[lane + 32 * n] = factor;
		ret.y = fmaf(factor, stat[n].y, ret.y);
	}
	ret.y = warp_sum(ret.y);
	return ret;
}

/* A warp: a head's splits in order, by way of its ring.  `factors`: shared memory for one of each
 * split. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ part
splits_join(const cuda_attention &a, const partials &partial, const split &at, uint32_t head,
	    block_room<CHUNKS, SMALL> *room, float *factors)
{
	constexpr uint32_t AT_ONCE = sums_at_once((block_room<CHUNKS, SMALL> *)NULL);
	uint64_t place = partial_place(a, partial, at, head);
	const float *sums = partial.sums + place * 32 * CHUNK + 4 * (threadIdx.x % 32);
	float4 *here = (float4 *)room->ring[threadIdx.x / 32] + threadIdx.x % 32;
	part ret = {};

	sums_load(here, sums, min(AT_ONCE, at.count));
	ret.stat = splits_weigh(partial.stats + place, at.count, factors);
	__syncwarp();
#pragma unroll 1
	for (uint32_t first = 0; first < at.count; first += AT_ONCE) {
		uint32_t n = min(AT_ONCE, at.count - first);

		if (first > 0)
			sums_load(here, sums + (uint64_t)first * 32 * CHUNK, n);
		copies_wait();
#pragma unroll 4
		for (uint32_t i = 0; i < n; i++)
			add_scaled(&ret.sum, factors[first + i], here[32 * i]);
	}
	__syncwarp();
	return ret;
}

/* Warps by turns: a head's part to the output, where no other split is to come, or to the partials.
 */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
split_store(const cuda_attention &a, const partials &partial, const split &at,
	    const block_room<CHUNKS, SMALL> *room)
{
	for (uint32_t head = threadIdx.x / 32; head < at.heads; head += blockDim.x / 32) {
		uint64_t place = partial_place(a, partial, at, head) + at.index;
		part p = warps_join(room, head);

		if (at.count == 1) {
			part_output(a, at, head, p);
			continue;
		}
		((float4 *)(partial.sums + place * 32 * CHUNK))[threadIdx.x % 32] = p.sum;
		if (threadIdx.x % 32 == 0)
			partial.stats[place] = p.stat;
	}
}

/* By the last block of a token's heads: the splits' sums to the output. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
splits_output(const cuda_attention &a, const partials &partial, const split &at,
	      block_room<CHUNKS, SMALL> *room)
{
	uint32_t warp = threadIdx.x / 32;

	for (uint32_t head = warp; head < at.heads; head += blockDim.x / 32)
		part_output(a, at, head,
			    splits_join(a, partial, at, head, room, room->line[warp][0]));
}

#endif
