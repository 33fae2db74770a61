/* A split of the context, by one block: the warps' tiles, their sums joined, and the splits' sums
 * joined by the last block. */
#ifndef HEARTH_WORKER_CUDA_SPLIT_CUH
#define HEARTH_WORKER_CUDA_SPLIT_CUH

#include "worker/cuda_attend.cuh"
#include "worker/cuda_fixed.cuh"
#include "worker/cuda_heads.cuh"

#define SPLIT_UNIT 64u /* positions: a tile for each warp of a block */
#define SPLITS_MAX 256u
#define LOG2_E 1.44269504088896340736f

static_assert(ROWS * shape<1>::WARPS == SPLIT_UNIT, "every warp has work");

static __host__ __device__ constexpr uint32_t
up(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* Of one (token, head, split): the values' sum not yet divided, and before all of them, as pairs,
 * the greatest score and the sum of exp2(score - greatest). */
struct partials {
	float2 *stats;
	float *sums;
	uint32_t splits; /* room for */
};

template <int CHUNKS> struct block_room {
	warp_room<CHUNKS> warps[shape<CHUNKS>::WARPS];
	float q[shape<CHUNKS>::HEADS][shape<CHUNKS>::COLUMNS];
	float key[shape<CHUNKS>::COLUMNS], value[shape<CHUNKS>::COLUMNS]; /* the newest */
	float q_norm[shape<CHUNKS>::COLUMNS], k_norm[shape<CHUNKS>::COLUMNS];
	float2 turn[shape<CHUNKS>::COLUMNS / 2]; /* cosine and sine */
	float2 stats[shape<CHUNKS>::WARPS][shape<CHUNKS>::HEADS];
	uint32_t last;
};

/* What a block computes. */
struct split {
	uint32_t token, pos, kv_head, head, heads; /* heads head..head + heads - 1 */
	uint32_t index, count;                     /* this of so many */
	uint32_t begin, end;                       /* positions */
	uint32_t cached_end; /* those of them that are in the cache when the kernel starts */
	bool makes_row;      /* the newest position's key and value */
	bool to_cache;       /* and stores it there */
};

template <int CHUNKS>
static __device__ __forceinline__ split
split_of(const cuda_attention &a, uint32_t most, uint32_t token, uint32_t pos, bool makes_row)
{
	uint32_t group = a.heads / a.kv_heads, tiles = up(group, shape<CHUNKS>::HEADS);
	uint32_t tile = blockIdx.x % tiles, length = pos + 1;
	uint32_t positions = up(up(length, most), SPLIT_UNIT) * SPLIT_UNIT;
	split ret;

	ret.token = token;
	ret.pos = pos;
	ret.kv_head = blockIdx.x / tiles;
	ret.head = ret.kv_head * group + tile * shape<CHUNKS>::HEADS;
	ret.heads = min(group - tile * shape<CHUNKS>::HEADS, shape<CHUNKS>::HEADS);
	ret.index = blockIdx.y;
	ret.count = up(length, positions);
	ret.begin = ret.index * positions;
	ret.end = min(ret.begin + positions, length);
	ret.cached_end = makes_row ? min(ret.end, pos) : ret.end;
	ret.makes_row = ret.cached_end != ret.end;
	ret.to_cache = tile == 0;
	return ret;
}

/* What depends on the position alone: before the block waits for q, k and v. */
template <int CHUNKS>
static __device__ __forceinline__ void
block_begin(const cuda_attention &a, const split &at, block_room<CHUNKS> *room)
{
	uint32_t row = CUDA_KV_ROW(a.head_dim), lane = threadIdx.x % 32;
	warp_room<CHUNKS> *mine = &room->warps[threadIdx.x / 32];
	uint32_t from = at.begin + threadIdx.x / 32 * ROWS;

	tile_load<CHUNKS>(mine->keys, a.keys + cache_place(a, at.kv_head, 0), row, from,
			  at.cached_end);
	tile_load<CHUNKS>(mine->values, a.values + cache_place(a, at.kv_head, 0), row, from,
			  at.cached_end);
	for (uint32_t i = row + lane; i < up(row, 32) * 32; i += 32)
		for (uint32_t r = 0; r < ROWS; r++)
			mine->keys[r][i] = 0;
	for (uint32_t i = threadIdx.x; i < a.head_dim / 2; i += blockDim.x)
		room->turn[i] = turn_at(a, at.pos, i);
	for (uint32_t i = threadIdx.x; i < a.head_dim; i += blockDim.x) {
		room->q_norm[i] = a.q_norm[i];
		room->k_norm[i] = a.k_norm[i];
	}
}

/* The newest position's key, and of one block to the cache. */
template <int CHUNKS>
static __device__ __forceinline__ void
key_make(const cuda_attention &a, const split &at, block_room<CHUNKS> *room,
	 const head_pairs<CHUNKS> &x)
{
	uint32_t row = CUDA_KV_ROW(a.head_dim), lane = threadIdx.x % 32;
	float *cache = a.keys + cache_place(a, at.kv_head, at.pos);

	head_turn(a, x, room->k_norm, room->turn, 1, room->key, shape<CHUNKS>::COLUMNS);
	__syncwarp();
	for (uint32_t i = lane; i < row && at.to_cache; i += 32)
		cache[i] = room->key[i];
}

/* Its value. */
template <int CHUNKS>
static __device__ __forceinline__ void
value_make(const cuda_attention &a, const split &at, block_room<CHUNKS> *room)
{
	uint32_t row = CUDA_KV_ROW(a.head_dim), lane = threadIdx.x % 32;
	const float *from = key_from(a, at.token, at.kv_head) + (uint64_t)a.kv_heads * a.head_dim;
	float *cache = a.values + cache_place(a, at.kv_head, at.pos);

#pragma unroll
	for (uint32_t n = 0; n < 4 * CHUNKS; n++) {
		uint32_t i = lane + 32 * n;
		float x = i < a.head_dim ? __ldcg(from + i) : 0;

		room->value[i] = x;
		if (i < row && at.to_cache)
			cache[i] = x;
	}
}

/* A warp a head of q, times `factor`; two of them the newest row as well.  All is asked for before
 * any is waited for. */
template <int CHUNKS>
static __device__ __forceinline__ void
heads_make(const cuda_attention &a, const split &at, float factor, block_room<CHUNKS> *room)
{
	uint32_t warp = threadIdx.x / 32, head = min(warp, at.heads - 1);
	bool makes_key = at.makes_row && warp == 0;
	const float *q =
	    a.qkv.at + (uint64_t)at.token * a.qkv.stride + (uint64_t)(at.head + head) * a.head_dim;
	head_pairs<CHUNKS> x = head_load<CHUNKS>(q, a.head_dim), key;

	if (makes_key)
		key = head_load<CHUNKS>(key_from(a, at.token, at.kv_head), a.head_dim);
	if (at.makes_row && warp == shape<CHUNKS>::WARPS - 1)
		value_make<CHUNKS>(a, at, room);
	/* Heads beyond the last are there to be finite. */
	head_turn(a, x, room->q_norm, room->turn, factor, room->q[warp], shape<CHUNKS>::COLUMNS);
	if (makes_key)
		key_make<CHUNKS>(a, at, room, key);
}

/* A warp's tiles of the split.  While it computes with one tile of keys or of values, the other,
 * and then the next, is on its way. */
template <int CHUNKS>
static __device__ __forceinline__ void
tiles_run(const cuda_attention &a, const split &at, block_room<CHUNKS> *room,
	  running<CHUNKS> &state, value_sums<CHUNKS> &sums)
{
	constexpr uint32_t STEP = ROWS * shape<CHUNKS>::WARPS;
	uint32_t row = CUDA_KV_ROW(a.head_dim);
	warp_room<CHUNKS> *mine = &room->warps[threadIdx.x / 32];
	const float *keys = a.keys + cache_place(a, at.kv_head, 0);
	const float *values = a.values + cache_place(a, at.kv_head, 0);

#pragma unroll 1
	for (uint32_t p = at.begin + threadIdx.x / 32 * ROWS; p < at.end; p += STEP) {
		bool newest = at.makes_row && at.pos - p < ROWS;
		float score[shape<CHUNKS>::SUMS] = {};

		copies_wait_but_one();
		if (newest)
			tile_put<CHUNKS>(mine->keys[at.pos - p], room->key);
		__syncwarp();
		tile_products<CHUNKS>(mine->keys, room->q, up(row, 32), score);
		slices_add(score);
		if (tile_weigh<CHUNKS>(score, at.end - p, state, mine)) {
			__syncwarp();
			sums_scale<CHUNKS>(sums, mine->factors);
		}
		__syncwarp();
		tile_load<CHUNKS>(mine->keys, keys, row, p + STEP, at.cached_end);
		copies_wait_but_one();
		if (newest)
			tile_put<CHUNKS>(mine->values[at.pos - p], room->value);
		__syncwarp();
		tile_values<CHUNKS>(mine, at.end - p, sums);
		__syncwarp();
		tile_load<CHUNKS>(mine->values, values, row, p + STEP, at.cached_end);
	}
}

/* Each warp leaves its sums where its keys were, and what they count. */
template <int CHUNKS>
static __device__ __forceinline__ void
warp_leave(block_room<CHUNKS> *room, const running<CHUNKS> &state, const value_sums<CHUNKS> &sums)
{
	using s = shape<CHUNKS>;
	uint32_t warp = threadIdx.x / 32, column = 4 * (threadIdx.x % 32);
	uint32_t head = first_head<CHUNKS>(threadIdx.x % 32);

#pragma unroll
	for (uint32_t i = 0; i < s::LEFT; i++)
		room->stats[warp][head + i] =
		    make_float2(state.top[i], rows_reduce<CHUNKS>(state.sum[i], added));
#pragma unroll
	for (uint32_t h = 0; h < s::HEADS; h++)
#pragma unroll
		for (uint32_t c = 0; c < CHUNKS; c++)
			*(float4 *)&room->warps[warp].keys[h][column + 128 * c] = sums.of[h][c];
}

/* A head's columns column.. + 3 so far: the sum is to be divided by stat.y. */
struct part {
	float4 sum;
	float2 stat;
};

/* A warp: what all warps left, in their order, of one head and 128 columns. */
template <int CHUNKS>
static __device__ __forceinline__ part
warps_join(const block_room<CHUNKS> *room, uint32_t head, uint32_t column)
{
	using s = shape<CHUNKS>;
	part ret = {};

	ret.stat.x = -INFINITY;
#pragma unroll
	for (uint32_t w = 0; w < s::WARPS; w++)
		ret.stat.x = fmaxf(ret.stat.x, room->stats[w][head].x);
#pragma unroll
	for (uint32_t w = 0; w < s::WARPS; w++) {
		float2 stat = room->stats[w][head];
		float factor = exp2f(stat.x - ret.stat.x);

		ret.stat.y = fmaf(factor, stat.y, ret.stat.y);
		add_scaled(&ret.sum, factor, *(const float4 *)&room->warps[w].keys[head][column]);
	}
	return ret;
}

/* By a whole warp: 128 columns of a head, four of each lane. */
static __device__ __forceinline__ void
part_output(const cuda_attention &a, const split &at, uint32_t head, uint32_t column, part p)
{
	uint32_t place = (at.head + head) * a.head_dim + column;
	float *out = a.out.rows.at + (uint64_t)at.token * a.out.rows.stride + place;
	float scale = 1.0f / p.stat.y;
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
partial_place(const cuda_attention &a, const partials &partial, uint32_t head)
{
	return ((uint64_t)blockIdx.z * a.heads + head) * partial.splits;
}

#define AHEAD 8u /* splits whose sums are on their way at once */

/* A lane's columns of AHEAD splits from `first` on; those behind the last are the last's. */
static __device__ __forceinline__ void
sums_load(const float *sums, uint32_t row, uint32_t first, uint32_t count, float4 (&to)[AHEAD])
{
#pragma unroll
	for (uint32_t i = 0; i < AHEAD; i++)
		to[i] = __ldcg((const float4 *)(sums + (uint64_t)min(first + i, count - 1) * row));
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
		float factor = exp2f(stat[n].x - ret.x);

		factors[lane + 32 * n] = factor;
		ret.y = fmaf(factor, stat[n].y, ret.y);
	}
	ret.y = warp_sum(ret.y);
	return ret;
}

/* A warp: a head's splits in order.  `factors`: shared memory for one of each split. */
static __device__ __forceinline__ part
splits_join(const cuda_attention &a, const partials &partial, const split &at, uint32_t head,
	    uint32_t column, float *factors)
{
	uint32_t row = CUDA_KV_ROW(a.head_dim);
	uint64_t place = partial_place(a, partial, at.head + head);
	const float *sums = partial.sums + place * row + min(column, row - 4);
	float4 next[AHEAD];
	part ret = {};

	sums_load(sums, row, 0, at.count, next);
	ret.stat = splits_weigh(partial.stats + place, at.count, factors);
	__syncwarp();
#pragma unroll 1
	for (uint32_t first = 0; first < at.count; first += AHEAD) {
		float4 sum[AHEAD];

#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			sum[i] = next[i];
		sums_load(sums, row, first + AHEAD, at.count, next);
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (first + i < at.count)
				add_scaled(&ret.sum, factors[first + i], sum[i]);
	}
	__syncwarp();
	return ret;
}

/* A warp: a head's part to the output, where no other split is to come, or to the partials. */
template <int CHUNKS>
static __device__ __forceinline__ void
split_store(const cuda_attention &a, const partials &partial, const split &at,
	    const block_room<CHUNKS> *room)
{
	uint32_t lane = threadIdx.x % 32, row = CUDA_KV_ROW(a.head_dim);

	for (uint32_t i = threadIdx.x / 32; i < 8; i += shape<CHUNKS>::WARPS) {
		uint32_t head = i / CHUNKS, column = i % CHUNKS * 128 + 4 * lane;
		uint64_t place = partial_place(a, partial, at.head + head) + at.index;

		if (head >= at.heads)
			continue;
		part p = warps_join<CHUNKS>(room, head, column);
		if (at.count == 1)
			part_output(a, at, head, column, p);
		else if (column < row)
			*(float4 *)(partial.sums + place * row + column) = p.sum;
		if (at.count > 1 && column == 0)
			partial.stats[place] = p.stat;
	}
}

#endif
