/* A warp's rows that lie side by side, N or, where the matrix ends, fewer: one piece, which the
 * copy engine brings (cuda_landing.cuh) past the loads of the block, so that these wait behind none
 * of it.  Rows that are too long come in slices, by the warp's lanes. */
#ifndef HEARTH_WORKER_CUDA_PIECE_CUH
#define HEARTH_WORKER_CUDA_PIECE_CUH

#include "worker/cuda_landing.cuh"
#include "worker/cuda_stage.cuh"

template <int N> struct warp_piece {
	const struct cuda_plan &plan;
	const uint8_t *first; /* row */
	struct staged_rows rows;
	uint32_t count; /* of rows, not 0; behind the last it is taken again */
	uint8_t *room;
	struct landing *landing; /* of this warp alone */

	__device__ __forceinline__ uint32_t
	row_at(uint32_t n) const
	{
		return min(n, count - 1) * rows.row_bytes;
	}

	/* As a whole. */
	__device__ __forceinline__ void
	ask(void) const
	{
		const struct landing_piece piece =
		    landing_piece_of(room, first, count * rows.row_bytes);

#if HAS_COPY_ENGINE
		if (threadIdx.x % 32 == 0) {
			landing_open(landing, 1);
			landing_opened();
		}
		__syncwarp();
		if (threadIdx.x % 32 == 0)
			engine_ask(landing, piece);
#else
		for (uint32_t i = 16 * (threadIdx.x % 32); i < piece.bytes; i += 512)
			copy16_weights(piece.to + i, piece.from + i);
#endif
	}

	__device__ __forceinline__ const uint8_t *
	slice_of(uint32_t n, uint32_t slice) const
	{
		return first + row_at(n) + slice * rows.slice_bytes;
	}

	__device__ __forceinline__ void
	ask_slice(uint32_t slice) const
	{
		uint32_t begin = slice * rows.slice_bytes;
		uint32_t bytes = min(rows.slice_bytes, rows.row_bytes - begin);

#pragma unroll
		for (int n = 0; n < N; n++) {
			const uint8_t *at = slice_of(n, slice);
			uint32_t skew = (uintptr_t)at & 15;

			for (uint32_t i = 16 * (threadIdx.x % 32); i < skew + bytes; i += 512)
				copy16_weights(room + n * plan.pitch + i, at - skew + i);
		}
	}

	/* By the whole warp, once. */
	__device__ __forceinline__ void
	stage(void) const
	{
		if (plan.landed)
			ask();
		else
			ask_slice(0);
	}

	__device__ __forceinline__ void
	wait(void) const
	{
		if (HAS_COPY_ENGINE && plan.landed) {
			engine_wait(landing, 0);
			return;
		}
		copies_wait();
		__syncwarp();
	}

	/* Adds a lane's share of the products; behind a barrier of the warp behind stage(). */
	__device__ __forceinline__ void
	times(const struct vectors &x, float (&sums)[N]) const
	{
		for (uint32_t slice = 0, column = 0;;) {
			const uint8_t *at[N];
			uint32_t odd = 0;

			wait();
#pragma unroll
			for (int n = 0; n < N; n++) {
				at[n] = plan.landed ? room + landing_place(first) + row_at(n)
						    : room + n * plan.pitch +
							  ((uintptr_t)slice_of(n, slice) & 15);
				odd |= (uint32_t)(uintptr_t)at[n] & 15;
			}
			any_rows_times<N>(
			    rows.type, odd == 0, [&](uint32_t, uint32_t n) { return at[n]; },
			    vectors{ x.fixed + fixed_block(column), x.floats + column,
				     x.fixed_stride, x.floats_stride },
			    1, min(plan.slice, plan.columns - column), sums);
			column += plan.slice;
			if (column >= plan.columns)
				return;
			__syncwarp();
			ask_slice(++slice);
		}
	}
};

#endif
