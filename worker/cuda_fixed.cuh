/* Vectors in fixed point.  A group of 16 columns has a unit, max|x| / 32512; a column is the
 * integer v = x / unit, rounded, as two signed bytes: 256 * high + low.  So bytes of weights are
 * multiplied by integers, exactly, and what is lost is 2^-16 of a group's largest column.
 *
 * A vector lies in blocks of 256 columns: 256 low bytes, 256 high bytes, and of each of 16 groups
 * the unit and the sum of v.  Groups' bytes lie so that eight lanes of a warp, each with the next
 * piece of a row of any type, read from different banks; the 16 bytes behind a block do the same
 * for units and sums of two blocks (Q4_K, Q5_K). */
#ifndef HEARTH_WORKER_CUDA_FIXED_CUH
#define HEARTH_WORKER_CUDA_FIXED_CUH

#include "worker/cuda_kernels.h"

#define FIXED_LARGEST 32512.0f
#define FIXED_HIGH 256u /* where a block's parts begin */
#define FIXED_GROUPS 512u

struct fixed_group {
	float unit;
	int32_t sum;
};

static_assert(FIXED_GROUPS + 16 * sizeof(struct fixed_group) + 16 == CUDA_FIXED_BLOCK_BYTES,
	      "a block's parts");

/* Of the group of `column`, in its block. */
static __device__ __forceinline__ uint32_t
fixed_group_place(uint32_t column)
{
	return FIXED_GROUPS + column % CUDA_FIXED_BLOCK / 16 * (uint32_t)sizeof(struct fixed_group);
}

static __device__ __forceinline__ uint32_t
fixed_block(uint32_t column)
{
	return column / CUDA_FIXED_BLOCK * CUDA_FIXED_BLOCK_BYTES;
}

/* Of the low bytes of `column`, a multiple of 4, in its block. */
static __device__ __forceinline__ uint32_t
fixed_place(uint32_t column)
{
	uint32_t place = column % CUDA_FIXED_BLOCK;

	return place ^ (place & 128 ? 7 * 16 : 0);
}

/* Byte n of each. */
static __device__ __forceinline__ uint32_t
bytes_of(uint32_t n, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
	uint32_t pick = n | (4 + n) << 4;

	return __byte_perm(__byte_perm(a, b, pick), __byte_perm(c, d, pick), 0x5410);
}

/* Four columns in fixed point, and the unit of their group. */
struct fixed_four {
	uint32_t v[4];
	float unit;
};

static __device__ __forceinline__ uint32_t
low_bytes(const struct fixed_four &x)
{
	return bytes_of(0, x.v[0], x.v[1], x.v[2], x.v[3]);
}

static __device__ __forceinline__ uint32_t
high_bytes(const struct fixed_four &x)
{
	return bytes_of(1, x.v[0] + 128, x.v[1] + 128, x.v[2] + 128, x.v[3] + 128);
}

/* 1 / unit of a group with this largest column; of next to nothing 0, which makes all of it 0.
 * EXACT: the same bits on a CPU, for a longer division. */
template <bool EXACT = false>
static __device__ __forceinline__ float
fixed_inverse(float largest)
{
	return largest < 1e-30f ? 0
	       : EXACT          ? __fdiv_rn(FIXED_LARGEST, largest)
				: __fdividef(FIXED_LARGEST, largest);
}

/* The integer in the low 16 bits, and something above. */
static __device__ __forceinline__ uint32_t
fixed_bits(float x, float inverse)
{
	return __float_as_uint(fmaf(x, inverse, 12582912.0f)); /* 1.5 * 2^23: its last bit is 1 */
}

static __device__ __forceinline__ uint32_t
fixed_one(float x, float inverse)
{
	return fixed_bits(x, inverse) - fixed_bits(0, 0);
}

/* Four columns of each lane, by a whole warp: LANES lanes at a multiple of it have a group. */
template <int LANES, bool EXACT = false>
static __device__ __forceinline__ struct fixed_four
fixed_four_of(float4 x)
{
	/* As integers: so a NaN is the largest, and makes the unit one. */
	uint32_t top = max(max(__float_as_uint(fabsf(x.x)), __float_as_uint(fabsf(x.y))),
			   max(__float_as_uint(fabsf(x.z)), __float_as_uint(fabsf(x.w))));
	float inverse;

#pragma unroll
	for (int step = LANES / 2; step > 0; step /= 2)
		top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
	inverse = fixed_inverse<EXACT>(__uint_as_float(top));
	return fixed_four{ { fixed_one(x.x, inverse), fixed_one(x.y, inverse),
			     fixed_one(x.z, inverse), fixed_one(x.w, inverse) },
			   __uint_as_float(top) * (1.0f / FIXED_LARGEST) };
}

/* Four columns of each lane into a vector, `column` a multiple of 4: by a whole warp, of which
 * four lanes at a multiple of 4 have the columns of a group.  `store`: the same for a group. */
template <bool EXACT = false>
static __device__ __forceinline__ void
fixed_store(uint8_t *vector, uint32_t column, float4 x, bool store)
{
	uint8_t *block = vector + fixed_block(column);
	struct fixed_four four = fixed_four_of<4, EXACT>(x);
	/* Of a NaN anything, so it may run over. */
	uint32_t sum = four.v[0] + four.v[1] + four.v[2] + four.v[3];

#pragma unroll
	for (int step = 2; step > 0; step /= 2)
		sum += __shfl_xor_sync(0xffffffffu, sum, step);
	if (!store)
		return;
	*(uint32_t *)(block + fixed_place(column)) = low_bytes(four);
	*(uint32_t *)(block + FIXED_HIGH + fixed_place(column)) = high_bytes(four);
	if (column % 16 == 0)
		*(uint2 *)(block + fixed_group_place(column)) =
		    make_uint2(__float_as_uint(four.unit), sum);
}

#endif
