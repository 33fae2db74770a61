/* Up to three matrices side by side, cut into units of N rows of one of them, the last one's maybe
 * fewer: what a warp multiplies at once. */
#ifndef HEARTH_WORKER_CUDA_UNITS_CUH
#define HEARTH_WORKER_CUDA_UNITS_CUH

#include "worker/cuda_stage.cuh"

static __host__ __device__ __forceinline__ uint32_t
units_of(uint32_t rows, uint32_t at_once)
{
	return (rows + at_once - 1) / at_once;
}

/* What a warp multiplies. */
struct unit {
	const uint8_t *first; /* row */
	struct staged_rows staged;
	uint32_t rows;   /* 0: nothing */
	uint32_t output; /* the first row's */
};

template <int N>
static __device__ __forceinline__ struct unit
unit_of(const struct cuda_matrices &m, const struct staged_rows (&staged_as)[3], uint32_t unit)
{
	struct cuda_matrix matrix = m.of[0];
	struct staged_rows staged = staged_as[0];
	uint32_t output = 0, rows;

	/* By constant indices: a computed one would move the parameters to local memory. */
#pragma unroll
	for (uint32_t i = 1; i < 3; i++) {
		if (i < m.n && unit >= units_of(matrix.rows, N)) {
			unit -= units_of(matrix.rows, N);
			output += matrix.rows;
			matrix = m.of[i];
			staged = staged_as[i];
		}
	}
	rows = unit < units_of(matrix.rows, N) ? min(matrix.rows - N * unit, (uint32_t)N) : 0;
	return { (const uint8_t *)matrix.at + (uint64_t)N * unit * staged.row_bytes, staged, rows,
		 output + N * unit };
}

#endif
