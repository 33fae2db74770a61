/* A block's shared memory: the vectors that are multiplied, and for each warp the rows it
 * multiplies them with.  A warp asks for its rows early (before them only for a norm's weights),
 * all at once where they fit, so that many bytes are on their way behind whatever the block waits
 * for; then the vectors come, and then each warp waits for its own rows alone.  Weights are read
 * where the tensor lies, 16 bytes of which some are its own at a time. */
#ifndef HEARTH_WORKER_CUDA_STAGE_CUH
#define HEARTH_WORKER_CUDA_STAGE_CUH

#include "worker/cuda_probe.cuh"
#include "worker/cuda_rows.cuh"

/* How it is laid out; made by cuda_plan_make, the same for all blocks.  Vectors in fixed point come
 * first. */
struct cuda_plan {
	uint32_t vectors, columns;
	uint32_t fixed, floats; /* do the types need it? 0 or 1 */
	uint32_t floats_at, rows_at, own_at;
	uint32_t buffers; /* rows of how many products are there at once */
	uint32_t buffer_bytes, warp_bytes;
	uint32_t pitch;   /* of a row, or the slice of it that is there at once */
	uint32_t slice;   /* columns: all, or whole turns of a warp */
	uint32_t at_once; /* segments that are there at once */
	uint32_t landed;  /* a warp's rows come as one piece (cuda_piece.cuh)? 0 or 1 */
	uint32_t bytes;
};

/* Rows of one tensor type. */
struct staged_rows {
	uint32_t type;
	uint32_t row_bytes, slice_bytes;
};

static __device__ __forceinline__ struct vectors
vectors_of(const struct cuda_plan &plan, const uint8_t *memory)
{
	return vectors{ memory, (const float *)(memory + plan.floats_at),
			(uint32_t)CUDA_FIXED_BYTES(plan.columns), (plan.columns + 3) / 4 * 4 };
}

/* A warp's products: N rows of a segment, or one of each of `segments`; from(k, n) each. */
template <int N, class From> struct warp_rows {
	From from;
	const struct cuda_plan &plan;
	uint8_t *room;
	struct staged_rows rows;
	uint32_t segments;
	uint32_t odd; /* of those staged last */

	/* At what is to be staged, or is. */
	__device__ __forceinline__ void
	look(uint32_t first, uint32_t slice)
	{
		uint32_t count = min(plan.at_once, segments - first);

		odd = slice * rows.slice_bytes & 15;
		for (uint32_t k = first; k < first + count; k++)
#pragma unroll
			for (int n = 0; n < N; n++)
				odd |= (uint32_t)(uintptr_t)from(k, n) & 15;
	}

	/* Asks for a slice of up to at_once segments from `first` on; from() NULL: not of that one.
	 */
	__device__ __forceinline__ void
	stage(uint32_t first, uint32_t slice)
	{
		uint32_t begin = slice * rows.slice_bytes;
		uint32_t bytes = min(rows.slice_bytes, rows.row_bytes - begin);
		uint32_t count = min(plan.at_once, segments - first);
		uint8_t *to = room;

		look(first, slice);
		for (uint32_t k = first; k < first + count; k++) {
#pragma unroll
			for (int n = 0; n < N; n++, to += plan.pitch) {
				const uint8_t *row = from(k, n), *at = row ? row + begin : NULL;
				uint32_t skew = (uintptr_t)at & 15;
				uint32_t end = row ? skew + bytes : 0;

				at -= skew;
				for (uint32_t i = 16 * (threadIdx.x % 32); i < end; i += 512)
					copy16_weights(to + i, at + i);
			}
		}
	}

	/* Adds the products of what is staged: of one segment with `count` vectors to a lane's
	 * sums, or of `count` segments from `first` on to their parts. */
	template <class Sums>
	__device__ __forceinline__ void
	times(uint32_t first, uint32_t slice, struct vectors x, uint32_t count, Sums &sums)
	{
		uint32_t begin = slice * rows.slice_bytes, column = slice * plan.slice;
		auto row = [&](uint32_t k, int n) {
			uint32_t skew = ((uintptr_t)from(first + k, n) + begin) & 15;

			return (const uint8_t *)room + (k * N + n) * plan.pitch + skew;
		};

		x.fixed += first * x.fixed_stride + fixed_block(column);
		x.floats += first * x.floats_stride + column;
		any_rows_times<N>(rows.type, odd == 0, row, x, count,
				  min(plan.slice, plan.columns - column), sums);
	}

	/* A lane's share of a segment's products with `count` vectors, the first slice being
	 * staged.
	 */
	template <class Sums>
	__device__ __forceinline__ void
	all_times(const struct vectors &x, uint32_t count, Sums &sums)
	{
		uint32_t slices = (plan.columns + plan.slice - 1) / plan.slice, slice = 0;

		for (;;) {
			copies_wait();
			__syncwarp();
			times(0, slice, x, count, sums);
			if (++slice == slices)
				return;
			__syncwarp();
			stage(0, slice);
		}
	}

	__device__ __forceinline__ void
	all_times(const struct vectors &x, float (&sums)[N])
	{
		all_times(x, 1, sums);
	}

	/* Of all segments, to parts that are 0 yet. */
	__device__ __forceinline__ void
	segments_times(const struct vectors &x, struct segment_parts parts)
	{
		uint32_t slices = (plan.columns + plan.slice - 1) / plan.slice;
		uint32_t first = 0, slice = 0;

		for (;;) {
			struct segment_parts at = parts.from(first);

			copies_wait();
			__syncwarp();
			times(first, slice, x, min(plan.at_once, segments - first), at);
			__syncwarp();
			if (++slice == slices) {
				slice = 0;
				first += plan.at_once;
			}
			if (first >= segments)
				return;
			stage(first, slice);
		}
	}
};

/* The sum over the warp of each of N values, a power of two, added in the order of warp_sum: value
 * n's in the 32 / N lanes from 32 / N * n on. */
template <int STEP = 16, int N>
static __device__ __forceinline__ float
warp_sums(const float (&values)[N])
{
	if constexpr (N == 1) {
		float mine = values[0];

#pragma unroll
		for (int step = STEP; step > 0; step /= 2)
			mine += __shfl_xor_sync(0xffffffffu, mine, step);
		return mine;
	} else {
		bool upper = threadIdx.x & STEP;
		float half[N / 2];

#pragma unroll
		for (int i = 0; i < N / 2; i++) {
			float other = upper ? values[i] : values[N / 2 + i];

			half[i] = (upper ? values[N / 2 + i] : values[i]) +
				  __shfl_xor_sync(0xffffffffu, other, STEP);
		}
		return warp_sums<STEP / 2>(half);
	}
}

/* -- vectors -- */

#define LOADS_AHEAD 2u /* loads of a thread under way at once, or twice as many */

/* The columns from `column` on, zeros behind the last; rows are whole 16 bytes.  Past the first
 * cache, which may hold what lay there before this kernel was let begin. */
static __device__ __forceinline__ float4
four_columns(const float *row, uint32_t column, uint32_t columns)
{
	float4 v = make_float4(0, 0, 0, 0);

	if (column < columns)
		v = __ldcg((const float4 *)(row + column));
	v.y = column + 1 < columns ? v.y : 0;
	v.z = column + 2 < columns ? v.z : 0;
	v.w = column + 3 < columns ? v.w : 0;
	return v;
}

/* Asks for a norm's weights, for row_norm: before what is not wanted as soon.  `x` is shared memory
 * for (columns) floats. */
static __device__ __forceinline__ void
norm_ask(const struct cuda_norm &norm, uint32_t columns, float *x)
{
	uint32_t step = 4 * blockDim.x;
	bool whole = columns % 4 == 0 && (uintptr_t)norm.weight % 16 == 0;

	for (uint32_t column = 4 * threadIdx.x; column < columns; column += step) {
		if (whole)
			copy16_weights(x + column, norm.weight + column);
		else
			for (uint32_t i = column; i < column + 4; i++)
				x[i] = i < columns ? norm.weight[i] : 0;
	}
	copies_end_group();
}

/* A thread's columns of a row times what lies in x, there; returns the sum of their squares. */
template <uint32_t WARPS>
static __device__ __forceinline__ float
norm_squares(const float *from, uint32_t columns, float *x)
{
	constexpr uint32_t step = 128 * WARPS;
	float squares = 0;

	for (uint32_t column = 4 * threadIdx.x; column < columns; column += LOADS_AHEAD * step) {
		float4 v[LOADS_AHEAD];

#pragma unroll
		for (uint32_t i = 0; i < LOADS_AHEAD; i++)
			v[i] = four_columns(from, column + i * step, columns);
		copies_wait_but<0>();
#pragma unroll
		for (uint32_t i = 0; i < LOADS_AHEAD; i++) {
			float4 *at = (float4 *)(x + column + i * step);

			squares = fmaf(v[i].x, v[i].x, squares);
			squares = fmaf(v[i].y, v[i].y, squares);
			squares = fmaf(v[i].z, v[i].z, squares);
			squares = fmaf(v[i].w, v[i].w, squares);
			if (column + i * step < columns)
				*at = make_float4(v[i].x * at->x, v[i].y * at->y, v[i].z * at->z,
						  v[i].w * at->w);
		}
	}
	return squares;
}

/* RMS norm of a row by the whole block, to `fixed` and `floats` (NULL: not wanted); `x` has what
 * norm_ask asked for, `room` is shared memory for a float a warp.  Also waits for the kernel
 * before, and for no copies that are in no group. */
template <uint32_t WARPS>
static __device__ __forceinline__ void
row_norm(const float *from, const struct cuda_norm &norm, uint32_t columns, float *x, float *room,
	 uint8_t *fixed, float *floats)
{
	uint32_t begin = threadIdx.x / 32 * 128, lane = threadIdx.x % 32;
	constexpr uint32_t step = 128 * WARPS;
	float squares, scale;

	previous_done();
	PROBE(PROBE_WAITED);
	squares = warp_sum(norm_squares<WARPS>(from, columns, x));
	if (lane == 0)
		room[threadIdx.x / 32] = squares;
	__syncthreads();
	squares = 0;
#pragma unroll
	for (uint32_t i = 0; i < WARPS; i++)
		squares += room[i];
	scale = 1.0f / sqrtf(squares / (float)columns + norm.epsilon);
	for (; begin < columns; begin += step) {
		uint32_t column = begin + 4 * lane;
		float4 v = column < columns ? *(float4 *)(x + column) : make_float4(0, 0, 0, 0);

		v = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
		if (fixed)
			fixed_store(fixed, column, v, column < columns);
		if (floats && column < columns)
			*(float4 *)(floats + column) = v;
	}
}

/* Whole 16 bytes into shared memory by the block, several loads of a thread under way at once. */
static __device__ __forceinline__ void
load_bytes(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	uint32_t step = 16 * blockDim.x;

	for (uint32_t at = 16 * threadIdx.x; at < bytes; at += 2 * LOADS_AHEAD * step) {
		uint4 v[2 * LOADS_AHEAD];

#pragma unroll
		for (uint32_t i = 0; i < 2 * LOADS_AHEAD; i++)
			if (at + i * step < bytes)
				v[i] = __ldcg((const uint4 *)(from + at + i * step));
#pragma unroll
		for (uint32_t i = 0; i < 2 * LOADS_AHEAD; i++)
			if (at + i * step < bytes)
				*(uint4 *)(to + at + i * step) = v[i];
	}
}

/* n rows of `bytes` each, at once where they lie so. */
static __device__ __forceinline__ void
load_rows(uint8_t *to, const uint8_t *from, uint64_t stride, uint32_t bytes, uint32_t n)
{
	if (stride == bytes)
		load_bytes(to, from, n * bytes);
	else
		for (uint32_t i = 0; i < n; i++)
			load_bytes(to + i * bytes, from + i * stride, bytes);
}

/* Vectors as they lie in device memory, from row `first` on.  Then a barrier of the block. */
static __device__ __forceinline__ void
vectors_load(const struct cuda_plan &plan, uint8_t *memory, const struct cuda_vectors &from,
	     uint64_t first)
{
	if (plan.fixed)
		load_rows(memory, from.fixed.at + first * from.fixed.stride, from.fixed.stride,
			  CUDA_FIXED_BYTES(plan.columns), plan.vectors);
	if (plan.floats)
		load_rows(memory + plan.floats_at,
			  (const uint8_t *)(from.rows.at + first * from.rows.stride),
			  4ull * from.rows.stride, (plan.columns + 3) / 4 * 16, plan.vectors);
	__syncthreads();
}

static __device__ __forceinline__ void
copy_row(uint8_t *to, const uint8_t *from, uint32_t bytes)
{
	for (uint32_t i = 16 * threadIdx.x; i < bytes; i += 16 * blockDim.x)
		copy16(to + i, from + i);
}

/* `count` vectors, up to M, of which lane m of each warp has the m-th's row.  Then a barrier of the
 * block. */
template <int M>
static __device__ __forceinline__ void
vectors_gather(const struct cuda_plan &plan, uint8_t *memory, const struct cuda_vectors &from,
	       uint32_t rows, uint32_t count)
{
	uint32_t bytes = CUDA_FIXED_BYTES(plan.columns), floats = (plan.columns + 3) / 4 * 16;

#pragma unroll
	for (uint32_t m = 0; m < M; m++) {
		uint64_t row = __shfl_sync(0xffffffffu, rows, m);

		if (m >= count)
			break;
		if (plan.fixed)
			copy_row(memory + m * bytes, from.fixed.at + row * from.fixed.stride,
				 bytes);
		if (plan.floats)
			copy_row(memory + plan.floats_at + m * floats,
				 (const uint8_t *)(from.rows.at + row * from.rows.stride), floats);
	}
	copies_wait();
	__syncthreads();
}

#endif
