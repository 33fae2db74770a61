/* Rows of any tensor type: times a vector by a warp, and unpacked. */
#ifndef HEARTH_WORKER_CUDA_ROWS_CUH
#define HEARTH_WORKER_CUDA_ROWS_CUH

#include "worker/cuda_types.cuh"

/* Where element i of a piece lies in its row, counted from place(piece). */
template <class T>
static __device__ __forceinline__ constexpr int
piece_element(int i)
{
	return i % T::RUN + i / T::RUN * T::SECOND;
}

static __device__ __forceinline__ float
warp_sum(float value)
{
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		value += __shfl_xor_sync(0xffffffffu, value, step);
	return value;
}

/* N rows of one type times x, by a whole warp; every lane gets the sums.  The order of a row's
 * additions depends on type and columns alone, not on N.  x is 16-byte aligned. */
template <class T, int N>
static __device__ __forceinline__ void
rows_times(const uint8_t *const (&rows)[N], const float *x, uint32_t columns, uint32_t lane,
	   float (&sums)[N])
{
	float4 sum[N] = {};
	uint32_t pieces = columns / T::PIECE;

	/* Not unrolled: more warps at once are worth more (decode step on an H200: 5.2 ms, by two
	 * pieces 5.5). */
#pragma unroll 1
	for (uint32_t piece = lane; piece < pieces; piece += 32) {
		const float *at = x + T::place(piece);
		float w[N][T::PIECE];
#pragma unroll
		for (int n = 0; n < N; n++)
			T::unpack(rows[n], piece, w[n]);
#pragma unroll
		for (int i = 0; i < T::PIECE; i += 4) {
			float4 v = *(const float4 *)(at + piece_element<T>(i));
#pragma unroll
			for (int n = 0; n < N; n++) {
				sum[n].x = fmaf(w[n][i], v.x, sum[n].x);
				sum[n].y = fmaf(w[n][i + 1], v.y, sum[n].y);
				sum[n].z = fmaf(w[n][i + 2], v.z, sum[n].z);
				sum[n].w = fmaf(w[n][i + 3], v.w, sum[n].w);
			}
		}
	}
#pragma unroll
	for (int n = 0; n < N; n++) {
		if constexpr (T::LOOSE) {
			uint32_t i = pieces * T::PIECE + lane;

			if (i < columns)
				sum[n].x = fmaf(T::one(rows[n], i), x[i], sum[n].x);
		}
		sums[n] = warp_sum((sum[n].x + sum[n].y) + (sum[n].z + sum[n].w));
	}
}

/* The same for a type known at run time only; the branch is the same for the whole warp. */
template <int N>
static __device__ __forceinline__ void
any_rows_times(uint32_t type, const uint8_t *const (&rows)[N], const float *x, uint32_t columns,
	       uint32_t lane, float (&sums)[N])
{
	switch (type) {
#define ROWS_CASE(T)                                            \
	case T::TYPE:                                           \
		rows_times<T, N>(rows, x, columns, lane, sums); \
		break;
		CUDA_TYPES(ROWS_CASE)
#undef ROWS_CASE
	}
}

static __device__ __forceinline__ float
any_row_times(uint32_t type, const uint8_t *row, const float *x, uint32_t columns, uint32_t lane)
{
	const uint8_t *const rows[1] = { row };
	float sums[1] = { 0 };

	any_rows_times<1>(type, rows, x, columns, lane, sums);
	return sums[0];
}

/* A row's elements to out, by `threads` threads of which this is `thread`. */
template <class T>
static __device__ void
row_unpack(const uint8_t *row, float *out, uint32_t columns, uint32_t thread, uint32_t threads)
{
	uint32_t pieces = columns / T::PIECE;

	for (uint32_t piece = thread; piece < pieces; piece += threads) {
		float w[T::PIECE];

		T::unpack(row, piece, w);
#pragma unroll
		for (int i = 0; i < T::PIECE; i++)
			out[T::place(piece) + piece_element<T>(i)] = w[i];
	}
	if constexpr (T::LOOSE) {
		for (uint32_t i = pieces * T::PIECE + thread; i < columns; i += threads)
			out[i] = T::one(row, i);
	}
}

#endif
