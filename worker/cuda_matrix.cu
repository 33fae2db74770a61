/* The embedding's rows, norms, and products of the trunk's matrices: a warp multiplies one or two
 * rows, whichever number fills the device better, or, of many rows, one piece of them after another
 * (cuda_tall.cu). */
#include "worker/cuda_kernels.h"
#include "worker/cuda_many.cuh"
#include "worker/cuda_piece.cuh"
#include "worker/cuda_plan.cuh"
#include "worker/cuda_tall.cuh"
#include "worker/cuda_units.cuh"
#include "worker/cuda_unpack.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define TWO_FROM 4096u /* rows: a warp takes two at a time */

extern "C" bool
cuda_type_known(uint32_t type)
{
	switch (type) {
#define KNOWN_CASE(T) case T::TYPE:
		CUDA_TYPES(KNOWN_CASE)
#undef KNOWN_CASE
		return true;
	}
	return false;
}

static __global__ void
embed_kernel(struct cuda_matrix embedding, uint32_t columns, const struct cuda_input *in,
	     struct cuda_rows to PROBE_PARAM)
{
	float *out = to.at + (uint64_t)blockIdx.x * to.stride;
	const uint8_t *row;

	PROBE_BEGIN();
	previous_done();
	row = (const uint8_t *)embedding.at +
	      (uint64_t)__ldcg(&in->ids[blockIdx.x]) * embedding.row_bytes;
	switch (embedding.type) {
#define EMBED_CASE(T)                                                      \
	case T::TYPE:                                                      \
		row_unpack<T>(row, out, columns, threadIdx.x, blockDim.x); \
		break;
		CUDA_TYPES(EMBED_CASE)
#undef EMBED_CASE
	}
	PROBE_END();
}

extern "C" int
cuda_embed(void *stream, const struct cuda_matrix *embedding, uint32_t columns,
	   const struct cuda_input *in, struct cuda_rows to, uint32_t tokens, struct error *err)
{
	/* Never early: what comes behind reads the input before its own wait. */
	return cuda_launch_behind(true, "embed_kernel", embed_kernel, tokens, 128, 0, stream, err,
				  *embedding, columns, in, to);
}

static __global__ void
__launch_bounds__(THREADS) norm_kernel(struct cuda_rows from, struct cuda_norm norm,
				       uint32_t columns, struct cuda_vectors to PROBE_PARAM)
{
	CUDA_SHARED(float, norm_memory); /* columns, rounded up to 4, and WARPS */
	uint64_t token = blockIdx.x;

	PROBE_BEGIN();
	let_next_begin();
	norm_ask(norm, columns, norm_memory);
	row_norm<WARPS>(from.at + token * from.stride, norm, columns, norm_memory,
			norm_memory + (columns + 3) / 4 * 4, to.fixed.at + token * to.fixed.stride,
			to.rows.at + token * to.rows.stride);
	PROBE_END();
}

extern "C" int
cuda_normed(void *stream, struct cuda_rows from, const struct cuda_norm *norm, uint32_t columns,
	    struct cuda_vectors to, uint32_t tokens, struct error *err)
{
	return cuda_launch("norm_kernel", norm_kernel, tokens, THREADS,
			   ((columns + 3) / 4 * 4 + WARPS) * sizeof(float), stream, err, from,
			   *norm, columns, to);
}

struct multiply {
	struct cuda_matrices m;
	struct staged_rows rows[3];
	struct cuda_plan plan;
	struct cuda_vectors from; /* with a norm: of rows only */
	struct cuda_norm norm;
	struct cuda_rows to;
	bool add;
};

/* A block's own memory. */
struct multiply_own {
	float room[WARPS];
	struct landing landings[WARPS];
};

template <int N>
static __device__ __forceinline__ struct warp_piece<N>
piece_of(const struct multiply &p, const struct unit &unit, uint8_t *memory,
	 struct multiply_own *own) {
	uint32_t warp = threadIdx.x / 32;

	return { p.plan,
		 unit.first,
		 unit.staged,
		 unit.rows,
		 memory + p.plan.rows_at + warp *p.plan.warp_bytes,
		 own->landings + warp };
}

/* The token's vector to shared memory.  Of `out` the next kernel begins when it is there, for what
 * that asks for would be in its way. */
template <bool NORM>
static __device__ __forceinline__ void
vector_take(const struct multiply &p, uint8_t *memory, struct multiply_own *own, float *x,
	    uint64_t token)
{
	if constexpr (NORM) {
		let_next_begin();
		row_norm<WARPS>(p.from.rows.at + token * p.from.rows.stride, p.norm, p.m.columns, x,
				own->room, p.plan.fixed ? memory : NULL, p.plan.floats ? x : NULL);
		__syncthreads();
	} else {
		previous_done();
		PROBE(PROBE_WAITED);
		vectors_load(p.plan, memory, p.from, token);
	}
	PROBE(PROBE_LOADED);
	if constexpr (!NORM)
		let_next_begin();
}

template <int N, bool NORM>
static __global__ void
__launch_bounds__(THREADS, 3) multiply_kernel(struct multiply p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, multiply_memory);
	uint32_t lane = threadIdx.x % 32;
	const struct unit unit = unit_of<N>(p.m, p.rows, blockIdx.x * WARPS + threadIdx.x / 32);
	uint64_t token = blockIdx.y;
	float sums[N] = {}, before = 0, *out;
	float *x = (float *)(multiply_memory + p.plan.floats_at);
	struct multiply_own *own = (struct multiply_own *)(multiply_memory + p.plan.own_at);
	const struct warp_piece<N> mine = piece_of<N>(p, unit, multiply_memory, own);

	PROBE_BEGIN();
	/* What is wanted first is asked for first. */
	if constexpr (NORM)
		norm_ask(p.norm, p.m.columns, x);
	if (unit.rows > 0)
		mine.stage();
	vector_take<NORM>(p, multiply_memory, own, x, token);
	if (unit.rows == 0)
		return;
	/* Lane 0 has the first row's sum in the end, lane 16 the second's. */
	out = p.to.at + token * p.to.stride + unit.output + lane / 16;
	if (p.add && lane % 16 == 0 && lane / 16 < unit.rows)
		before = __ldcg(out);
	mine.times(vectors_of(p.plan, multiply_memory), sums);
	before += warp_sums(sums);
	if (lane % 16 == 0 && lane / 16 < unit.rows)
		*out = before;
	PROBE_END();
}

template <int N, bool NORM>
static int
multiply_launch(void *stream, struct multiply *p, uint32_t tokens, struct error *err)
{
	uint32_t types[3] = { p->m.of[0].type, p->m.of[1].type, p->m.of[2].type }, units = 0;
	struct cuda_wants wants = {};
	int r;

	wants.columns = p->m.columns;
	wants.vectors = 1;
	wants.rows = N;
	wants.segments = 1;
	wants.buffers = 1;
	wants.warps = WARPS;
	wants.norm = NORM;
	wants.landed = true;
	wants.own_bytes = sizeof(struct multiply_own);
	wants.types = types;
	wants.n_types = p->m.n;
	r = cuda_plan_make(&p->plan, &wants, err);
	if (r)
		return r;
	for (uint32_t i = 0; i < p->m.n; i++) {
		p->rows[i] = staged_rows_of(&p->plan, types[i], p->m.of[i].row_bytes);
		units += units_of(p->m.of[i].rows, N);
	}
	return cuda_launch("multiply_kernel", multiply_kernel<N, NORM>,
			   dim3(units_of(units, WARPS), tokens), THREADS, p->plan.bytes, stream,
			   err, *p);
}

static uint32_t
rows_of(const struct cuda_matrices *m)
{
	uint32_t rows = 0;

	for (uint32_t i = 0; i < m->n; i++)
		rows += m->of[i].rows;
	return rows;
}

extern "C" int
cuda_multiply(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
	      struct cuda_rows to, bool add, uint32_t tokens, struct error *err)
{
	struct multiply p = {};
	bool done = false;
	int r;

	if (tokens > 1)
		return cuda_many(stream, matrices, from, to, add, tokens, err);
	r = add ? 0 : cuda_tall(stream, matrices, from, to, &done, err);
	if (r || done)
		return r;
	p.m = *matrices;
	p.from = from;
	p.to = to;
	p.add = add;
	return rows_of(matrices) < TWO_FROM ? multiply_launch<1, false>(stream, &p, tokens, err)
					    : multiply_launch<2, false>(stream, &p, tokens, err);
}

extern "C" int
cuda_multiply_normed(void *stream, const struct cuda_matrices *matrices, struct cuda_rows from,
		     const struct cuda_norm *norm, struct cuda_rows to, uint32_t tokens,
		     struct error *err)
{
	struct multiply p = {};

	p.m = *matrices;
	p.from.rows = from;
	p.norm = *norm;
	p.to = to;
	return rows_of(matrices) < TWO_FROM ? multiply_launch<1, true>(stream, &p, tokens, err)
					    : multiply_launch<2, true>(stream, &p, tokens, err);
}

extern "C" int
cuda_finish(void *stream, struct error *err)
{
	return cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "waiting for kernels", err);
}
