/* Rows of any tensor type, unpacked. */
#ifndef HEARTH_WORKER_CUDA_UNPACK_CUH
#define HEARTH_WORKER_CUDA_UNPACK_CUH

#include "worker/cuda_types.cuh"

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
