/* The chosen experts of a token, whatever their size: gate and up to act, down to h. */
#include "worker/cuda_experts.cuh"

#define IN_ROWS 32u /* of act: a block makes whole groups in fixed point */
#define IN_WARPS 16u
#define IN_TURNS (IN_ROWS / IN_WARPS)
#define OUT_WARPS 8u

struct experts_in {
	struct cuda_moe moe;
	struct cuda_plan plan;
	struct staged_rows gate, up;
};

/* A row of gate and the same of up. */
struct pair_from {
	const uint8_t *gate, *up;

	__device__ __forceinline__ const uint8_t *
	operator()(uint32_t, uint32_t n) const
	{
		return n == 0 ? gate : up;
	}
};

struct row_from {
	const uint8_t *row;

	__device__ __forceinline__ const uint8_t *
	operator()(uint32_t, uint32_t) const
	{
		return row;
	}
};

static __device__ __forceinline__ float
times_row(const struct experts_in &p, const struct staged_rows &rows, const uint8_t *row,
	  uint8_t *room, const struct vectors &x)
{
	warp_rows<1, row_from> mine = { { row }, p.plan, room, rows, 1, 0 };
	float sum[1] = {};

	__syncwarp();
	mine.stage(0, 0);
	mine.all_times(x, sum);
	return warp_sums(sum);
}

/* A block has IN_ROWS of act of one chosen expert, a warp one of them a turn, of gate and up both:
 * so neither leaves the chip, x is read once, and groups in fixed point are made where act is.
 * ALIKE: gate and up are of one type. */
template <bool ALIKE>
static __global__ void
__launch_bounds__(IN_WARPS * 32, 2) experts_in_kernel(struct experts_in p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, in_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * IN_ROWS;
	uint32_t slot = blockIdx.y;
	uint8_t *room = in_memory + p.plan.rows_at + warp * p.plan.warp_bytes;
	float *act = (float *)(in_memory + p.plan.own_at);
	const struct vectors x = vectors_of(p.plan, in_memory);
	float weight;

	PROBE_BEGIN();
	previous_done();
	PROBE(PROBE_WAITED);
	/* Not before: the next kernel reads the choice as soon as it begins. */
	let_next_begin();
	if (share_given(moe.share, slot))
		return;
	const uint32_t expert = __ldcg(moe.chosen + slot);
	const uint8_t *gates = role_at(moe, expert, ROLE_GATE),
		      *ups = role_at(moe, expert, ROLE_UP);
	weight = __ldcg(moe.weights + slot);
	auto pair = [&](uint32_t turn) {
		uint32_t row = min(first + turn * IN_WARPS + warp, moe.width - 1);
		struct pair_from from = { gates + row * moe.row_bytes[ROLE_GATE],
					  ups + row * moe.row_bytes[ROLE_UP] };

		return warp_rows<2, pair_from>{
			from,   p.plan, room + turn % p.plan.buffers * p.plan.buffer_bytes,
			p.gate, 1,      0
		};
	};
#pragma unroll 1
	for (uint32_t turn = 0; ALIKE && turn < p.plan.buffers; turn++)
		pair(turn).stage(0, 0);
	vectors_load(p.plan, in_memory, moe.x, 0);
	PROBE(PROBE_LOADED);
#pragma unroll 1
	for (uint32_t turn = 0; turn < IN_TURNS; turn++) {
		warp_rows<2, pair_from> mine = pair(turn);
		float sums[2] = {}, gate, up;

		if constexpr (ALIKE) {
			if (turn < p.plan.buffers) {
				mine.look(0, 0);
			} else {
				__syncwarp();
				mine.stage(0, 0);
			}
			mine.all_times(x, sums);
			gate = warp_sums(sums);
			up = __shfl_sync(0xffffffffu, gate, 16);
		} else {
			gate = times_row(p, p.gate, mine.from.gate, room, x);
			up = times_row(p, p.up, mine.from.up, room, x);
		}
		if (lane == 0)
			act[turn * IN_WARPS + warp] = first + turn * IN_WARPS + warp < moe.width
							  ? act_of(gate, up, weight)
							  : 0;
	}
	PROBE(PROBE_MULTIPLIED);
	__syncthreads();
	if (warp == 0)
		act_store<IN_ROWS>(moe, slot, first, act);
	PROBE_END();
}

static int
plan_in(const struct cuda_moe *moe, struct experts_in *p, struct error *err)
{
	uint32_t types[2] = { moe->type[ROLE_GATE], moe->type[ROLE_UP] };
	bool alike = types[0] == types[1];
	struct cuda_wants wants = {};
	int r;

	wants.columns = moe->hidden;
	wants.vectors = 1;
	wants.rows = alike ? 2 : 1;
	wants.segments = 1;
	wants.buffers = alike ? IN_TURNS : 1;
	wants.warps = IN_WARPS;
	wants.own_bytes = IN_ROWS * sizeof(float);
	wants.types = types;
	wants.n_types = 2;
	r = cuda_plan_make(&p->plan, &wants, err);
	if (r)
		return r;
	p->gate = staged_rows_of(&p->plan, types[0], moe->row_bytes[ROLE_GATE]);
	p->up = staged_rows_of(&p->plan, types[1], moe->row_bytes[ROLE_UP]);
	return 0;
}

extern "C" int
cuda_experts_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	dim3 grid((moe->width + IN_ROWS - 1) / IN_ROWS, moe->top_k);
	struct experts_in p = {};
	bool done;
	int r;

	if (tokens > 1)
		return cuda_grouped_in(stream, moe, tokens, err);
	r = cuda_landed_in(stream, moe, &done, err);
	if (r || done)
		return r;
	p.moe = *moe;
	r = plan_in(moe, &p, err);
	if (r)
		return r;
	auto kernel = moe->type[ROLE_GATE] == moe->type[ROLE_UP] ? experts_in_kernel<true>
								 : experts_in_kernel<false>;

	return cuda_launch_behind(moe->behind_copy, "experts_in_kernel", kernel, grid,
				  IN_WARPS * 32, p.plan.bytes, stream, err, p);
}

struct experts_out {
	struct cuda_moe moe;
	struct cuda_plan plan;
	struct staged_rows down;
};

/* A warp has a row of h: of all chosen experts' matrices one row each, side by side. */
static __global__ void
__launch_bounds__(OUT_WARPS * 32, 3) experts_out_kernel(struct experts_out p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, out_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t row = blockIdx.x * OUT_WARPS + warp;
	const uint8_t **where = (const uint8_t **)(out_memory + p.plan.own_at); /* (top_k) */
	uint32_t row_bytes = (uint32_t)moe.row_bytes[ROLE_DOWN];
	const struct segment_parts of_block = { (float *)(where + (moe.top_k + 1) / 2 * 2) };
	const struct segment_parts parts = of_block.from(warp * moe.top_k);
	float sum = 0, *out;

	PROBE_BEGIN();
	/* The choice was made before the kernel before this one let it begin. */
	for (uint32_t k = threadIdx.x; k < moe.top_k; k += OUT_WARPS * 32)
		where[k] = share_given(moe.share, k)
			       ? NULL
			       : role_at(moe, __ldcg(moe.chosen + k), ROLE_DOWN);
	__syncthreads();
	auto from = [=](uint32_t k, uint32_t) {
		return where[k] ? where[k] + (uint64_t)row * row_bytes : NULL;
	};
	uint8_t *room = out_memory + p.plan.rows_at + warp * p.plan.warp_bytes;
	warp_rows<1, decltype(from)> mine = { from, p.plan, room, p.down, moe.top_k, 0 };

	if (row < moe.hidden)
		mine.stage(0, 0);
	previous_done();
	PROBE(PROBE_WAITED);
	let_next_begin();
	vectors_load(p.plan, out_memory, moe.act, 0);
	PROBE(PROBE_LOADED);
	out = moe.h.at + row;
	for (uint32_t k = 0; k < moe.top_k; k++)
		parts.from(k).at[lane] = 0;
	if (row < moe.hidden) {
		sum = __ldcg(out);
		mine.segments_times(vectors_of(p.plan, out_memory), parts);
	}
	if (moe.share.order) {
		share_await(moe.share, moe.top_k);
		parts_take<OUT_WARPS, OUT_WARPS>(moe, of_block, blockIdx.x * OUT_WARPS);
	}
	if (row >= moe.hidden)
		return;
	sum = segments_add(sum, parts, moe.top_k);
	if (lane == 0)
		*out = sum;
	PROBE_END();
}

extern "C" int
cuda_experts_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	struct cuda_wants wants = {};
	struct experts_out p = {};
	bool done;
	int r;

	if (tokens > 1)
		return cuda_grouped_out(stream, moe, tokens, err);
	r = cuda_landed_out(stream, moe, &done, err);
	if (r || done)
		return r;
	wants.columns = moe->width;
	wants.vectors = moe->top_k;
	wants.rows = 1;
	wants.segments = moe->top_k;
	wants.buffers = 1;
	wants.warps = OUT_WARPS;
	wants.own_bytes = (moe->top_k + 1) / 2 * 2 * sizeof(void *) +
			  OUT_WARPS * moe->top_k * SEGMENT_PITCH * sizeof(float);
	wants.types = &moe->type[ROLE_DOWN];
	wants.n_types = 1;
	p.moe = *moe;
	r = cuda_plan_make(&p.plan, &wants, err);
	if (r)
		return r;
	p.down = staged_rows_of(&p.plan, moe->type[ROLE_DOWN], moe->row_bytes[ROLE_DOWN]);
	return cuda_launch("experts_out_kernel", experts_out_kernel,
			   (moe->hidden + OUT_WARPS - 1) / OUT_WARPS, OUT_WARPS * 32, p.plan.bytes,
			   stream, err, p);
}
