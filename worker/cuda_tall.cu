/* A matrix of many more rows than the device has warps: the output's.  As many blocks as the device
 * has at once stay to the end and load the vector once; each warp takes one piece of ROWS rows
 * after the other from a ring.  The bits are those of multiply_kernel. */
#include "worker/cuda_plan.cuh"
#include "worker/cuda_ring.cuh"
#include "worker/cuda_tall.cuh"

#define WARPS 16u
#define THREADS (WARPS * 32)
#define ROWS 4u /* of a warp at once */
#define DEPTH 2u
#define PIECES_LEAST 2u /* of each warp */

struct tall {
	struct cuda_plan plan;
	struct cuda_matrix matrix;
	struct cuda_vectors from;
	struct cuda_rows to;
	uint32_t room, rooms_at, bytes;
	bool whole; /* each row lies at a multiple of 16 */
};

static __device__ __forceinline__ uint32_t
rows_from(const struct tall &p, uint32_t piece)
{
	return piece * ROWS < p.matrix.rows ? min(p.matrix.rows - piece * ROWS, ROWS) : 0;
}

static __device__ __forceinline__ const uint8_t *
piece_at(const struct tall &p, uint32_t piece)
{
	return (const uint8_t *)p.matrix.at + (uint64_t)(piece * ROWS) * p.matrix.row_bytes;
}

static __device__ __forceinline__ void
piece_ask(const struct tall &p, const struct ring<DEPTH> &ring, uint32_t piece)
{
	ring_ask(ring, piece_at(p, piece), rows_from(p, piece) * (uint32_t)p.matrix.row_bytes);
}

static __global__ void
__launch_bounds__(THREADS, 1) tall_kernel(struct tall p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, tall_memory);
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, step = gridDim.x * WARPS;
	uint32_t piece = blockIdx.x * WARPS + warp;
	struct landing *landings = (struct landing *)(tall_memory + p.plan.own_at);
	struct ring<DEPTH> ring = {
		landings + warp *DEPTH, tall_memory + p.rooms_at + warp *DEPTH *p.room, p.room, 0, 0
	};

	PROBE_BEGIN();
	let_next_begin();
	if (threadIdx.x < WARPS)
		ring_open<DEPTH>(landings + threadIdx.x * DEPTH);
	landings_opened();
#pragma unroll
	for (uint32_t i = 0; i < DEPTH; i++, ring_step(&ring))
		piece_ask(p, ring, piece + i * step);
	ring.parity = 0;
	previous_done();
	PROBE(PROBE_WAITED);
	vectors_load(p.plan, tall_memory, p.from, 0);
	PROBE(PROBE_LOADED);
#pragma unroll 1
	for (; rows_from(p, piece) > 0; piece += step, ring_step(&ring)) {
		uint32_t rows = rows_from(p, piece);
		const uint8_t *first = ring_wait(ring) + landing_place(piece_at(p, piece));
		/* Where the matrix ends the last row is taken several times. */
		auto row = [&](uint32_t, uint32_t n) {
			return first + min(n, rows - 1) * (uint32_t)p.matrix.row_bytes;
		};
		float sums[ROWS] = {}, sum;

		any_rows_times<ROWS, true>(p.matrix.type, p.whole, row,
					   vectors_of(p.plan, tall_memory), 1, p.plan.columns,
					   sums);
		piece_ask(p, ring, piece + DEPTH * step);
		sum = warp_sums(sums);
		if (lane % (32 / ROWS) == 0 && lane / (32 / ROWS) < rows)
			p.to.at[piece * ROWS + lane / (32 / ROWS)] = sum;
	}
	PROBE_END();
}

/* *ret_fits: a block has room for it. */
static int
lay_out(struct tall *p, bool *ret_fits, struct error *err)
{
	uint64_t row_bytes = p->matrix.row_bytes, room = LANDING_ROOM(ROWS * row_bytes), bytes;
	struct cuda_wants wants = {};
	int most = 0;
	int r = cuda_shared_most(&most, err);

	if (r)
		return r;
	*ret_fits = false;
	wants.columns = p->plan.columns;
	wants.vectors = 1;
	wants.own_bytes = WARPS * DEPTH * sizeof(struct landing);
	wants.types = &p->matrix.type;
	wants.n_types = 1;
	r = cuda_plan_make(&p->plan, &wants, err);
	if (r)
		return r;
	p->rooms_at = (p->plan.bytes + LINE - 1) / LINE * LINE;
	bytes = p->rooms_at + WARPS * DEPTH * room;
	*ret_fits = bytes <= (uint64_t)most;
	p->room = (uint32_t)room;
	p->bytes = (uint32_t)bytes;
	return 0;
}

static int
processors_of(uint32_t *ret, struct error *err)
{
	int device = 0, n = 0;
	int r = cuda_check(cudaGetDevice(&device), "cudaGetDevice", err);

	if (!r)
		r = cuda_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device),
			       "cudaDeviceGetAttribute", err);
	if (!r)
		*ret = (uint32_t)n;
	return r;
}

int
cuda_tall(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
	  struct cuda_rows to, bool *ret_done, struct error *err)
{
	struct tall p = {};
	uint32_t processors = 0;
	int r = processors_of(&processors, err);

	*ret_done = false;
	p.matrix = matrices->of[0];
	p.plan.columns = matrices->columns;
	p.from = from;
	p.to = to;
	p.whole = (((uintptr_t)p.matrix.at | p.matrix.row_bytes) & 15) == 0;
	if (r || matrices->n > 1 || p.matrix.rows / (PIECES_LEAST * ROWS * WARPS) < processors)
		return r;
	r = lay_out(&p, ret_done, err);
	if (r || !*ret_done)
		return r;
	return cuda_launch("tall_kernel", tall_kernel, processors, THREADS, p.bytes, stream, err,
			   p);
}
