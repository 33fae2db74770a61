/* Attention of one warp: its tiles of 32 positions against up to 8 heads that share their keys, by
 * products of bytes, which are exact.
 *
 * A query's 8 heads are 16 rows of bytes, heads' high ones and low ones; a tile's keys or values
 * are two matrices, of high and of low bytes.  A lane, g = lane / 4 and t = lane % 4, has the
 * scores of head g with positions 8 * t .. of a tile, which are also the weights that it gives to
 * the product with the values; of that it has head g, columns 8 * n + 2 * t and the next. */
#ifndef HEARTH_WORKER_CUDA_ATTEND_CUH
#define HEARTH_WORKER_CUDA_ATTEND_CUH

#include "worker/cuda_fixed.cuh"
#include "worker/cuda_ptx.cuh"

#define HEADS 8u /* of a block */
#define CHUNK \
	4u /* groups of columns, or tiles, that are loaded at once; values that a block sums up */

/* A lane's share of the 16 rows: 8 numbers of its head, high and low bytes of four by turns. */
struct __align__(16) head_rows
{
	uint32_t bytes[4];
};

#define PRODUCT_UNIT 256.0f /* of rows_product */

/* Sums over the products of 32 pairs of 16-bit numbers, cut to whole PRODUCT_UNITs: of a lane's
 * head, two columns. */
template <bool SIGNED>
static __device__ __forceinline__ void
rows_product(const struct head_rows &rows, const uint4 &run, float (&ret)[2])
{
	int32_t high[4] = {}, low[4] = {};

	multiply_bytes<SIGNED>(high, rows.bytes, run.x, run.y);
	multiply_bytes<SIGNED>(low, rows.bytes, run.z, run.w);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++)
		ret[i] = (float)(256 * high[i] + (high[2 + i] + low[i] + (low[2 + i] >> 8)));
}

/* A lane's 8 positions of a tile: their units. */
static __device__ __forceinline__ void
units_load(const struct cuda_kv_tile *tile, float (&ret)[8])
{
	const float4 *from = (const float4 *)tile->unit + 2 * (threadIdx.x % 4);
	float4 a = from[0], b = from[1];

	ret[0] = a.x, ret[1] = a.y, ret[2] = a.z, ret[3] = a.w;
	ret[4] = b.x, ret[5] = b.y, ret[6] = b.z, ret[7] = b.w;
}

static __device__ __forceinline__ const uint4 *
run_of(const struct cuda_kv_tile *tile, uint32_t n)
{
	return (const uint4 *)tile->run[n][threadIdx.x % 32];
}

/* score[i]: of head g and position 8 * t + i; adds a group's part.  `unit`: of the query's head,
 * times PRODUCT_UNIT. */
static __device__ __forceinline__ void
keys_add(const struct cuda_kv_tile *tile, const struct head_rows &q, float unit, float (&score)[8])
{
	float units[8];

	units_load(tile, units);
#pragma unroll
	for (uint32_t n = 0; n < 4; n++) {
		float product[2];

		rows_product<true>(q, *run_of(tile, n), product);
#pragma unroll
		for (uint32_t i = 0; i < 2; i++)
			score[2 * n + i] =
			    fmaf(product[i], unit * units[2 * n + i], score[2 * n + i]);
	}
}

/* What a lane knows of head g so far: the greatest score, and its own positions' sum of
 * exp2(score - greatest). */
struct running {
	float top, sum;
};

/* The four lanes of a head. */
static __device__ __forceinline__ float
head_largest(float x)
{
	x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
	return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float
head_sum(float x)
{
	x += __shfl_xor_sync(0xffffffffu, x, 1);
	return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Scores of a tile, of which the first `valid` positions count, become weights.  Returns what was
 * summed up before counts now. */
static __device__ __forceinline__ float
scores_weigh(float (&score)[8], uint32_t valid, struct running *state)
{
	float top = state->top, sum = 0, factor;

	if (valid < CUDA_KV_TILE)
#pragma unroll
		for (uint32_t i = 0; i < 8; i++)
			if (8 * (threadIdx.x % 4) + i >= valid)
				score[i] = -INFINITY;
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		top = fmaxf(top, score[i]);
	top = head_largest(top);
	factor = exp2_fast(state->top - top);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		score[i] = exp2_fast(score[i] - top);
		sum += score[i];
	}
	state->sum = fmaf(state->sum, factor, sum);
	state->top = top;
	return factor;
}

#define WEIGHT_LARGEST 65280.0f /* two bytes without a sign */

/* Weights times a group's units in fixed point, and the unit of that for head g. */
static __device__ __forceinline__ struct head_rows
weights_fix(const struct cuda_kv_tile *tile, const float (&weight)[8], float *unit)
{
	struct head_rows ret;
	uint32_t top = 0, v[8];
	float x[8], inverse;

	units_load(tile, x);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		x[i] *= weight[i];
		/* As integers: none is negative, and a NaN is the largest. */
		top = max(top, __float_as_uint(x[i]));
	}
	top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
	top = max(top, __shfl_xor_sync(0xffffffffu, top, 2));
	inverse = fixed_inverse(__uint_as_float(top)) * (WEIGHT_LARGEST / FIXED_LARGEST);
	*unit = __uint_as_float(top) * (PRODUCT_UNIT / WEIGHT_LARGEST);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		v[i] = fixed_bits(x[i], inverse);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		const uint32_t *four = v + 4 * i;

		ret.bytes[2 * i] = bytes_of(1, four[0], four[1], four[2], four[3]);
		ret.bytes[2 * i + 1] = bytes_of(0, four[0], four[1], four[2], four[3]);
	}
	return ret;
}

/* sum[2 * n + i]: of head g, column 8 * n + 2 * t + i of a group of values. */
static __device__ __forceinline__ void
values_add(const struct cuda_kv_tile *tile, const float (&weight)[8], float (&sum)[8])
{
	float unit;
	struct head_rows weights = weights_fix(tile, weight, &unit);

#pragma unroll
	for (uint32_t n = 0; n < 4; n++) {
		float product[2];

		rows_product<false>(weights, *run_of(tile, n), product);
#pragma unroll
		for (uint32_t i = 0; i < 2; i++)
			sum[2 * n + i] = fmaf(product[i], unit, sum[2 * n + i]);
	}
}

#endif
