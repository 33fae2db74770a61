/* The chosen experts of several tokens: a block takes rows of one expert and multiplies them with
 * the vectors of all tokens that chose it, so that each expert is read once.  A product's additions
 * have the order that they have for a single token (cuda_experts.cu). */
#include "worker/cuda_experts.cuh"
#include "worker/cuda_group.cuh"

#define WARPS 8u
#define AT_ONCE 4   /* vectors */
#define IN_ROWS 16u /* of act: a whole group in fixed point */
#define IN_TURNS (IN_ROWS / WARPS)
#define OUT_ROWS 64u
#define OUT_TURNS (OUT_ROWS / (2 * WARPS))
#define ADD_THREADS 256u

static_assert(WARPS >= AT_ONCE, "a warp for each vector's act");

struct grouped {
	struct cuda_moe moe;
	struct cuda_plan plan;
	struct staged_rows rows, others; /* others: of up, where it is not as gate */
};

struct two_rows {
	const uint8_t *of[2];

	__device__ __forceinline__ const uint8_t *
	operator()(uint32_t, uint32_t n) const
	{
		return n == 0 ? of[0] : of[1];
	}
};

/* A warp's members of the group from `done` on: lane m has the m-th's place in `chosen`. */
static __device__ __forceinline__ uint32_t
members_at(const struct cuda_moe &moe, const struct cuda_group &group, uint32_t done)
{
	uint32_t lane = threadIdx.x % 32;

	return lane < AT_ONCE && done + lane < group.count
		   ? __ldcg(moe.members + group.first + done + lane)
		   : 0;
}

/* The products of one row with all vectors, of vector m in the lanes of m. */
static __device__ __forceinline__ float
times_row(const struct grouped &p, const struct staged_rows &rows, const uint8_t *row,
	  uint8_t *room, const struct vectors &x, uint32_t count)
{
	struct two_rows from = { { row, row } };
	warp_rows<1, struct two_rows> mine = { from, p.plan, room, rows, 1, 0 };
	struct many_sums<1, AT_ONCE> sums = {
	};

	__syncwarp();
	mine.stage(0, 0);
	mine.all_times(x, count, sums);
	return warp_sums(sums.of);
}

/* A block has IN_ROWS of act, of all members of a group; a warp one of them a turn, of gate and up
 * both.  ALIKE: these are of one type. */
template <bool ALIKE>
static __global__ void
__launch_bounds__(WARPS * 32, 3) grouped_in_kernel(struct grouped p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, grouped_in_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * IN_ROWS;
	uint8_t *room = grouped_in_memory + p.plan.rows_at + warp * p.plan.warp_bytes;
	float *act = (float *)(grouped_in_memory + p.plan.own_at); /* (AT_ONCE, IN_ROWS) */
	const struct vectors x = vectors_of(p.plan, grouped_in_memory);

	PROBE_BEGIN();
	previous_done();
	PROBE(PROBE_WAITED);
	let_next_begin();
	const struct cuda_group group = group_at(moe, blockIdx.y);
	if (group.count == 0)
		return;
	const uint8_t *gates = role_at(moe, group.expert, ROLE_GATE),
		      *ups = role_at(moe, group.expert, ROLE_UP);
	auto pair = [&](uint32_t turn) {
		uint32_t row = min(first + turn * WARPS + warp, moe.width - 1);
		struct two_rows from = { { gates + row * moe.row_bytes[ROLE_GATE],
					   ups + row * moe.row_bytes[ROLE_UP] } };

		return warp_rows<2, struct two_rows>{
			from,   p.plan, room + turn % p.plan.buffers * p.plan.buffer_bytes,
			p.rows, 1,      0
		};
	};
#pragma unroll 1
	for (uint32_t turn = 0; ALIKE && turn < p.plan.buffers; turn++)
		pair(turn).stage(0, 0);
#pragma unroll 1
	for (uint32_t done = 0; done < group.count; done += AT_ONCE) {
		uint32_t count = min(group.count - done, (uint32_t)AT_ONCE);
		uint32_t slot = members_at(moe, group, done), m = lane / (32 / AT_ONCE);
		float weight = __ldcg(moe.weights + __shfl_sync(0xffffffffu, slot, m));

		vectors_gather<AT_ONCE>(p.plan, grouped_in_memory, moe.x, slot / moe.top_k, count);
#pragma unroll 1
		for (uint32_t turn = 0; turn < IN_TURNS; turn++) {
			warp_rows<2, struct two_rows> mine = pair(turn);
			struct many_sums<2, AT_ONCE> sums = {
			};
			float gate, up;

			if constexpr (ALIKE) {
				if (p.plan.buffers == IN_TURNS || done + turn == 0) {
					mine.look(0, 0);
				} else {
					__syncwarp();
					mine.stage(0, 0);
				}
				mine.all_times(x, count, sums);
				gate = warp_sums(sums.of);
				up = __shfl_down_sync(0xffffffffu, gate, 16 / AT_ONCE);
			} else {
				gate = times_row(p, p.rows, mine.from.of[0], room, x, count);
				up = times_row(p, p.others, mine.from.of[1], room, x, count);
			}
			if (lane % (32 / AT_ONCE) == 0)
				act[m * IN_ROWS + turn * WARPS + warp] =
				    first + turn * WARPS + warp < moe.width
					? act_of(gate, up, weight)
					: 0;
		}
		__syncthreads();
		if (warp < count)
			act_store<IN_ROWS>(moe, __shfl_sync(0xffffffffu, slot, warp), first,
					   act + warp * IN_ROWS);
	}
	PROBE_END();
}

static int
plan_in(struct grouped *p, struct error *err)
{
	const struct cuda_moe *moe = &p->moe;
	uint32_t types[2] = { moe->type[ROLE_GATE], moe->type[ROLE_UP] };
	bool alike = types[0] == types[1];
	struct cuda_wants wants = {};
	int r;

	wants.columns = moe->hidden;
	wants.vectors = AT_ONCE;
	wants.rows = alike ? 2 : 1;
	wants.segments = 1;
	wants.buffers = alike ? IN_TURNS : 1;
	wants.warps = WARPS;
	wants.own_bytes = AT_ONCE * IN_ROWS * sizeof(float);
	wants.types = types;
	wants.n_types = 2;
	r = cuda_plan_make(&p->plan, &wants, err);
	if (r)
		return r;
	p->rows = staged_rows_of(&p->plan, types[0], moe->row_bytes[ROLE_GATE]);
	p->others = staged_rows_of(&p->plan, types[1], moe->row_bytes[ROLE_UP]);
	return 0;
}

int
cuda_grouped_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	dim3 grid((moe->width + IN_ROWS - 1) / IN_ROWS,
		  CUDA_GROUPS(moe->experts, tokens * moe->top_k));
	struct grouped p = {};
	int r;

	p.moe = *moe;
	r = plan_in(&p, err);
	if (!r)
		r = cuda_group_choices(stream, moe, tokens, err);
	if (r)
		return r;
	auto kernel = moe->type[ROLE_GATE] == moe->type[ROLE_UP] ? grouped_in_kernel<true>
								 : grouped_in_kernel<false>;

	return cuda_launch("grouped_in_kernel", kernel, grid, WARPS * 32, p.plan.bytes, stream, err,
			   p);
}

/* A block has OUT_ROWS of down, with the act of all members of a group; a warp two of them a turn.
 */
static __global__ void
__launch_bounds__(WARPS * 32, 3) grouped_out_kernel(struct grouped p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, grouped_out_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * OUT_ROWS;
	uint8_t *room = grouped_out_memory + p.plan.rows_at + warp * p.plan.warp_bytes;
	uint32_t value = lane / (16 / AT_ONCE); /* which of the warp's sums the lane has */
	const struct vectors x = vectors_of(p.plan, grouped_out_memory);

	PROBE_BEGIN();
	/* The groups were made before the kernel before this one let it begin. */
	const struct cuda_group group = group_at(moe, blockIdx.y);
	const uint8_t *downs = role_at(moe, group.expert, ROLE_DOWN);
	auto row_of = [&](uint32_t turn, uint32_t n) {
		return first + (turn * WARPS + warp) * 2 + n;
	};
	auto pair = [&](uint32_t turn) {
		struct two_rows from;

		for (uint32_t n = 0; n < 2; n++)
			from.of[n] =
			    downs + min(row_of(turn, n), moe.hidden - 1) * moe.row_bytes[ROLE_DOWN];
		return warp_rows<2, struct two_rows>{
			from,   p.plan, room + turn % p.plan.buffers * p.plan.buffer_bytes,
			p.rows, 1,      0
		};
	};
#pragma unroll 1
	for (uint32_t turn = 0; turn < p.plan.buffers && group.count > 0; turn++)
		pair(turn).stage(0, 0);
	previous_done();
	PROBE(PROBE_WAITED);
	let_next_begin();
#pragma unroll 1
	for (uint32_t done = 0; done < group.count; done += AT_ONCE) {
		uint32_t count = min(group.count - done, (uint32_t)AT_ONCE);
		uint32_t slot = members_at(moe, group, done), m = value / 2, n = value % 2;
		float *out = moe.products.at +
			     (uint64_t)__shfl_sync(0xffffffffu, slot, m) * moe.products.stride;

		vectors_gather<AT_ONCE>(p.plan, grouped_out_memory, moe.act, slot, count);
#pragma unroll 1
		for (uint32_t turn = 0; turn < OUT_TURNS; turn++) {
			warp_rows<2, struct two_rows> mine = pair(turn);
			struct many_sums<2, AT_ONCE> sums = {
			};
			float sum;

			if (p.plan.buffers == OUT_TURNS || done + turn == 0) {
				mine.look(0, 0);
			} else {
				__syncwarp();
				mine.stage(0, 0);
			}
			mine.all_times(x, count, sums);
			sum = warp_sums(sums.of);
			if (lane % (16 / AT_ONCE) == 0 && m < count && row_of(turn, n) < moe.hidden)
				out[row_of(turn, n)] = sum;
		}
		__syncthreads();
	}
	PROBE_END();
}

/* h += the products, in the order of chosen. */
static __global__ void
__launch_bounds__(ADD_THREADS) experts_add_kernel(struct cuda_moe moe PROBE_PARAM)
{
	uint32_t i = blockIdx.x * ADD_THREADS + threadIdx.x;
	uint64_t token = blockIdx.y;
	const float *from = moe.products.at + token * moe.top_k * moe.products.stride + i;
	float *h = moe.h.at + token * moe.h.stride + i, sum;

	PROBE_BEGIN();
	previous_done();
	PROBE(PROBE_WAITED);
	let_next_begin();
	if (i < moe.hidden) {
		sum = __ldcg(h);
#pragma unroll 8
		for (uint32_t k = 0; k < moe.top_k; k++)
			sum += __ldcg(from + k * (uint64_t)moe.products.stride);
		*h = sum;
	}
	PROBE_END();
}

int
cuda_grouped_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	dim3 grid((moe->hidden + OUT_ROWS - 1) / OUT_ROWS,
		  CUDA_GROUPS(moe->experts, tokens * moe->top_k));
	struct cuda_wants wants = {};
	struct grouped p = {};
	int r;

	wants.columns = moe->width;
	wants.vectors = AT_ONCE;
	wants.rows = 2;
	wants.segments = 1;
	wants.buffers = OUT_TURNS;
	wants.warps = WARPS;
	wants.types = &moe->type[ROLE_DOWN];
	wants.n_types = 1;
	p.moe = *moe;
	r = cuda_plan_make(&p.plan, &wants, err);
	if (r)
		return r;
	p.rows = staged_rows_of(&p.plan, moe->type[ROLE_DOWN], moe->row_bytes[ROLE_DOWN]);
	r = cuda_launch("grouped_out_kernel", grouped_out_kernel, grid, WARPS * 32, p.plan.bytes,
			stream, err, p);
	return r ? r
		 : cuda_launch("experts_add_kernel", experts_add_kernel,
			       dim3((moe->hidden + ADD_THREADS - 1) / ADD_THREADS, tokens),
			       ADD_THREADS, 0, stream, err, *moe);
}
