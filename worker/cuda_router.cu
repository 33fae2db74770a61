/* The router: a token's vector normed, for the router's rows and for the experts, and the choice of
 * experts by the block that has the last of the logits. */
#include "worker/cuda_join.cuh"
#include "worker/cuda_kernels.h"
#include "worker/cuda_piece.cuh"
#include "worker/cuda_plan.cuh"
#include "worker/cuda_share.cuh"

#define WARPS 8u
#define THREADS (WARPS * 32)

static_assert(THREADS / 2 % 32 == 0, "two threads an expert, whole warps");

/* A block's columns of the normed vector to where the experts read it: a warp 128 of them. */
static __device__ __forceinline__ void
normed_store(const struct cuda_vectors &to, uint64_t token, const float *x, uint32_t columns)
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

/* Softmax, by every warp for itself.  What an expert has comes as a number that grows with it; a
 * NaN is 0, and so counts as least likely. */
static __device__ __forceinline__ void
softmax(const float *logits, uint32_t experts, uint32_t *keys, uint32_t padded)
{
	uint32_t lane = threadIdx.x % 32;
	float top = -INFINITY, sum = 0;

	for (uint32_t e = lane; e < experts; e += 32)
		top = fmaxf(top, logits[e]);
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
	for (uint32_t e = lane; e < experts; e += 32)
		sum += expf(logits[e] - top);
	sum = warp_sum(sum);
	for (uint32_t e = threadIdx.x; e < padded; e += THREADS) {
		float probability = e < experts ? expf(logits[e] - top) / sum : 0;

		keys[e] = e >= experts || isnan(probability) ? 0 : __float_as_uint(probability) + 1;
	}
}

static __device__ __forceinline__ float
probability_of(uint32_t key)
{
	return key == 0 ? -1.0f : __uint_as_float(key - 1);
}

#define WINDOW 16u /* keys; a warp's experts are one of them */

static_assert(THREADS / 2 % WINDOW == 0, "so that each warp begins with a window");

/* How many of the keys begin..end - 1, whole windows, come before key e: greater, or equal and of
 * lower index. */
static __device__ __forceinline__ uint32_t
keys_before(const uint32_t *keys, uint32_t begin, uint32_t end, uint32_t e)
{
	uint32_t mine = keys[e], own = e / WINDOW * WINDOW, n = 0;

#pragma unroll 1
	for (uint32_t i = begin; i < end; i += WINDOW) {
		uint32_t least = mine + (i > own);

		if (i == own) {
#pragma unroll
			for (uint32_t j = 0; j < WINDOW; j++)
				n += keys[i + j] >= mine + (i + j >= e);
			continue;
		}
#pragma unroll
		for (uint32_t j = 0; j < WINDOW; j += 4) {
			uint4 other = *(const uint4 *)(keys + i + j);

			n += other.x >= least;
			n += other.y >= least;
			n += other.z >= least;
			n += other.w >= least;
		}
	}
	return n;
}

static __host__ __device__ __forceinline__ uint32_t
keys_padded(uint32_t experts)
{
	return (experts + 2 * WINDOW - 1) / (2 * WINDOW) * (2 * WINDOW);
}

/* Shared memory of the choice: logits and keys (padded), probabilities of the chosen. */
static __host__ __device__ __forceinline__ uint32_t
choice_bytes(uint32_t experts, uint32_t top_k)
{
	return (2 * keys_padded(experts) + (top_k + 3) / 4 * 4) * 4;
}

/* By the whole block, in the memory of its rows.  An expert's rank is the number of experts before
 * it: so ranks are a permutation whatever the logits are. */
static __device__ __forceinline__ void
choose(const struct cuda_moe &moe, uint64_t token, float *memory)
{
	uint32_t padded = keys_padded(moe.experts), half = threadIdx.x % 2 * (padded / 2);
	uint32_t *keys = (uint32_t *)(memory + padded);
	float *logits = memory, *picked = memory + 2 * padded, sum = 0;

	for (uint32_t e = threadIdx.x; e < moe.experts; e += THREADS)
		logits[e] = __ldcg(moe.logits.at + token * moe.logits.stride + e);
	__syncthreads();
	softmax(logits, moe.experts, keys, padded);
	__syncthreads();
	for (uint32_t first = 0; first < moe.experts; first += THREADS / 2) {
		uint32_t e = first + threadIdx.x / 2, index = min(e, moe.experts - 1);
		uint32_t rank = keys_before(keys, half, half + padded / 2, index);

		rank += __shfl_xor_sync(0xffffffffu, rank, 1);
		if (rank >= moe.top_k || e >= moe.experts || half > 0)
			continue;
		moe.chosen[token * moe.top_k + rank] = e;
		picked[rank] = probability_of(keys[e]);
		if (moe.used)
			atomicAdd(&moe.used[e], 1ull);
	}
	__syncthreads();
	for (uint32_t k = 0; k < moe.top_k; k++)
		sum += picked[k];
	for (uint32_t k = threadIdx.x; k < moe.top_k; k += THREADS)
		moe.weights[token * moe.top_k + k] = picked[k] / sum;
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
	uint32_t warp = threadIdx.x / 32, row = blockIdx.x * WARPS + warp;
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
	/* What is left is not waited for here. */
	if (last_to_arrive(moe.arrived + token, gridDim.x, &own->last)) {
		choose(moe, token, (float *)(route_memory + p.plan.rows_at));
		if (moe.share.order)
			order(moe, x);
	}
	PROBE(PROBE_ARRIVED);
	normed_store(moe.x, token, x, moe.hidden);
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
