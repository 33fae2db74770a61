/* Rows of any tensor type: times a vector by a warp, and unpacked. */
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

/* Vectors in shared memory, one behind the other, in the forms that a launch needs. */
struct vectors {
	const uint8_t *fixed;
	const float *floats;
	uint32_t fixed_stride, floats_stride;
};

/* A lane's part of a vector in fixed point: where it lies in a block, and what is there. */
struct fixed_part {
	uint32_t run[2], unit, sum;
};

template <class T>
static __device__ __forceinline__ struct fixed_part
fixed_part_of(uint32_t part)
{
	uint32_t column = T::place(part);

	return fixed_part{ { fixed_place(column), fixed_place(column + T::SECOND) },
			   FIXED_UNITS + column / 32 * 4,
			   FIXED_SUMS + column / 16 * 4 };
}

struct fixed_columns {
	uint4 low[2], high[2];
	float unit[2], sum[2]; /* sum: of the columns, with the unit */
	int32_t start[2];      /* what the weights' bias makes of them */
};

template <class T>
static __device__ __forceinline__ void
fixed_load(const uint8_t *block, const struct fixed_part &part, struct fixed_columns *to)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const uint8_t *run = block + part.run[r];
		int32_t sum = *(const int32_t *)(block + part.sum + r * T::SECOND / 16 * 4);

		to->low[r] = *(const uint4 *)run;
		to->high[r] = *(const uint4 *)(run + FIXED_HIGH);
		to->unit[r] = *(const float *)(block + part.unit + r * T::SECOND / 32 * 4);
		to->sum[r] = to->unit[r] * (float)sum;
		to->start[r] = -T::BIAS * T::TIMES * sum;
		if (r == 1)
			to->unit[r] *= 1.0f / T::TIMES;
	}
}

template <class T, bool WIDE>
static __device__ __forceinline__ float
fixed_times(const uint8_t *length, const typename T::lane &lane, const struct fixed_columns &x,
	    float sum)
{
	struct quants q;
	float times[2];

	T::template unpack<WIDE>(length, lane, q);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		int32_t low = x.start[r], high = 0;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			low = dot4(q.bytes[r][i], word_of(x.low[r], i), low);
			high = dot4(q.bytes[r][i], word_of(x.high[r], i), high);
		}
		times[r] =
		    (float)(256 * high + low) * (T::SCALES ? q.scale[r] * x.unit[r] : x.unit[r]);
	}
	sum = fmaf(q.d, times[0] + times[1], sum);
	if constexpr (T::MINIMA)
		sum = fmaf(-q.dmin, fmaf(q.minimum[1], x.sum[1], q.minimum[0] * x.sum[0]), sum);
	return sum;
}

/* Adds to a lane's sums its share of N products over `segments` segments, each a row of `columns`
 * for each product and a vector: the whole warp's sums are the products.  row(k, n) is where
 * product n's row of segment k lies.  The order of a product's additions depends on type and shape
 * alone, not on N.  MANY: there may be more than one segment. */
template <class T, int N, bool WIDE, bool MANY, class Row>
static __device__ __forceinline__ void
fixed_rows_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
		 float (&sums)[N])
{
	uint32_t part = threadIdx.x % 8, block = threadIdx.x % 32 / 8, segment = 0;
	uint32_t blocks = (columns + CUDA_FIXED_BLOCK - 1) / CUDA_FIXED_BLOCK;
	const struct fixed_part place = fixed_part_of<T>(part);
	const typename T::lane lane = T::lane_of(part);

#pragma unroll 1
	for (;; block += 4) {
		struct fixed_columns v;

		for (; MANY && block >= blocks && segment < segments; segment++)
			block -= blocks;
		if (MANY ? segment == segments : block >= blocks)
			break;
		if (T::BLOCK < CUDA_FIXED_BLOCK && 8 * block + part >= columns / T::BLOCK)
			continue;
		fixed_load<T>(x.fixed + segment * x.fixed_stride + block * CUDA_FIXED_BLOCK_BYTES,
			      place, &v);
#pragma unroll
		for (int n = 0; n < N; n++)
			sums[n] = fixed_times<T, WIDE>(row(segment, n) + block * T::LENGTH, lane, v,
						       sums[n]);
	}
}

/* The same of types of floats. */
template <class T, int N, bool WIDE, class Row>
static __device__ __forceinline__ void
float_rows_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
		 float (&sums)[N])
{
	uint32_t pieces = columns / T::PIECE, loose = pieces * T::PIECE + threadIdx.x % 32;

#pragma unroll 1
	for (uint32_t segment = 0; segment < segments; segment++) {
		const float *v = x.floats + segment * x.floats_stride;

#pragma unroll 1
		for (uint32_t piece = threadIdx.x % 32; piece < pieces; piece += 32) {
#pragma unroll
			for (int n = 0; n < N; n++) {
				float w[T::PIECE], sum = 0;

				T::template unpack<WIDE>(row(segment, n), piece, w);
#pragma unroll
				for (int i = 0; i < T::PIECE; i++)
					sum = fmaf(w[i], v[piece * T::PIECE + i], sum);
				sums[n] += sum;
			}
		}
#pragma unroll
		for (int n = 0; n < N; n++)
			if (loose < columns)
				sums[n] = fmaf(T::one(row(segment, n), loose), v[loose], sums[n]);
	}
}

template <class T, int N, bool WIDE, bool MANY, class Row>
static __device__ __forceinline__ void
rows_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
	   float (&sums)[N])
{
	if constexpr (T::FLOATS)
		float_rows_times<T, N, WIDE>(row, x, segments, columns, sums);
	else
		fixed_rows_times<T, N, WIDE, MANY>(row, x, segments, columns, sums);
}

/* The same for a type known at run time only; the branches are the same for the whole warp.
 * `whole`: all rows lie at multiples of 16. */
template <int N, bool MANY, class Row>
static __device__ __forceinline__ void
any_rows_times(uint32_t type, bool whole, const Row &row, const struct vectors &x,
	       uint32_t segments, uint32_t columns, float (&sums)[N])
{
	switch (type) {
#define ROWS_CASE(T)                                                                            \
	case T::TYPE:                                                                           \
		if (T::WHOLE && whole)                                                          \
			rows_times<T, N, T::WHOLE != 0, MANY>(row, x, segments, columns, sums); \
		else                                                                            \
			rows_times<T, N, false, MANY>(row, x, segments, columns, sums);         \
		break;
		CUDA_TYPES(ROWS_CASE)
#undef ROWS_CASE
	}
}

template <class T>
static __device__ __forceinline__ float
quant_element(const struct quants &q, uint32_t run, uint32_t i)
{
	int32_t byte = (int32_t)(q.bytes[run][i / 4] >> i % 4 * 8 & 255);
	float value = q.d * (float)(byte / (run == 1 ? T::TIMES : 1) - T::BIAS);

	if constexpr (T::SCALES)
		value *= q.scale[run];
	if constexpr (T::MINIMA)
		value -= q.dmin * q.minimum[run];
	return value;
}

/* A row's elements to out, by `threads` threads of which this is `thread`. */
template <class T>
static __device__ void
row_unpack(const uint8_t *row, float *out, uint32_t columns, uint32_t thread, uint32_t threads)
{
	if constexpr (T::FLOATS) {
		uint32_t pieces = columns / T::PIECE;

		for (uint32_t piece = thread; piece < pieces; piece += threads)
			T::template unpack<false>(row, piece, out + piece * T::PIECE);
		for (uint32_t i = pieces * T::PIECE + thread; i < columns; i += threads)
			out[i] = T::one(row, i);
	} else {
		for (uint32_t piece = thread; piece < columns / 32; piece += threads) {
			uint32_t length = piece / 8, part = piece % 8;
			struct quants q;

			T::template unpack<false>(row + length * T::LENGTH, T::lane_of(part), q);
			for (uint32_t i = 0; i < 32; i++)
				out[256 * length + T::place(part) + i / 16 * T::SECOND + i % 16] =
				    quant_element<T>(q, i / 16, i % 16);
		}
	}
}

#endif
