/* Up to three matrices side by side, cut into units: N rows of one matrix, the last one's maybe
 * fewer.  A warp multiplies a unit; a block's units that follow one another come into its shared
 * memory together, a matrix's rows as one piece. */
#ifndef HEARTH_WORKER_CUDA_UNITS_CUH
#define HEARTH_WORKER_CUDA_UNITS_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_landing.cuh"

static __host__ __device__ __forceinline__ uint32_t
units_of(uint32_t rows, uint32_t n)
{
	return (rows + n - 1) / n;
}

struct unit {
	const uint8_t *row; /* the first */
	uint32_t row_bytes, type;
	uint32_t rows;   /* 0: there is no such unit */
	uint32_t output; /* the first row's */
};

/* Rows of a matrix of which units begin..end - 1 are asked for; `before`: units before it. */
struct piece {
	uint32_t first, rows;
};

template <int N>
static __device__ __forceinline__ struct piece
piece_of(const struct cuda_matrix &matrix, uint32_t before, uint32_t begin, uint32_t end)
{
	uint32_t first = min(begin > before ? N * (begin - before) : 0, matrix.rows);
	uint32_t last = min(end > before ? N * (end - before) : 0, matrix.rows);

	return piece{ first, last - first };
}

static __device__ __forceinline__ const uint8_t *
row_at(const struct cuda_matrix &matrix, uint32_t row)
{
	return (const uint8_t *)matrix.at + row * matrix.row_bytes;
}

/* A unit where it lies; STAGED: in `room`, with units begin..end - 1. */
template <int N, bool STAGED>
static __device__ __forceinline__ struct unit
unit_of(const struct cuda_matrices &m, uint32_t unit, uint32_t begin, uint32_t end,
	const uint8_t *room)
{
	uint32_t before = 0, output = 0;
	struct unit ret = {};

	/* By constant indices: a computed one would move the parameters to local memory. */
#pragma unroll
	for (uint32_t i = 0; i < 3; i++) {
		const struct cuda_matrix &matrix = m.of[i];
		uint32_t units = units_of(matrix.rows, N), row = N * (unit - before);

		if (i >= m.n)
			break;
		if (unit >= before && unit - before < units)
			ret = { row_at(matrix, row), (uint32_t)matrix.row_bytes, matrix.type,
				min(matrix.rows - row, (uint32_t)N), output + row };
		if constexpr (STAGED) {
			struct piece piece = piece_of<N>(matrix, before, begin, end);
			uint32_t place = landing_place(row_at(matrix, piece.first));

			if (unit >= before && unit - before < units)
				ret.row = room + place + (row - piece.first) * ret.row_bytes;
			room += LANDING_ROOM(piece.rows * (uint32_t)matrix.row_bytes);
		}
		before += units;
		output += matrix.rows;
	}
	return ret;
}

/* Units begin..end - 1 to `room`: a set of m.n pieces. */
template <int N>
static __device__ __forceinline__ void
units_ask(struct landing *landing, const struct cuda_matrices &m, uint32_t begin, uint32_t end,
	  uint8_t *room)
{
	uint32_t before = 0;

#pragma unroll
	for (uint32_t i = 0; i < 3; i++) {
		const struct cuda_matrix &matrix = m.of[i];

		if (i >= m.n)
			break;
		struct piece piece = piece_of<N>(matrix, before, begin, end);
		uint32_t bytes = piece.rows * (uint32_t)matrix.row_bytes;

		if (landing_first() == i || landing_step() == 1)
			landing_ask(landing, room, row_at(matrix, piece.first), bytes);
		room += LANDING_ROOM(bytes);
		before += units_of(matrix.rows, N);
	}
}

#endif
