/* The choice of a token's experts from their logits: softmax, the likeliest, their weights. */
#ifndef HEARTH_WORKER_CUDA_CHOICE_CUH
#define HEARTH_WORKER_CUDA_CHOICE_CUH

#include "worker/cuda_kernels.h"
#include "worker/cuda_ptx.cuh"
#include "worker/cuda_rows.cuh"

#define CHOICE_THREADS 256u

static_assert(CHOICE_THREADS / 2 % 32 == 0, "two threads an expert, whole warps");

/* What an expert has of the softmax, as a number that grows with it; a NaN is 0, and so counts as
 * least likely. */
static __device__ __forceinline__ uint32_t
key_of(float probability)
{
	return isnan(probability) ? 0 : __float_as_uint(probability) + 1;
}

static __device__ __forceinline__ float
probability_of(uint32_t key)
{
	return key == 0 ? -1.0f : __uint_as_float(key - 1);
}

/* -- by a block -- */

/* By every warp for itself; then the keys by all. */
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
	for (uint32_t e = threadIdx.x; e < padded; e += CHOICE_THREADS)
		keys[e] = e < experts ? key_of(expf(logits[e] - top) / sum) : 0;
}

#define WINDOW 16u /* keys; a warp's experts are one of them */

static_assert(CHOICE_THREADS / 2 % WINDOW == 0, "so that each warp begins with a window");

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

/* By the whole block.  An expert's rank is the number of experts before it: so ranks are a
 * permutation whatever the logits are. */
static __device__ __forceinline__ void
choose_of_many(const struct cuda_moe &moe, uint64_t token, float *memory)
{
	const uint32_t padded = keys_padded(moe.experts), half = threadIdx.x % 2 * (padded / 2);
	uint32_t *keys = (uint32_t *)(memory + padded);
	float *logits = memory, *picked = memory + 2 * padded, sum = 0;

	for (uint32_t e = threadIdx.x; e < moe.experts; e += CHOICE_THREADS)
		logits[e] = __ldcg(moe.logits.at + token * moe.logits.stride + e);
	__syncthreads();
	softmax(logits, moe.experts, keys, padded);
	__syncthreads();
	for (uint32_t first = 0; first < moe.experts; first += CHOICE_THREADS / 2) {
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
	for (uint32_t k = threadIdx.x; k < moe.top_k; k += CHOICE_THREADS)
		moe.weights[token * moe.top_k + k] = picked[k] / sum;
}

/* -- by a warp -- */

#define FEW_EXPERTS 128u
#define FEW_CHOSEN 8u

static __host__ __device__ __forceinline__ bool
choice_is_of_few(uint32_t experts, uint32_t top_k)
{
	return experts <= FEW_EXPERTS && top_k <= FEW_CHOSEN;
}

struct few_room {
	float exps[FEW_EXPERTS];
	uint32_t greatest[32]; /* key of each lane */
	uint32_t candidates[FEW_CHOSEN * 4];
	uint32_t first[FEW_CHOSEN]; /* expert of each four candidates */
	float picked[FEW_CHOSEN];
};

/* The greatest of a warp's values, none of which is a NaN, for all its lanes. */
static __device__ __forceinline__ float
warp_greatest(float value)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
	uint32_t bits = __float_as_uint(value), most;

	most = __reduce_max_sync(0xffffffffu, bits >> 31 ? ~bits : bits | 1u << 31);
	return __uint_as_float(most >> 31 ? most ^ 1u << 31 : ~most);
#else
#pragma unroll
	for (int step = 16; step > 0; step /= 2)
		value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
	return value;
#endif
}

/* Four quotients side by side, each by the steps that the device's own `/` takes where nothing on
 * the way leaves the normal numbers.  by: a NaN, or from 1 to FEW_EXPERTS. */
static __device__ __forceinline__ float4
quotients(float4 of, float by)
{
	float inverse = inverse_fast(by), q[4] = { of.x, of.y, of.z, of.w };
	bool tiny = false;

	inverse = fmaf(inverse, fmaf(-by, inverse, 1.0f), inverse);
#pragma unroll
	for (uint32_t i = 0; i < 4; i++) {
		float x = q[i], first = x * inverse;

		tiny = tiny || (x > 0 && x < 1e-27f);
		q[i] = fmaf(inverse, fmaf(-by, first, x), first);
	}
	if (tiny)
		return make_float4(of.x / by, of.y / by, of.z / by, of.w / by);
	return make_float4(q[0], q[1], q[2], q[3]);
}

/* 1 if the key is greater than `most`; both are less than 2^31. */
static __device__ __forceinline__ uint32_t
greater(uint32_t key, uint32_t most)
{
	return (most - key) >> 31;
}

/* How many of `keys`, one a lane, come before the lane's own: greater, or equal and of a lower
 * lane. Quads of lanes by what their number differs in: its highest bit says which of two is lower.
 */
static __device__ __forceinline__ uint32_t
lanes_before(const uint32_t *keys, uint32_t mine)
{
	uint32_t lane = threadIdx.x % 32, n[4] = {};

#pragma unroll
	for (uint32_t differs = 0; differs < 8; differs++) {
		uint4 other = *(const uint4 *)(keys + 4 * (lane / 4 ^ differs));
		uint32_t bit = differs >= 4 ? 16 : differs >= 2 ? 8 : 4;
		uint32_t most = mine - ((lane & bit) != 0);

		n[0] += greater(other.x, differs ? most : mine - (lane % 4 > 0));
		n[1] += greater(other.y, differs ? most : mine - (lane % 4 > 1));
		n[2] += greater(other.z, differs ? most : mine - (lane % 4 > 2));
		n[3] += greater(other.w, differs ? most : mine);
	}
	return n[0] + n[1] + (n[2] + n[3]);
}

/* Keys of four experts of each lane, from 4 * lane on: those of the softmax that a block makes.  A
 * logit of -INFINITY adds nothing to a sum that is a number. */
static __device__ __forceinline__ uint4
few_keys(const float *logits, uint32_t experts, float *exps)
{
	uint32_t lane = threadIdx.x % 32;
	float v[4], top = -INFINITY, sum = 0;
	float4 mine;

#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		v[i] = lane + 32 * i < experts ? __ldcg(logits + lane + 32 * i) : -INFINITY;
#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		top = fmaxf(top, v[i]);
	top = warp_greatest(top);
#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		sum += expf(v[i] - top);
		/* Once more: the sum has each without its last rounding. */
#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		exps[lane + 32 * i] = expf(apart(v[i]) - top);
	sum = warp_sum(sum);
	__syncwarp();
	mine = quotients(((const float4 *)exps)[lane], sum);
	return make_uint4(4 * lane < experts ? key_of(mine.x) : 0,
			  4 * lane + 1 < experts ? key_of(mine.y) : 0,
			  4 * lane + 2 < experts ? key_of(mine.z) : 0,
			  4 * lane + 3 < experts ? key_of(mine.w) : 0);
}

/* By one warp: the very same.  Whoever is chosen is one of the four experts of a lane that fewer
 * than FEW_CHOSEN lanes have a greater one than: these are a candidate a lane, in the order of
 * their index. */
static __device__ __forceinline__ void
choose_of_few(const struct cuda_moe &moe, uint64_t token, struct few_room *room)
{
	uint32_t lane = threadIdx.x % 32, mine, stay, rank, expert;
	uint4 keys = few_keys(moe.logits.at + token * moe.logits.stride, moe.experts, room->exps);
	float probability, sum = 0;

	mine = max(max(keys.x, keys.y), max(keys.z, keys.w));
	room->greatest[lane] = mine;
	__syncwarp();
	stay = __ballot_sync(0xffffffffu, lanes_before(room->greatest, mine) < FEW_CHOSEN);
	if (stay >> lane & 1) {
		uint32_t place = __popc(stay & ((1u << lane) - 1));

		((uint4 *)room->candidates)[place] = keys;
		room->first[place] = 4 * lane;
	}
	__syncwarp();
	mine = room->candidates[lane];
	expert = room->first[lane / 4] + lane % 4;
	rank = lanes_before(room->candidates, mine);
	probability = probability_of(mine);
	if (rank < moe.top_k)
		room->picked[rank] = probability;
	__syncwarp();
#pragma unroll
	for (uint32_t k = 0; k < FEW_CHOSEN; k++)
		if (k < moe.top_k)
			sum += room->picked[k];
	if (rank >= moe.top_k)
		return;
	moe.chosen[token * moe.top_k + rank] = expert;
	moe.weights[token * moe.top_k + rank] = probability / sum;
	if (moe.used)
		atomicAdd(&moe.used[expert], 1ull);
}

/* Shared memory of either. */
static __host__ __device__ __forceinline__ uint32_t
choice_bytes(uint32_t experts, uint32_t top_k)
{
	if (choice_is_of_few(experts, top_k))
		return (uint32_t)sizeof(struct few_room);
	return (2 * keys_padded(experts) + (top_k + 3) / 4 * 4) * 4;
}

#endif
