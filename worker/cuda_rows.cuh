/* Rows of any tensor type times a vector, by a warp. */
#ifndef HEARTH_WORKER_CUDA_ROWS_CUH
#define HEARTH_WORKER_CUDA_ROWS_CUH

#include "worker/cuda_fixed.cuh"
#include "worker/cuda_ptx.cuh"
#include "worker/cuda_types.cuh"

static __device__ __forceinline__ float
warp_sum(float value)
{
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, step);
	return value;
}

/* The lanes' parts of segments' sums, in shared memory.  The pitch: segments_sum reads of eight
 * segments at once, from different banks. */
#define SEGMENT_PITCH 36u
#define SEGMENTS_AT_ONCE 8u

struct segment_parts {
	float *at; /* (segments, SEGMENT_PITCH) */

	__device__ __forceinline__ struct segment_parts
	from(uint32_t segment) const
	{
		return segment_parts{ at + segment * SEGMENT_PITCH };
	}
};

/* The sums over lanes of up to SEGMENTS_AT_ONCE segments, added in the order of warp_sum: segment
 * k's in lanes 4 * k to 4 * k + 3. */
static __device__ __forceinline__ float
segments_sum(struct segment_parts parts, uint32_t segments)
{
	uint32_t lane = threadIdx.x % 32;
	const float *p = parts.from(min(lane / 4, segments - 1)).at + lane % 4;
	float sum = ((p[0] + p[16]) + (p[8] + p[24])) + ((p[4] + p[20]) + (p[12] + p[28]));

	sum += __shfl_xor_sync(0xffffffffu, sum, 2);
	return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
}

/* Vectors in shared memory, one behind the other, in the forms that a launch needs. */
struct vectors {
	const uint8_t *fixed;
	const float *floats;
	uint32_t fixed_stride, floats_stride;
};

/* A lane's part of a vector in fixed point: where it lies in a block, and what is there. */
struct fixed_part {
	uint32_t run[2], group;
};

template <class T>
static __device__ __forceinline__ struct fixed_part
fixed_part_of(uint32_t part)
{
	uint32_t column = T::place(part);

	return fixed_part{ { fixed_place(column), fixed_place(column + T::SECOND) },
			   fixed_group_place(column) };
}

struct fixed_columns {
	uint4 low[2], high[2];
	float unit[2], sum[2]; /* sum: of the columns, with the unit */
	int32_t start[2];      /* what the weights' bias makes of them */
};

/* By one read. */
static __device__ __forceinline__ struct fixed_group
fixed_group_of(const uint8_t *block, uint32_t place)
{
	uint2 both = *(const uint2 *)(block + place);

	return fixed_group{ __uint_as_float(both.x), (int32_t)both.y };
}

/* 16 bytes, as a lane has those of the weights. */
template <bool TURNED>
static __device__ __forceinline__ uint4
run_load(const uint8_t *run)
{
	if constexpr (TURNED) {
		uint32_t first = 8 * turned_lane();
		uint2 a = *(const uint2 *)(run + first), b = *(const uint2 *)(run + 8 - first);

		return make_uint4(a.x, a.y, b.x, b.y);
	} else {
		return *(const uint4 *)run;
	}
}

template <class T, bool WIDE>
static __device__ __forceinline__ void
fixed_load(const uint8_t *block, const struct fixed_part &part, struct fixed_columns *to)
{
	constexpr bool TURNED = T::TURNS && WIDE;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const uint8_t *run = block + part.run[r];
		struct fixed_group group = fixed_group_of(block, part.group + r * T::SECOND / 2);

		to->low[r] = run_load<TURNED>(run);
		to->high[r] = run_load<TURNED>(run + FIXED_HIGH);
		to->unit[r] = group.unit;
		to->sum[r] = group.unit * (float)group.sum;
		to->start[r] = -T::BIAS * T::TIMES * group.sum;
		if (r == 1)
			to->unit[r] *= 1.0f / T::TIMES;
	}
}

/* sum + the product with columns that lie so.  Each step is one rounded operation,
 * for a CPU to do the same: cpu_lanes.h. */
template <class T>
static __device__ __forceinline__ float
fixed_add(const struct quants &q, const struct fixed_columns &x, float sum)
{
	float times = 0;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		int32_t low = x.start[r], high = 0;
		float unit = T::SCALES ? q.scale[r] * x.unit[r] : x.unit[r];

#pragma unroll
		for (int i = 0; i < 4; i++) {
			low = dot4(q.bytes[r][i], word_of(x.low[r], i), low);
			high = dot4(q.bytes[r][i], word_of(x.high[r], i), high);
		}
		low += 256 * high;
		times = r == 0 ? (float)low * unit : fmaf((float)low, unit, times);
	}
	sum = fmaf(q.d, times, sum);
	if constexpr (T::MINIMA)
		sum = fmaf(-q.dmin, fmaf(q.minimum[1], x.sum[1], q.minimum[0] * x.sum[0]), sum);
	return sum;
}

template <class T, bool WIDE>
static __device__ __forceinline__ float
fixed_times(const uint8_t *length, const typename T::lane &lane, const struct fixed_columns &x,
	    float sum)
{
	struct quants q;

	T::template unpack<WIDE>(length, lane, q);
	return fixed_add<T>(q, x, sum);
}

/* Adds to a lane's sums its share of N products of rows of `columns` with a vector: the whole
 * warp's sums are the products.  row(n) is where product n's row lies.  The order of a product's
 * additions depends on type and shape alone, not on N. */
template <class T, int N, bool WIDE, class Row>
static __device__ __forceinline__ void
fixed_rows_times(const Row &row, const struct vectors &x, uint32_t columns, float (&sums)[N])
{
	uint32_t part = threadIdx.x % 8;
	const struct fixed_part place = fixed_part_of<T>(part);
	const typename T::lane lane = T::lane_of(part);

#pragma unroll 1
	for (uint32_t block = threadIdx.x % 32 / 8; 8 * block + part < columns / 32; block += 4) {
		struct fixed_columns v;

		fixed_load<T, WIDE>(x.fixed + block * CUDA_FIXED_BLOCK_BYTES, place, &v);
#pragma unroll
		for (int n = 0; n < N; n++)
			sums[n] =
			    fixed_times<T, WIDE>(row(n) + block * T::LENGTH, lane, v, sums[n]);
	}
}

/* Products of N rows with up to M vectors: row n's with vector m at m * N + n. */
template <int N, int M> struct many_sums {
	float of[M * N];
};

/* The same with `count` vectors, each weight unpacked once. */
template <class T, int N, int M, bool WIDE, class Row>
static __device__ __forceinline__ void
fixed_many_times(const Row &row, const struct vectors &x, uint32_t count, uint32_t columns,
		 struct many_sums<N, M> &sums)
{
	uint32_t part = threadIdx.x % 8;
	const struct fixed_part place = fixed_part_of<T>(part);
	const typename T::lane lane = T::lane_of(part);

#pragma unroll 1
	for (uint32_t block = threadIdx.x % 32 / 8; 8 * block + part < columns / 32; block += 4) {
		const uint8_t *at = x.fixed + block * CUDA_FIXED_BLOCK_BYTES;
		struct quants q[N];

#pragma unroll
		for (int n = 0; n < N; n++)
			T::template unpack<WIDE>(row(n) + block * T::LENGTH, lane, q[n]);
#pragma unroll
		for (int m = 0; m < M; m++, at += x.fixed_stride) {
			struct fixed_columns v;

			if ((uint32_t)m >= count)
				break;
			fixed_load<T, WIDE>(at, place, &v);
#pragma unroll
			for (int n = 0; n < N; n++)
				sums.of[m * N + n] = fixed_add<T>(q[n], v, sums.of[m * N + n]);
		}
	}
}

/* Of several segments, each a row and a vector: a lane's share of segment k's product is added to
 * parts.from(k).at[lane].  Where a row is shorter than the warp is wide, lanes take of the
 * next segment and add to others' shares: each is what fixed_rows_times makes. */
template <class T, bool WIDE, class Row>
static __device__ __forceinline__ void
fixed_segments_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
		     struct segment_parts &parts)
{
	static_assert(!(WIDE && T::TURNS), "a lane has any of a row's blocks");
	uint32_t part = threadIdx.x % 8, block = threadIdx.x % 32 / 8, segment = 0;
	uint32_t blocks = (columns + CUDA_FIXED_BLOCK - 1) / CUDA_FIXED_BLOCK;
	uint32_t step = blocks < 4 ? blocks : (blocks + 3) / 4 * 4;
	const struct fixed_part place = fixed_part_of<T>(part);
	const typename T::lane lane = T::lane_of(part);

#pragma unroll 1
	for (;; block += 4) {
		struct fixed_columns v;
		float *sum;

		for (; block >= step && segment < segments; segment++)
			block -= step;
		if (segment == segments)
			break;
		if (8 * block + part >= columns / 32)
			continue;
		fixed_load<T, WIDE>(
		    x.fixed + segment * x.fixed_stride + block * CUDA_FIXED_BLOCK_BYTES, place, &v);
		sum = parts.from(segment).at + block % 4 * 8 + part;
		*sum = fixed_times<T, WIDE>(row(segment) + block * T::LENGTH, lane, v, *sum);
	}
}

/* The same of types of floats. */
template <class T, int N, bool WIDE, class Row>
static __device__ __forceinline__ void
float_rows_times(const Row &row, const float *v, uint32_t columns, float (&sums)[N])
{
	uint32_t pieces = columns / T::PIECE, loose = pieces * T::PIECE + threadIdx.x % 32;

#pragma unroll 1
	for (uint32_t piece = threadIdx.x % 32; piece < pieces; piece += 32) {
#pragma unroll
		for (int n = 0; n < N; n++) {
			float w[T::PIECE], sum = 0;

			T::template unpack<WIDE>(row(n), piece, w);
#pragma unroll
			for (int i = 0; i < T::PIECE; i++)
				sum = fmaf(w[i], v[piece * T::PIECE + i], sum);
			sums[n] += sum;
		}
	}
#pragma unroll
	for (int n = 0; n < N; n++)
		if (loose < columns)
			sums[n] = fmaf(T::one(row(n), loose), v[loose], sums[n]);
}

template <class T, int N, int M, bool WIDE, class Row>
static __device__ __forceinline__ void
float_many_times(const Row &row, const struct vectors &x, uint32_t count, uint32_t columns,
		 struct many_sums<N, M> &sums)
{
#pragma unroll
	for (int m = 0; m < M; m++) {
		float of_one[N];

		if ((uint32_t)m >= count)
			break;
#pragma unroll
		for (int n = 0; n < N; n++)
			of_one[n] = sums.of[m * N + n];
		float_rows_times<T, N, WIDE>(row, x.floats + m * x.floats_stride, columns, of_one);
#pragma unroll
		for (int n = 0; n < N; n++)
			sums.of[m * N + n] = of_one[n];
	}
}

template <class T, bool WIDE, class Row>
static __device__ __forceinline__ void
float_segments_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
		     struct segment_parts &parts)
{
#pragma unroll 1
	for (uint32_t k = 0; k < segments; k++) {
		float *part = parts.from(k).at + threadIdx.x % 32, sum[1] = { *part };

		float_rows_times<T, 1, WIDE>([&](uint32_t) { return row(k); },
					     x.floats + k * x.floats_stride, columns, sum);
		*part = sum[0];
	}
}

template <class T, int N, bool WIDE, class Row>
static __device__ __forceinline__ void
rows_times(const Row &row, const struct vectors &x, uint32_t, uint32_t columns, float (&sums)[N])
{
	auto of_one = [&](uint32_t n) { return row(0, n); };

	if constexpr (T::FLOATS)
		float_rows_times<T, N, WIDE>(of_one, x.floats, columns, sums);
	else
		fixed_rows_times<T, N, WIDE>(of_one, x, columns, sums);
}

template <class T, int N, bool WIDE, class Row>
static __device__ __forceinline__ void
rows_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
	   struct segment_parts &parts)
{
	auto of_segment = [&](uint32_t k) { return row(k, 0); };

	if constexpr (T::FLOATS)
		float_segments_times<T, WIDE>(of_segment, x, segments, columns, parts);
	else
		fixed_segments_times<T, WIDE>(of_segment, x, segments, columns, parts);
}

template <class T, int N, bool WIDE, class Row, int M>
static __device__ __forceinline__ void
rows_times(const Row &row, const struct vectors &x, uint32_t count, uint32_t columns,
	   struct many_sums<N, M> &sums)
{
	auto of_one = [&](uint32_t n) { return row(0, n); };

	if constexpr (T::FLOATS)
		float_many_times<T, N, M, WIDE>(of_one, x, count, columns, sums);
	else
		fixed_many_times<T, N, M, WIDE>(of_one, x, count, columns, sums);
}

/* The same for a type known at run time only; the branches are the same for the whole warp.
 * `whole`: all rows lie at multiples of 16.  TURNS: turned types are read so then, for more code.
 */
template <int N, bool TURNS = false, class Row, class Sums>
static __device__ __forceinline__ void
any_rows_times(uint32_t type, bool whole, const Row &row, const struct vectors &x, uint32_t count,
	       uint32_t columns, Sums &sums)
{
	switch (type) {
#define ROWS_CASE(T)                                                           \
	case T::TYPE: {                                                        \
		constexpr bool WIDE = T::WHOLE && (TURNS || !T::TURNS);        \
		if (WIDE && whole)                                             \
			rows_times<T, N, WIDE>(row, x, count, columns, sums);  \
		else                                                           \
			rows_times<T, N, false>(row, x, count, columns, sums); \
		break;                                                         \
	}
		CUDA_TYPES(ROWS_CASE)
#undef ROWS_CASE
	}
}

#endif
