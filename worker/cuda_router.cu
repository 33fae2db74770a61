/* The router: a token's vector normed, for the router's rows and for the experts, and the choice of
 * experts by the block that has the last of the logits. */
extern "C" {
#include "proto/limits.h"
}
#include "worker/cuda_join.cuh"
#include "worker/cuda_kernels.h"
#include "worker/cuda_plan.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)

#define FEW 4u /* experts of a lane; else up to MANY */
#define MANY (MAX_EXPERTS / 32)

/* A block's share of the normed vector to where the experts read it: a warp 128 columns. */
static __device__ __forceinline__ void
share_store(const struct cuda_vectors &to, uint64_t token, const float *x, uint32_t columns)
{
	uint32_t warp = blockIdx.x + gridDim.x * (threadIdx.x / 32);
	float *row = to.rows.at + token * to.rows.stride;

	for (uint32_t begin = 128 * warp; begin < columns; begin += 128 * WARPS * gridDim.x) {
		uint32_t column = begin + 4 * (threadIdx.x % 32);
		float4 v =
		    column < columns ? *(const float4 *)(x + column) : make_float4(0, 0, 0, 0);

		fixed_store(to.fixed.at + token * to.fixed.stride, column, v, column < columns);
		if (column < columns)
			*(float4 *)(row + column) = v;
	}
}

/* What the choice leaves in shared memory. */
struct choice_room {
	uint32_t keys[MAX_EXPERTS];
	float picked[MAX_EXPERTS]; /* (top_k) */
};

/* Softmax, by every warp for itself, of which lane l has experts l, l + 32, ...  What an expert has
 * comes as a number that grows with it; a NaN is 0, and so counts as least likely. */
template <uint32_t PER>
static __device__ __forceinline__ void
softmax(const float *logits, uint32_t experts, uint32_t (&keys)[PER])
{
	uint32_t lane = threadIdx.x % 32;
	float logit[PER], top = -INFINITY, sum = 0;

#pragma unroll
	for (uint32_t i = 0; i < PER; i++)
		logit[i] = lane + 32 * i < experts ? __ldcg(logits + lane + 32 * i) : -INFINITY;
#pragma unroll
	for (uint32_t i = 0; i < PER; i++)
		top = fmaxf(top, logit[i]);
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
#pragma unroll
	for (uint32_t i = 0; i < PER; i++) {
		logit[i] = lane + 32 * i < experts ? expf(logit[i] - top) : 0;
		sum += logit[i];
	}
	sum = warp_sum(sum);
#pragma unroll
	for (uint32_t i = 0; i < PER; i++) {
		float share = logit[i] / sum;

		keys[i] = lane + 32 * i >= experts || isnan(share) ? 0 : __float_as_uint(share) + 1;
	}
}

static __device__ __forceinline__ float
share_of(uint32_t key)
{
	return key == 0 ? -1.0f : __uint_as_float(key - 1);
}

/* How many experts come before expert e: greater keys, or equal ones of lower index. */
template <uint32_t PER>
static __device__ __forceinline__ uint32_t
rank_of(const uint32_t (&keys)[PER], uint32_t e, uint32_t key)
{
	uint32_t n = 0;

#pragma unroll
	for (uint32_t i = 0; i < PER; i++)
		n += (uint32_t)__popc(
		    __ballot_sync(0xffffffffu, keys[i] >= key + (threadIdx.x % 32 + 32 * i >= e)));
	return n;
}

/* By the whole block.  An expert's rank is the number of experts before it: so ranks are a
 * permutation whatever the logits are. */
template <uint32_t PER>
static __device__ __forceinline__ void
choose(const struct cuda_moe &moe, uint64_t token, struct choice_room *room)
{
	uint32_t keys[PER], lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	float sum = 0;

	softmax(moe.logits.at + token * moe.logits.stride, moe.experts, keys);
#pragma unroll
	for (uint32_t i = 0; i < PER; i++)
		if (i % WARPS == warp)
			room->keys[lane + 32 * i] = keys[i];
	__syncthreads();
#pragma unroll 4
	for (uint32_t e = warp; e < moe.experts; e += WARPS) {
		uint32_t key = room->keys[e], rank = rank_of(keys, e, key);

		if (rank >= moe.top_k || lane > 0)
			continue;
		moe.chosen[token * moe.top_k + rank] = e;
		room->picked[rank] = share_of(key);
		if (moe.used)
			atomicAdd(&moe.used[e], 1ull);
	}
	__syncthreads();
	for (uint32_t k = 0; k < moe.top_k; k++)
		sum += room->picked[k];
	for (uint32_t k = threadIdx.x; k < moe.top_k; k += THREADS)
		moe.weights[token * moe.top_k + k] = room->picked[k] / sum;
}

struct route {
	struct cuda_moe moe;
	struct cuda_plan plan;
	struct staged_rows rows;
};

/* A warp a row of the router. */
static __global__ void
__launch_bounds__(THREADS) route_kernel(struct route p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, route_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t row = blockIdx.x * WARPS + threadIdx.x / 32;
	uint64_t token = blockIdx.y;
	float *x = (float *)(route_memory + p.plan.floats_at);
	float *room = (float *)(route_memory + p.plan.own_at), sums[1] = {};
	const uint8_t *at = (const uint8_t *)moe.router.at + (uint64_t)row * p.rows.row_bytes;
	auto from = [&](uint32_t, uint32_t) { return at; };
	warp_rows<1, decltype(from)> mine = {
		from,
		p.plan,
		route_memory + p.plan.rows_at + threadIdx.x / 32 * p.plan.warp_bytes,
		p.rows,
		1,
		0
	};

	PROBE_BEGIN();
	let_next_begin();
	if (row < moe.experts)
		mine.stage(0, 0);
	row_norm(moe.h.at + token * moe.h.stride, moe.norm, moe.hidden, x, room,
		 p.plan.fixed ? route_memory : NULL, x);
	__syncthreads();
	PROBE(PROBE_LOADED);
	share_store(moe.x, token, x, moe.hidden);
	if (row < moe.experts) {
		mine.all_times(vectors_of(p.plan, route_memory), sums);
		sums[0] = warp_sum(sums[0]);
		if (threadIdx.x % 32 == 0)
			moe.logits.at[token * moe.logits.stride + row] = sums[0];
	}
	PROBE(PROBE_MULTIPLIED);
	if (last_to_arrive(moe.arrived + token, gridDim.x, (uint32_t *)(room + WARPS))) {
		struct choice_room *choice = (struct choice_room *)(route_memory + p.plan.rows_at);

		if (moe.experts <= 32 * FEW)
			choose<FEW>(moe, token, choice);
		else
			choose<MANY>(moe, token, choice);
	}
	PROBE(PROBE_ARRIVED);
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
	wants.own_bytes = (WARPS + 1) * sizeof(float);
	wants.types = &moe->router.type;
	wants.n_types = 1;
	r = cuda_plan_make(&p.plan, &wants, err);
	if (r)
		return r;
	choice = p.plan.rows_at + (uint32_t)sizeof(struct choice_room);
	p.moe = *moe;
	p.rows = staged_rows_of(&p.plan, moe->router.type, moe->router.row_bytes);
	return cuda_launch("route_kernel", route_kernel,
			   dim3((moe->experts + WARPS - 1) / WARPS, tokens), dim3(THREADS),
			   p.plan.bytes > choice ? p.plan.bytes : choice, stream, err, p);
}
