/* The router: a token's vector normed, for the router's rows and for the experts, and the choice of
 * experts by the block that has the last of the logits. */
#include "worker/cuda_choice.cuh"
#include "worker/cuda_join.cuh"
#include "worker/cuda_kernels.h"
#include "worker/cuda_piece.cuh"
#include "worker/cuda_plan.cuh"
#include "worker/cuda_share.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)

static_assert(THREADS == CHOICE_THREADS, "a block chooses");

/* A block's columns of the normed vector to where the experts read it: a warp 128 of them.  By all
 * warps but the first, which has more to do. */
static __device__ __forceinline__ void
normed_store(const struct cuda_vectors &to, uint64_t token, const float *x, uint32_t columns)
{
	uint32_t warp = blockIdx.x + gridDim.x * (threadIdx.x / 32 - 1);
	float *row = to.rows.at + token * to.rows.stride;

	for (uint32_t begin = 128 * warp; begin < columns; begin += 128 * (WARPS - 1) * gridDim.x) {
		uint32_t column = begin + 4 * (threadIdx.x % 32);
		float4 v =
		    column < columns ? *(const float4 *)(x + column) : make_float4(0, 0, 0, 0);

		fixed_store(to.fixed.at + token * to.fixed.stride, column, v, column < columns);
		if (column < columns)
			*(float4 *)(row + column) = v;
	}
}

/* By the whole block, behind its choice: leaves experts to the CPU, with what it wants of x. */
static __device__ __forceinline__ void
order(const struct cuda_moe &moe, const float *x)
{
	__syncthreads();
	if (threadIdx.x < 32)
		share_give(moe);
	__syncthreads();
	if (!share_any_given(moe.share, moe.top_k))
		return;
	for (uint32_t begin = threadIdx.x / 32 * 128; begin < moe.hidden; begin += 128 * WARPS) {
		uint32_t column = begin + 4 * (threadIdx.x % 32);
		bool mine = column < moe.hidden;

		fixed_store(share_vector(moe.share), column,
			    mine ? *(const float4 *)(x + column) : make_float4(0, 0, 0, 0), mine);
	}
	share_order(moe.share);
}

/* By the whole block, behind a barrier, in the memory of its rows: if it is the last. */
static __device__ __forceinline__ void
choose(const struct cuda_moe &moe, uint64_t token, const float *x, uint8_t *memory, uint32_t *last)
{
	uint32_t *arrived = moe.arrived + token;

	if (choice_is_of_few(moe.experts, moe.top_k)) {
		if (threadIdx.x < 32) {
			bool chooses = last_to_arrive_of_warp(arrived, gridDim.x);

			if (chooses) {
				PROBE(PROBE_ARRIVED);
				choose_of_few(moe, token, (struct few_room *)memory);
			}
			*last = chooses;
		}
		if (!moe.share.order)
			return;
		__syncthreads();
		if (!*last)
			return;
	} else {
		if (!last_to_arrive(arrived, gridDim.x, last))
			return;
		PROBE(PROBE_ARRIVED);
		choose_of_many(moe, token, (float *)memory);
	}
	if (moe.share.order)
		order(moe, x);
}

struct route {
	struct cuda_moe moe;
	struct cuda_plan plan;
	struct staged_rows rows;
};

/* A block's own memory. */
struct route_own {
	float room[WARPS];
	struct landing landings[WARPS];
	uint32_t last;
};

/* A warp a row of the router. */
static __global__ void
__launch_bounds__(THREADS) route_kernel(struct route p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, route_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t warp = threadIdx.x / 32;
	uint32_t row = blockIdx.x * WARPS + warp;
	uint64_t token = blockIdx.y;
	float *x = (float *)(route_memory + p.plan.floats_at);
	float sums[1] = {};
	struct route_own *own = (struct route_own *)(route_memory + p.plan.own_at);
	const uint8_t *at = (const uint8_t *)moe.router.at + (uint64_t)row * p.rows.row_bytes;
	uint8_t *rows = route_memory + p.plan.rows_at + warp * p.plan.warp_bytes;
	const struct warp_piece<1> mine = {
		p.plan, at, p.rows, 1, rows, own->landings + warp
	};

	PROBE_BEGIN();
	norm_ask(moe.norm, moe.hidden, x);
	if (row < moe.experts)
		mine.stage();
	row_norm<WARPS>(moe.h.at + token * moe.h.stride, moe.norm, moe.hidden, x, own->room,
			p.plan.fixed ? route_memory : NULL, x);
	__syncthreads();
	PROBE(PROBE_LOADED);
	/* Not before: what the next kernel asks for would be in the way of h. */
	let_next_begin();
	if (row < moe.experts) {
		mine.times(vectors_of(p.plan, route_memory), sums);
		sums[0] = warp_sum(sums[0]);
		if (threadIdx.x % 32 == 0)
			moe.logits.at[token * moe.logits.stride + row] = sums[0];
	}
	PROBE(PROBE_MULTIPLIED);
	__syncthreads();
	if (threadIdx.x >= 32)
		normed_store(moe.x, token, x, moe.hidden);
	choose(moe, token, x, route_memory + p.plan.rows_at, &own->last);
	PROBE_END();
}

extern "C" int
cuda_route(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	struct cuda_wants wants = {};
	struct route p = {};
	uint32_t choice;
	int r;

	wants.columns = moe->hidden;
	wants.vectors = 1;
	wants.rows = 1;
	wants.segments = 1;
	wants.buffers = 1;
	wants.warps = WARPS;
	wants.norm = true;
	wants.landed = true;
	wants.own_bytes = sizeof(struct route_own);
	wants.types = &moe->router.type;
	wants.n_types = 1;
	r = cuda_plan_make(&p.plan, &wants, err);
	if (r)
		return r;
	choice = p.plan.rows_at + choice_bytes(moe->experts, moe->top_k);
	p.moe = *moe;
	p.rows = staged_rows_of(&p.plan, moe->router.type, moe->router.row_bytes);
	return cuda_launch("route_kernel", route_kernel,
			   dim3((moe->experts + WARPS - 1) / WARPS, tokens), dim3(THREADS),
			   p.plan.bytes > choice ? p.plan.bytes : choice, stream, err, p);
}
