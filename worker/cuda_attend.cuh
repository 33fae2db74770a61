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

#define HEADS 8u       /* of a block */
#define PIECE_TILES 2u /* tiles of a piece, which is loaded at once */
#define CHUNK 4u       /* groups of values that a block adds up */

/* 8 numbers of a lane, in two bytes each, in the order of a tile's runs. */
struct __align__(16) fixed_run
{
	uint32_t high[2], low[2];
};

/* (sum over the products of two 16-bit numbers) / 16: of a lane's head, two columns.  No more than
 * 32 products of numbers up to 32639 are added up, so it fits. */
static __device__ __forceinline__ void
runs_product(const struct fixed_run &rows, const uint4 &run, float (&ret)[2])
{
	const uint32_t a[4] = { rows.high[0], rows.low[0], rows.high[1], rows.low[1] };
	int32_t high[4] = {}, low[4] = {};

	multiply_bytes(high, a, run.x, run.y);
	multiply_bytes(low, a, run.z, run.w);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		/* Unsigned: of a NaN anything, so it may run over. */
		uint32_t sum = 256u * (uint32_t)high[i] + (uint32_t)(high[2 + i] + low[i]);

		ret[i] = (float)(int32_t)(16u * sum + (uint32_t)(low[2 + i] >> 4));
	}
}

#define PRODUCT_UNIT 16.0f /* of runs_product */

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
keys_add(const struct cuda_kv_tile *tile, const struct fixed_run &q, float unit, float (&score)[8])
{
	float units[8];

	units_load(tile, units);
#pragma unroll
	for (uint32_t n = 0; n < 4; n++) {
		float product[2];

		runs_product(q, *run_of(tile, n), product);
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
	uint32_t first = 8 * (threadIdx.x % 4);
	float top = -INFINITY, sum = 0, factor;

#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		score[i] = first + i < valid ? score[i] : -INFINITY;
		top = fmaxf(top, score[i]);
	}
	top = fmaxf(state->top, head_largest(top));
	factor = exp2f(state->top - top);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		score[i] = exp2f(score[i] - top);
		sum += score[i];
	}
	state->sum = fmaf(state->sum, factor, sum);
	state->top = top;
	return factor;
}

/* Weights times a group's units in fixed point, and the unit of that for head g. */
static __device__ __forceinline__ struct fixed_run
weights_fix(const struct cuda_kv_tile *tile, const float (&weight)[8], uint32_t valid, float *unit)
{
	uint32_t first = 8 * (threadIdx.x % 4), top = 0, v[8];
	struct fixed_run ret;
	float x[8], inverse;

	units_load(tile, x);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		x[i] = first + i < valid ? x[i] * weight[i] : 0;
		/* As integers: none is negative, and a NaN is the largest. */
		top = max(top, __float_as_uint(x[i]));
	}
	top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
	top = max(top, __shfl_xor_sync(0xffffffffu, top, 2));
	inverse = fixed_inverse(__uint_as_float(top));
	*unit = __uint_as_float(top) * (PRODUCT_UNIT / FIXED_LARGEST);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		v[i] = fixed_one(x[i], inverse);
#pragma unroll
	for (uint32_t i = 0; i < 2; i++) {
		struct fixed_four four = { { v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3] },
					   0 };

		ret.high[i] = high_bytes(four);
		ret.low[i] = low_bytes(four);
	}
	return ret;
}

/* sum[2 * n + i]: of head g, column 8 * n + 2 * t + i of a group of values. */
static __device__ __forceinline__ void
values_add(const struct cuda_kv_tile *tile, const float (&weight)[8], uint32_t valid,
	   float (&sum)[8])
{
	float unit;
	struct fixed_run weights = weights_fix(tile, weight, valid, &unit);

#pragma unroll
	for (uint32_t n = 0; n < 4; n++) {
		float product[2];

		runs_product(weights, *run_of(tile, n), product);
#pragma unroll
		for (uint32_t i = 0; i < 2; i++)
			sum[2 * n + i] = fmaf(product[i], unit, sum[2 * n + i]);
	}
}

#endif
