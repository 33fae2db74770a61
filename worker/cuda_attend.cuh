/* Attention of one warp: its tiles of ROWS positions against the heads of a block.  All heads of a
 * block share each row of keys and values that is loaded.  A row is up to 128 * CHUNKS floats; the
 * more of them, the fewer heads and warps a block has, so that shared memory and registers are the
 * same for every size of head. */
#ifndef HEARTH_WORKER_CUDA_ATTEND_CUH
#define HEARTH_WORKER_CUDA_ATTEND_CUH

#include "worker/cuda_ptx.cuh"
#include "worker/cuda_rows.cuh"

#define ROWS 8u /* positions of a tile */

/* How the lanes of a warp share scores (row, head): eight slices of the columns, and beside them
 * groups of rows and of heads.  Each lane has ROWS_EACH * HEADS_EACH sums over its slice. */
template <int CHUNKS> struct shape {
	static constexpr uint32_t HEADS = 8 / CHUNKS; /* of a block */
	static constexpr uint32_t WARPS = HEADS;
	static constexpr uint32_t COLUMNS = 128 * CHUNKS; /* of a row in shared memory */
	static constexpr uint32_t HEAD_GROUPS = HEADS > 1 ? 2 : 1;
	static constexpr uint32_t HEADS_EACH = HEADS / HEAD_GROUPS;
	static constexpr uint32_t ROWS_EACH = 2 * HEAD_GROUPS;
	static constexpr uint32_t SUMS = ROWS_EACH * HEADS_EACH;
	static constexpr uint32_t LEFT = SUMS > 8 ? SUMS / 8 : 1; /* sums a lane ends up with */
};

/* A lane's group of rows begins here, and its group of heads. */
template <int CHUNKS>
static __device__ __forceinline__ uint32_t
group_row(uint32_t lane)
{
	return lane / 8 % (ROWS / shape<CHUNKS>::ROWS_EACH) * shape<CHUNKS>::ROWS_EACH;
}

template <int CHUNKS>
static __device__ __forceinline__ uint32_t
group_head(uint32_t lane)
{
	return lane / 8 / (ROWS / shape<CHUNKS>::ROWS_EACH) * shape<CHUNKS>::HEADS_EACH;
}

/* The first of the sums of its group that a lane ends up with, where several lanes have the same.
 */
template <int CHUNKS>
static __device__ __forceinline__ uint32_t
group_sum(uint32_t lane)
{
	return lane % 8 * shape<CHUNKS>::SUMS / 8 / shape<CHUNKS>::LEFT * shape<CHUNKS>::LEFT;
}

/* The first of the heads that those sums are of; they are of one row. */
template <int CHUNKS>
static __device__ __forceinline__ uint32_t
first_head(uint32_t lane)
{
	return group_head<CHUNKS>(lane) + group_sum<CHUNKS>(lane) % shape<CHUNKS>::HEADS_EACH;
}

/* A warp's shared memory: one tile of keys, one of values, and what each row weighs. */
template <int CHUNKS> struct __align__(16) warp_room
{
	float keys[ROWS][shape<CHUNKS>::COLUMNS];
	float values[ROWS][shape<CHUNKS>::COLUMNS];
	float weights[ROWS][shape<CHUNKS>::HEADS];
	float factors[shape<CHUNKS>::HEADS];
};

/* Rows `from`..end of the cache, at most ROWS, start on their way as one group of copies. */
template <int CHUNKS>
static __device__ __forceinline__ void
tile_load(float (*to)[shape<CHUNKS>::COLUMNS], const float *cache, uint32_t row, uint32_t from,
	  uint32_t end)
{
	const uint64_t row_bytes = row * sizeof(float);
	uint32_t column = 4 * (threadIdx.x % 32);

#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++, column += 128) {
		const uint8_t *at = (const uint8_t *)(cache + column) + from * row_bytes;

		if (column >= row)
			continue;
		if (from + ROWS <= end) {
#pragma unroll
			for (uint32_t i = 0; i < ROWS; i++, at += row_bytes)
				copy16(&to[i][column], at);
		} else {
#pragma unroll 1
			for (uint32_t i = 0; from + i < end; i++, at += row_bytes)
				copy16(&to[i][column], at);
		}
	}
	copies_end_group();
}

/* A row from elsewhere in shared memory to its place in a tile. */
template <int CHUNKS>
static __device__ __forceinline__ void
tile_put(float *to, const float *from)
{
	uint32_t column = 4 * (threadIdx.x % 32);

#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++)
		*(float4 *)(to + column + 128 * c) = *(const float4 *)(from + column + 128 * c);
}

/* sum[i * HEADS_EACH + j]: row i of the lane's group times head j of its group, over its slice. */
template <int CHUNKS>
static __device__ __forceinline__ void
tile_products(const float (*keys)[shape<CHUNKS>::COLUMNS], const float (*q)[shape<CHUNKS>::COLUMNS],
	      uint32_t steps, float (&sum)[shape<CHUNKS>::SUMS])
{
	using s = shape<CHUNKS>;
	uint32_t lane = threadIdx.x % 32, column = 4 * (lane % 8);
	uint32_t row = group_row<CHUNKS>(lane), head = group_head<CHUNKS>(lane);

#pragma unroll
	for (uint32_t step = 0; step < 4 * CHUNKS; step++) {
		float4 k[s::ROWS_EACH];

		if (step >= steps)
			continue;
#pragma unroll
		for (uint32_t i = 0; i < s::ROWS_EACH; i++)
			k[i] = *(const float4 *)&keys[row + i][column + 32 * step];
#pragma unroll
		for (uint32_t j = 0; j < s::HEADS_EACH; j++) {
			float4 v = *(const float4 *)&q[head + j][column + 32 * step];
#pragma unroll
			for (uint32_t i = 0; i < s::ROWS_EACH; i++) {
				float *to = &sum[i * s::HEADS_EACH + j];

				*to = fmaf(k[i].x, v.x, *to);
				*to = fmaf(k[i].y, v.y, *to);
				*to = fmaf(k[i].z, v.z, *to);
				*to = fmaf(k[i].w, v.w, *to);
			}
		}
	}
}

/* Adds N sums of two lanes that differ in BIT: each keeps the half that its bit says and gives the
 * other away; of one, both have the sum. */
template <int BIT, int N, int SUMS>
static __device__ __forceinline__ void
halves_add(float (&sum)[SUMS])
{
	bool upper = threadIdx.x & BIT;

	if (N == 1)
		sum[0] += __shfl_xor_sync(0xffffffffu, sum[0], BIT);
#pragma unroll
	for (int i = 0; i < N / 2; i++) {
		float keep = upper ? sum[i + N / 2] : sum[i];
		float give = upper ? sum[i] : sum[i + N / 2];

		sum[i] = keep + __shfl_xor_sync(0xffffffffu, give, BIT);
	}
}

/* Adds the slices up; a lane ends with the sums from group_sum() on. */
template <int SUMS>
static __device__ __forceinline__ void
slices_add(float (&sum)[SUMS])
{
	halves_add<4, SUMS>(sum);
	halves_add<2, (SUMS > 2 ? SUMS / 2 : 1)>(sum);
	halves_add<1, (SUMS > 4 ? SUMS / 4 : 1)>(sum);
}

/* The lanes with the same heads differ in these bits (and in those that have the same sum). */
template <int CHUNKS>
static __device__ __forceinline__ float
rows_reduce(float value, float (*join)(float, float))
{
#pragma unroll
	for (int step = 0; step < 3; step++)
		value = join(value,
			     __shfl_xor_sync(0xffffffffu, value, (CHUNKS == 8 ? 16 : 8) >> step));
	return value;
}

static __device__ __forceinline__ float
larger(float a, float b)
{
	return fmaxf(a, b);
}

static __device__ __forceinline__ float
added(float a, float b)
{
	return a + b;
}

/* What a lane knows of its heads' positions so far: the greatest score, and its own rows' sum of
 * exp2(score - greatest). */
template <int CHUNKS> struct running {
	float top[shape<CHUNKS>::LEFT], sum[shape<CHUNKS>::LEFT];
};

/* Scores become weights in room->weights.  True: the greatest changed, and what was summed up
 * before counts room->factors now. */
template <int CHUNKS>
static __device__ __forceinline__ bool
tile_weigh(const float *score, uint32_t valid, running<CHUNKS> &state, warp_room<CHUNKS> *room)
{
	using s = shape<CHUNKS>;
	uint32_t lane = threadIdx.x % 32, head = first_head<CHUNKS>(lane);
	uint32_t row = group_row<CHUNKS>(lane) + group_sum<CHUNKS>(lane) / s::HEADS_EACH;
	bool changed = false;

#pragma unroll
	for (uint32_t i = 0; i < s::LEFT; i++) {
		float value = row < valid ? score[i] : -INFINITY;
		float top = fmaxf(state.top[i], rows_reduce<CHUNKS>(value, larger));
		float factor = exp2f(state.top[i] - top), weight = exp2f(value - top);

		room->weights[row][head + i] = weight;
		room->factors[head + i] = factor;
		state.sum[i] = fmaf(state.sum[i], factor, weight);
		state.top[i] = top;
		changed = changed || factor != 1.0f;
	}
	return __any_sync(0xffffffffu, changed);
}

/* A lane has columns 4 * lane.. of each 128 of every head. */
template <int CHUNKS> struct value_sums {
	float4 of[shape<CHUNKS>::HEADS][CHUNKS];
};

template <int CHUNKS>
static __device__ __forceinline__ void
sums_scale(value_sums<CHUNKS> &sums, const float *factors)
{
#pragma unroll
	for (uint32_t h = 0; h < shape<CHUNKS>::HEADS; h++) {
		float factor = factors[h];
#pragma unroll
		for (uint32_t c = 0; c < CHUNKS; c++) {
			sums.of[h][c].x *= factor;
			sums.of[h][c].y *= factor;
			sums.of[h][c].z *= factor;
			sums.of[h][c].w *= factor;
		}
	}
}

static __device__ __forceinline__ void
add_scaled(float4 *to, float factor, const float4 &v)
{
	to->x = fmaf(factor, v.x, to->x);
	to->y = fmaf(factor, v.y, to->y);
	to->z = fmaf(factor, v.z, to->z);
	to->w = fmaf(factor, v.w, to->w);
}

template <int CHUNKS>
static __device__ __forceinline__ void
tile_values(const warp_room<CHUNKS> *room, uint32_t valid, value_sums<CHUNKS> &sums)
{
	uint32_t column = 4 * (threadIdx.x % 32);

#pragma unroll
	for (uint32_t i = 0; i < ROWS; i++) {
		float weight[shape<CHUNKS>::HEADS];

		if (i >= valid)
			break;
#pragma unroll
		for (uint32_t h = 0; h < shape<CHUNKS>::HEADS; h++)
			weight[h] = room->weights[i][h];
#pragma unroll
		for (uint32_t c = 0; c < CHUNKS; c++) {
			float4 v = *(const float4 *)&room->values[i][column + 128 * c];
#pragma unroll
			for (uint32_t h = 0; h < shape<CHUNKS>::HEADS; h++)
				add_scaled(&sums.of[h][c], weight[h], v);
		}
	}
}

#endif
