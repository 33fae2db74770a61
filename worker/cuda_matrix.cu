/* The embedding's rows, and products of the trunk's matrices.  A block has a run of rows, asked for
 * before the kernel waits for the one before it; the vector comes behind that. */
#include "worker/cuda_hidden.cuh"
#include "worker/cuda_kernels.h"
#include "worker/cuda_plan.cuh"
#include "worker/cuda_units.cuh"

#define WARPS 16u
#define THREADS (WARPS * 32)
#define BLOCKS_WANTED 128u /* about one for each SM of a large GPU */
#define BUFFERS 3u
#define BUFFER_BYTES (60u << 10)
#define TWO_FROM 16384u /* rows: a warp takes two at a time, and an SM has one block */

static_assert(WARPS == HIDDEN_GROUP, "a block's rows of h are a group");

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

#define EMBED_THREADS 256u

static __global__ void
__launch_bounds__(EMBED_THREADS)
    embed_kernel(struct cuda_matrix embedding, uint32_t columns, const struct cuda_input *in,
		 struct cuda_hidden to, const float *next PROBE_PARAM)
{
	uint64_t token = blockIdx.x;
	float *h = to.h.at + token * to.h.stride;
	const uint8_t *row;

	PROBE_BEGIN();
	previous_done();
	row =
	    (const uint8_t *)embedding.at + (uint64_t)__ldcg(&in->ids[token]) * embedding.row_bytes;
	switch (embedding.type) {
#define EMBED_CASE(T)                                                    \
	case T::TYPE:                                                    \
		row_unpack<T>(row, h, columns, threadIdx.x, blockDim.x); \
		break;
		CUDA_TYPES(EMBED_CASE)
#undef EMBED_CASE
	}
	__syncthreads();
	for (uint32_t begin = threadIdx.x / 32 * 128; begin < columns; begin += 4 * EMBED_THREADS) {
		uint32_t column = begin + 4 * (threadIdx.x % 32);

		hidden_store(to, token, column, columns, four_columns(h, column, columns),
			     hidden_weights(next, column, columns));
	}
	PROBE_END();
}

extern "C" int
cuda_embed(void *stream, const struct cuda_matrix *embedding, uint32_t columns,
	   const struct cuda_input *in, struct cuda_hidden to, const float *next, uint32_t tokens,
	   struct error *err)
{
	return cuda_launch_behind_copy("embed_kernel", embed_kernel, tokens, EMBED_THREADS, 0,
				       stream, err, *embedding, columns, in, to, next);
}

struct multiply {
	struct cuda_matrices m;
	struct cuda_plan plan; /* of the vector */
	struct cuda_vectors from;
	uint32_t units; /* of all matrices */
	uint32_t units_a_block;
	uint32_t chunk, buffers, buffer_bytes; /* units that come together, and room for them */
	struct cuda_scale scale;               /* of no columns: none */
	struct cuda_rows to;
};

/* A unit's products, as warp_sums leaves them. */
template <int N>
static __device__ __forceinline__ float
unit_times(const struct unit &unit, const struct vectors &x, uint32_t columns)
{
	/* Where the matrix ends the last row is taken twice. */
	auto row = [&](uint32_t, uint32_t n) {
		return n < unit.rows ? unit.row + n * unit.row_bytes : unit.row;
	};
	uint32_t odd = (uint32_t)(uintptr_t)unit.row | (N > 1 ? unit.row_bytes : 0);
	float sums[N] = {};

	any_rows_times<N>(unit.type, odd % 16 == 0, row, x, 1, columns, sums);
	return warp_sums(sums);
}

/* What a block has of the units, and of them at once. */
struct run {
	uint32_t begin, end, chunk;

	__device__ __forceinline__ uint32_t
	first(uint32_t i) const
	{
		return min(begin + i * chunk, end);
	}
};

template <int N, bool STAGED>
static __global__ void
__launch_bounds__(THREADS, 3 - N) multiply_kernel(struct multiply p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, multiply_memory);
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint64_t token = blockIdx.y;
	struct landing *landings = (struct landing *)(multiply_memory + p.plan.own_at);
	uint8_t *rooms = multiply_memory + p.plan.rows_at;
	uint32_t begin = blockIdx.x * p.units_a_block;
	const struct run run = { begin, min(begin + p.units_a_block, p.units), p.chunk };
	const struct vectors x = vectors_of(p.plan, multiply_memory);
	float part = 0;

	PROBE_BEGIN();
	let_next_begin();
	if constexpr (STAGED) {
		if (threadIdx.x < p.buffers)
			landing_open(landings + threadIdx.x, p.m.n);
		landings_opened();
		for (uint32_t i = 0; i < p.buffers; i++)
			units_ask<N>(landings + i, p.m, run.first(i), run.first(i + 1),
				     rooms + i * p.buffer_bytes);
	}
	previous_done();
	PROBE(PROBE_WAITED);
	if (p.scale.columns)
		part = scale_part(p.scale, token);
	vectors_load(p.plan, multiply_memory, p.from, token);
	PROBE(PROBE_LOADED);
	for (uint32_t i = 0; run.first(i) < run.end; i++) {
		uint32_t buffer = i % p.buffers;
		uint8_t *room = rooms + buffer * p.buffer_bytes;

		if constexpr (STAGED)
			landing_wait(landings + buffer, i / p.buffers);
		for (uint32_t u = run.first(i) + warp; u < run.first(i + 1); u += WARPS) {
			const struct unit unit =
			    unit_of<N, STAGED>(p.m, u, run.first(i), run.first(i + 1), room);
			float product = unit_times<N>(unit, x, p.m.columns);

			if (p.scale.columns)
				product *= scale_of(p.scale, part);
			/* Lane 0 has the first row's, lane 16 the second's. */
			if (lane % 16 == 0 && lane / 16 < unit.rows)
				p.to.at[token * p.to.stride + unit.output + lane / 16] = product;
		}
		if constexpr (STAGED) {
			if (run.first(i + p.buffers) >= run.end)
				continue;
			__syncthreads();
			units_ask<N>(landings + buffer, p.m, run.first(i + p.buffers),
				     run.first(i + p.buffers + 1), room);
		}
	}
	PROBE_END();
}

static uint64_t
longest_row(const struct cuda_matrices *m)
{
	uint64_t longest = 0;

	for (uint32_t i = 0; i < m->n; i++)
		if (longest < m->of[i].row_bytes)
			longest = m->of[i].row_bytes;
	return longest;
}

/* How a block's units come, into `room` bytes.  No buffers: their rows are too long, and are read
 * where they lie. */
static void
plan_buffers(struct multiply *p, uint64_t unit_bytes, uint64_t room)
{
	uint64_t skews = p->m.n * 2 * LINE, one = room < BUFFER_BYTES ? room : BUFFER_BYTES;
	uint64_t fit = one > skews ? (one - skews) / unit_bytes : 0;

	p->chunk = p->units_a_block;
	if (fit < p->chunk)
		p->chunk = (uint32_t)(fit > WARPS ? fit / WARPS * WARPS : fit);
	if (p->chunk == 0) {
		p->chunk = p->units_a_block;
		return;
	}
	p->buffer_bytes = (uint32_t)((p->chunk * unit_bytes + skews + LINE - 1) / LINE * LINE);
	p->buffers = units_of(p->units_a_block, p->chunk);
	if (p->buffers > BUFFERS)
		p->buffers = BUFFERS;
	if (p->buffers > room / p->buffer_bytes)
		p->buffers = (uint32_t)(room / p->buffer_bytes);
}

/* Of units of n rows; units_a_block 0: as many as make BLOCKS_WANTED. */
static int
multiply_plan(struct multiply *p, uint32_t n, uint32_t units_a_block, struct error *err)
{
	uint32_t types[3] = { p->m.of[0].type, p->m.of[1].type, p->m.of[2].type };
	struct cuda_wants wants = {};
	int r, most = 0;

	wants.columns = p->m.columns;
	wants.vectors = 1;
	wants.own_bytes = BUFFERS * sizeof(struct landing) + HIDDEN_GROUP * sizeof(float);
	wants.types = types;
	wants.n_types = p->m.n;
	r = cuda_plan_make(&p->plan, &wants, err);
	if (!r)
		r = cuda_shared_most(&most, err);
	if (r)
		return r;
	for (uint32_t i = 0; i < p->m.n; i++)
		p->units += units_of(p->m.of[i].rows, n);
	p->units_a_block = units_a_block ? units_a_block : units_of(p->units, BLOCKS_WANTED);
	p->plan.rows_at = (p->plan.rows_at + LINE - 1) / LINE * LINE;
	p->plan.bytes = p->plan.rows_at;
	plan_buffers(p, n * longest_row(&p->m),
		     (uint32_t)most > p->plan.bytes ? (uint32_t)most - p->plan.bytes : 0);
	p->plan.bytes += p->buffers * p->buffer_bytes;
	return 0;
}

template <int N>
static int
multiply_launch(void *stream, struct multiply *p, uint32_t tokens, struct error *err)
{
	int r = multiply_plan(p, N, 0, err);
	auto kernel = p->buffers ? multiply_kernel<N, true> : multiply_kernel<N, false>;

	if (p->buffers == 0)
		p->buffers = 1; /* none is used */
	return r ? r
		 : cuda_launch("multiply_kernel", kernel,
			       dim3(units_of(p->units, p->units_a_block), tokens), THREADS,
			       p->plan.bytes, stream, err, *p);
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
	      const struct cuda_scale *scale, struct cuda_rows to, uint32_t tokens,
	      struct error *err)
{
	struct multiply p = {};

	p.m = *matrices;
	p.from = from;
	p.to = to;
	if (scale)
		p.scale = *scale;
	return rows_of(matrices) < TWO_FROM ? multiply_launch<1>(stream, &p, tokens, err)
					    : multiply_launch<2>(stream, &p, tokens, err);
}

struct multiply_add {
	struct multiply p;
	struct cuda_hidden to;
	const float *next;
};

/* A block has a group of h, a warp a row. */
template <bool STAGED>
static __global__ void
__launch_bounds__(THREADS, 2) add_kernel(struct multiply_add a PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, add_memory);
	const struct multiply &p = a.p;
	uint32_t first = blockIdx.x * HIDDEN_GROUP, row = first + threadIdx.x / 32;
	uint32_t rows = p.m.of[0].rows, end = min(first + HIDDEN_GROUP, rows);
	uint64_t token = blockIdx.y;
	float *group = (float *)(add_memory + p.plan.own_at), h = 0;
	struct landing *landing = (struct landing *)(group + HIDDEN_GROUP);
	float4 weights = hidden_weights(a.next, hidden_column(first, rows), rows);

	PROBE_BEGIN();
	let_next_begin();
	if constexpr (STAGED) {
		if (threadIdx.x == 0)
			landing_open(landing, 1);
		landings_opened();
		units_ask<1>(landing, p.m, first, end, add_memory + p.plan.rows_at);
	}
	previous_done();
	PROBE(PROBE_WAITED);
	if (row < rows)
		h = __ldcg(a.to.h.at + token * a.to.h.stride + row);
	vectors_load(p.plan, add_memory, p.from, token);
	PROBE(PROBE_LOADED);
	if constexpr (STAGED)
		landing_wait(landing, 0);
	if (row < rows)
		h += unit_times<1>(
		    unit_of<1, STAGED>(p.m, row, first, end, add_memory + p.plan.rows_at),
		    vectors_of(p.plan, add_memory), p.m.columns);
	if (threadIdx.x % 32 == 0)
		group[threadIdx.x / 32] = h;
	__syncthreads();
	if (threadIdx.x < 32)
		hidden_store_group(a.to, token, first, rows, group, weights);
	PROBE_END();
}

extern "C" int
cuda_multiply_add(void *stream, const struct cuda_matrix *matrix, uint32_t columns,
		  struct cuda_vectors from, struct cuda_hidden to, const float *next,
		  uint32_t tokens, struct error *err)
{
	struct multiply_add a = {};
	int r;

	a.p.m.of[0] = *matrix;
	a.p.m.n = 1;
	a.p.m.columns = columns;
	a.p.from = from;
	a.to = to;
	a.next = next;
	r = multiply_plan(&a.p, 1, HIDDEN_GROUP, err);
	/* A group comes at once or not at all. */
	bool staged = a.p.chunk == HIDDEN_GROUP && a.p.buffers > 0;

	return r ? r
		 : cuda_launch("add_kernel", staged ? add_kernel<true> : add_kernel<false>,
			       dim3(units_of(matrix->rows, HIDDEN_GROUP), tokens), THREADS,
			       a.p.plan.bytes, stream, err, a);
}

extern "C" int
cuda_finish(void *stream, struct error *err)
{
	return cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "waiting for kernels", err);
}
