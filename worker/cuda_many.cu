/* Products of the trunk's matrices with the vectors of several tokens: a block asks for its rows
 * once and multiplies them with a few vectors at a time.  Bits are those of cuda_matrix.cu. */
#include "worker/cuda_many.cuh"
#include "worker/cuda_plan.cuh"
#include "worker/cuda_units.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)
#define AT_ONCE 4               /* vectors */
#define TOKENS 16u              /* a block's */
#define TURNS_MAX 2u            /* a warp's units, of two rows each */
#define TURNS_BYTES (40u << 10) /* for rows: so that an SM has room for several blocks */

struct many {
	struct cuda_matrices m;
	struct staged_rows rows[3];
	struct cuda_plan plan;
	struct cuda_vectors from;
	struct cuda_rows to;
	uint32_t tokens, turns;
	bool add;
};

struct unit_from {
	const struct unit unit;

	/* Where the matrix ends the last row is taken twice. */
	__device__ __forceinline__ const uint8_t *
	operator()(uint32_t, uint32_t n) const
	{
		return n < unit.rows ? unit.first + n * unit.staged.row_bytes : unit.first;
	}
};

/* The warp's unit of a turn. */
static __device__ __forceinline__ warp_rows<2, struct unit_from>
unit_rows(const struct many &p, uint32_t turn, uint8_t *memory)
{
	uint32_t warp = threadIdx.x / 32;
	struct unit unit = unit_of<2>(p.m, p.rows, (blockIdx.x * p.turns + turn) * WARPS + warp);
	uint8_t *room = memory + p.plan.rows_at + warp * p.plan.warp_bytes;

	return { { unit },    p.plan, room + turn % p.plan.buffers * p.plan.buffer_bytes,
		 unit.staged, 1,      0 };
}

static __global__ void
__launch_bounds__(THREADS, 3) many_kernel(struct many p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, many_memory);
	uint32_t lane = threadIdx.x % 32, m = lane / (32 / AT_ONCE), n = lane / (16 / AT_ONCE) % 2;
	uint32_t begin = blockIdx.y * TOKENS, end = min(begin + TOKENS, p.tokens);
	const struct vectors x = vectors_of(p.plan, many_memory);
	/* What was staged first; of rows in slices the last slice is there in the end. */
	bool stays = p.plan.buffers == p.turns && p.plan.slice == p.plan.columns;

	PROBE_BEGIN();
	let_next_begin();
#pragma unroll 1
	for (uint32_t turn = 0; turn < p.plan.buffers; turn++) {
		auto mine = unit_rows(p, turn, many_memory);

		if (mine.from.unit.rows > 0)
			mine.stage(0, 0);
	}
	previous_done();
	PROBE(PROBE_WAITED);
#pragma unroll 1
	for (uint32_t first = begin; first < end; first += AT_ONCE) {
		uint32_t count = min(end - first, (uint32_t)AT_ONCE);

		vectors_gather<AT_ONCE>(p.plan, many_memory, p.from, first + lane, count);
#pragma unroll 1
		for (uint32_t turn = 0; turn < p.turns; turn++) {
			auto mine = unit_rows(p, turn, many_memory);
			const struct unit &unit = mine.from.unit;
			struct many_sums<2, AT_ONCE> sums = {
			};
			float *out =
			    p.to.at + (uint64_t)(first + m) * p.to.stride + unit.output + n;
			bool stores = lane % (16 / AT_ONCE) == 0 && m < count && n < unit.rows;
			float before = p.add && stores ? __ldcg(out) : 0;

			if (unit.rows == 0)
				break;
			if (stays || first - begin + turn == 0) {
				mine.look(0, 0);
			} else {
				__syncwarp();
				mine.stage(0, 0);
			}
			mine.all_times(x, count, sums);
			before += warp_sums(sums.of);
			if (stores)
				*out = before;
		}
		__syncthreads();
	}
	PROBE_END();
}

static int
plan_many(struct many *p, uint32_t turns, struct error *err)
{
	uint32_t types[3] = { p->m.of[0].type, p->m.of[1].type, p->m.of[2].type };
	struct cuda_wants wants = {};

	wants.columns = p->m.columns;
	wants.vectors = AT_ONCE;
	wants.rows = 2;
	wants.segments = 1;
	wants.buffers = turns;
	wants.warps = WARPS;
	wants.types = types;
	wants.n_types = p->m.n;
	p->turns = turns;
	return cuda_plan_make(&p->plan, &wants, err);
}

int
cuda_many(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
	  struct cuda_rows to, bool add, uint32_t tokens, struct error *err)
{
	uint32_t units = 0, blocks;
	struct many p = {};
	int r;

	p.m = *matrices;
	p.from = from;
	p.to = to;
	p.tokens = tokens;
	p.add = add;
	r = plan_many(&p, TURNS_MAX, err);
	if (!r && p.plan.warp_bytes * WARPS > TURNS_BYTES)
		r = plan_many(&p, 1, err);
	if (r)
		return r;
	for (uint32_t i = 0; i < p.m.n; i++) {
		p.rows[i] = staged_rows_of(&p.plan, p.m.of[i].type, p.m.of[i].row_bytes);
		units += units_of(p.m.of[i].rows, 2);
	}
	blocks = units_of(units, p.turns * WARPS);
	return cuda_launch("many_kernel", many_kernel, dim3(blocks, units_of(tokens, TOKENS)),
			   THREADS, p.plan.bytes, stream, err, p);
}
