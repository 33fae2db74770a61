/* RMS norm, and the router's choice: softmax over all experts, the top_k, weights renormalised. */
#include "worker/cuda_kernels.h"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_rows.cuh"

#define THREADS 256u
#define PAD \
	4u /* floats: the compiler reads arrays in shared memory 16 bytes at a time to the end */

static __host__ __device__ uint32_t
padded(uint32_t n)
{
	return (n + PAD - 1) / PAD * PAD;
}

/* Over a block of THREADS, in one order; every thread gets the result.  `room`: THREADS / 32. */
static __device__ float
block_sum(float value, float *room)
{
	float sum = 0;

	value = warp_sum(value);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = value;
	__syncthreads();
	for (uint32_t i = 0; i < THREADS / 32; i++)
		sum += room[i];
	return sum;
}

static __device__ float
block_max(float value, float *room)
{
	for (int step = 16; step > 0; step /= 2)
		value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, step));
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		room[threadIdx.x / 32] = value;
	__syncthreads();
	for (uint32_t i = 0; i < THREADS / 32; i++)
		value = fmaxf(value, room[i]);
	return value;
}

static __global__ void
__launch_bounds__(THREADS) norm_kernel(struct cuda_rows from, const float *weight, float epsilon,
				       uint32_t columns, struct cuda_rows to)
{
	__shared__ float room[THREADS / 32];
	const float *x = from.at + (uint64_t)blockIdx.x * from.stride;
	float *out = to.at + (uint64_t)blockIdx.x * to.stride;
	float squares = 0, scale;

	for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
		squares = fmaf(x[i], x[i], squares);
	scale = 1.0f / sqrtf(block_sum(squares, room) / (float)columns + epsilon);
	for (uint32_t i = threadIdx.x; i < columns; i += THREADS)
		out[i] = x[i] * scale * weight[i];
}

extern "C" int
cuda_norm(void *stream, struct cuda_rows from, const float *weight, float epsilon, uint32_t columns,
	  struct cuda_rows to, uint32_t tokens, struct error *err)
{
	return cuda_launch("norm_kernel", norm_kernel, tokens, THREADS, 0, stream, err, from,
			   weight, epsilon, columns, to);
}

/* An expert's rank is the number of experts before it: likelier, or as likely and of lower index.
 * A NaN counts as least likely, so that ranks are a permutation whatever the logits are. */
static __global__ void
__launch_bounds__(THREADS) choose_kernel(struct cuda_moe moe)
{
	CUDA_SHARED(float, likely); /* (experts), then (top_k), each padded to whole PADs */
	__shared__ float room[THREADS / 32];
	float *picked = likely + padded(moe.experts);
	const float *logits = moe.logits.at + (uint64_t)blockIdx.x * moe.logits.stride;
	uint32_t *chosen = moe.chosen + (uint64_t)blockIdx.x * moe.top_k;
	float *weights = moe.weights + (uint64_t)blockIdx.x * moe.top_k;
	float top = -INFINITY, sum = 0;

	for (uint32_t e = threadIdx.x; e < moe.experts; e += THREADS)
		top = fmaxf(top, logits[e]);
	top = block_max(top, room);
	for (uint32_t e = threadIdx.x; e < moe.experts; e += THREADS) {
		likely[e] = expf(logits[e] - top);
		sum += likely[e];
	}
	sum = block_sum(sum, room);
	for (uint32_t e = threadIdx.x; e < moe.experts; e += THREADS) {
		float share = likely[e] / sum;

		likely[e] = isnan(share) ? -1.0f : share;
	}
	__syncthreads();
	for (uint32_t e = threadIdx.x; e < moe.experts; e += THREADS) {
		float mine = likely[e];
		uint32_t rank = 0;

		for (uint32_t i = 0; i < moe.experts; i++)
			rank += likely[i] > mine || (likely[i] == mine && i < e);
		if (rank < moe.top_k) {
			chosen[rank] = e;
			picked[rank] = mine;
			if (moe.used)
				atomicAdd(&moe.used[e], 1ull);
		}
	}
	__syncthreads();
	sum = 0;
	for (uint32_t k = 0; k < moe.top_k; k++)
		sum += picked[k];
	for (uint32_t k = threadIdx.x; k < moe.top_k; k += THREADS)
		weights[k] = picked[k] / sum;
}

extern "C" int
cuda_choose(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	size_t shared = (padded(moe->experts) + padded(moe->top_k)) * sizeof(float);

	return cuda_launch("choose_kernel", choose_kernel, tokens, THREADS, shared, stream, err,
			   *moe);
}
