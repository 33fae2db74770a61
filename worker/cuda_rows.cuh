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

/* A piece of a vector. */
struct fixed_piece {
	uint4 low[2], high[2];
	float unit[2];
	int32_t sum[2];
};

template <class T>
static __device__ __forceinline__ void
fixed_piece_load(const uint8_t *vector, uint32_t piece, struct fixed_piece *to)
{
	uint32_t column = T::place(piece), in = column % CUDA_FIXED_BLOCK;
	const uint8_t *block = vector + fixed_block(column);

#pragma unroll
	for (int r = 0; r < 2; r++, in += T::SECOND) {
		const uint8_t *run = block + fixed_place(in);

		to->low[r] = *(const uint4 *)run;
		to->high[r] = *(const uint4 *)(run + FIXED_HIGH);
		to->unit[r] = *(const float *)(block + FIXED_UNITS + in / 32 * 4);
		to->sum[r] = *(const int32_t *)(block + FIXED_SUMS + in / 16 * 4);
	}
}

template <class T, bool WIDE>
static __device__ __forceinline__ float
fixed_piece_times(const uint8_t *row, uint32_t piece, const struct fixed_piece &x, float sum)
{
	struct quants q;

	T::template unpack<WIDE>(row, piece, q);
#pragma unroll
	for (int r = 0; r < 2; r++) {
		int32_t low = 0, high = 0;
		float times;

#pragma unroll
		for (int i = 0; i < 4; i++) {
			low = dot4(q.bytes[r][i], word_of(x.low[r], i), low);
			high = dot4(q.bytes[r][i], word_of(x.high[r], i), high);
		}
		if constexpr (T::BIAS != 0)
			low -= T::BIAS * x.sum[r];
		times = q.scale[r] * (float)(256 * high + low);
		if constexpr (T::MINIMA)
			times -= q.minimum[r] * (float)x.sum[r];
		sum = fmaf(x.unit[r], times, sum);
	}
	return sum;
}

/* Vectors in shared memory, one behind the other, in the forms that a launch needs. */
struct vectors {
	const uint8_t *fixed;
	const float *floats;
	uint32_t fixed_stride, floats_stride;
};

template <class T, int N, bool WIDE>
static __device__ __forceinline__ void
piece_times(const uint8_t *const (&rows)[N], uint32_t piece, const struct vectors &x,
	    uint32_t segment, float (&sums)[N])
{
	if constexpr (T::FLOATS) {
		const float *v = x.floats + segment * x.floats_stride + piece * T::PIECE;
#pragma unroll
		for (int n = 0; n < N; n++) {
			float w[T::PIECE], sum = 0;

			T::template unpack<WIDE>(rows[n], piece, w);
#pragma unroll
			for (int i = 0; i < T::PIECE; i++)
				sum = fmaf(w[i], v[i], sum);
			sums[n] += sum;
		}
	} else {
		struct fixed_piece v;

		fixed_piece_load<T>(x.fixed + segment * x.fixed_stride, piece, &v);
#pragma unroll
		for (int n = 0; n < N; n++)
			sums[n] = fixed_piece_times<T, WIDE>(rows[n], piece, v, sums[n]);
	}
}

/* Adds to a lane's sums its share of N products over `segments` segments, each a row of `columns`
 * for each product and a vector: the whole warp's sums are the products.  row(k, n) is where
 * product n's row of segment k lies.  The order of a product's additions depends on type and shape
 * alone, not on N. */
template <class T, int N, bool WIDE, class Row>
static __device__ __forceinline__ void
rows_times(const Row &row, const struct vectors &x, uint32_t segments, uint32_t columns,
	   float (&sums)[N])
{
	uint32_t pieces = columns / T::PIECE, segment = 0, piece = threadIdx.x % 32;

	for (;;) {
		const uint8_t *rows[N];

		for (; piece >= pieces && segment < segments; segment++)
			piece -= pieces;
		if (segment == segments)
			break;
#pragma unroll
		for (int n = 0; n < N; n++)
			rows[n] = row(segment, n);
		piece_times<T, N, WIDE>(rows, piece, x, segment, sums);
		piece += 32;
	}
	if constexpr (T::FLOATS) {
		uint32_t i = pieces * T::PIECE + threadIdx.x % 32;

		for (segment = 0; i < columns && segment < segments; segment++)
			for (int n = 0; n < N; n++)
				sums[n] = fmaf(T::one(row(segment, n), i),
					       x.floats[segment * x.floats_stride + i], sums[n]);
	}
}

/* The same for a type known at run time only; the branches are the same for the whole warp.
 * `whole`: all rows lie at multiples of 16. */
template <int N, class Row>
static __device__ __forceinline__ void
any_rows_times(uint32_t type, bool whole, const Row &row, const struct vectors &x,
	       uint32_t segments, uint32_t columns, float (&sums)[N])
{
	switch (type) {
#define ROWS_CASE(T)                                                                      \
	case T::TYPE:                                                                     \
		if (T::WHOLE && whole)                                                    \
			rows_times<T, N, T::WHOLE != 0>(row, x, segments, columns, sums); \
		else                                                                      \
			rows_times<T, N, false>(row, x, segments, columns, sums);         \
		break;
		CUDA_TYPES(ROWS_CASE)
#undef ROWS_CASE
	}
}

/* A row's elements to out, by `threads` threads of which this is `thread`. */
template <class T>
static __device__ void
row_unpack(const uint8_t *row, float *out, uint32_t columns, uint32_t thread, uint32_t threads)
{
	uint32_t pieces = columns / T::PIECE;

	for (uint32_t piece = thread; piece < pieces; piece += threads) {
		if constexpr (T::FLOATS) {
			T::template unpack<false>(row, piece, out + piece * T::PIECE);
		} else {
			struct quants q;

			T::template unpack<false>(row, piece, q);
			for (uint32_t i = 0; i < 32; i++) {
				uint32_t run = i / 16,
					 byte = q.bytes[run][i % 16 / 4] >> i % 4 * 8 & 255;

				out[T::place(piece) + run * T::SECOND + i % 16] =
				    q.scale[run] * (float)((int32_t)byte - T::BIAS) -
				    (T::MINIMA ? q.minimum[run] : 0);
			}
		}
	}
	if constexpr (T::FLOATS) {
		for (uint32_t i = pieces * T::PIECE + thread; i < columns; i += threads)
			out[i] = T::one(row, i);
	}
}

#endif
