/* Matrix times vector: a warp a row.  Trunk matrices, the embedding's rows, the experts. */
#include "worker/cuda_kernels.h"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_types.cuh"

#define WARPS 8u /* a block's */

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

static __global__ void
embed_kernel(struct cuda_matrix embedding, uint32_t columns, const struct cuda_input *in,
	     struct cuda_rows to)
{
	const uint8_t *row =
	    (const uint8_t *)embedding.at + (uint64_t)in->ids[blockIdx.x] * embedding.row_bytes;
	float *out = to.at + (uint64_t)blockIdx.x * to.stride;

	switch (embedding.type) {
#define EMBED_CASE(T)                                                      \
	case T::TYPE:                                                      \
		row_unpack<T>(row, out, columns, threadIdx.x, blockDim.x); \
		break;
		CUDA_TYPES(EMBED_CASE)
#undef EMBED_CASE
	}
}

extern "C" int
cuda_embed(void *stream, const struct cuda_matrix *embedding, uint32_t columns,
	   const struct cuda_input *in, struct cuda_rows to, uint32_t tokens, struct error *err)
{
	embed_kernel<<<tokens, 128, 0, (cudaStream_t)stream>>>(*embedding, columns, in, to);
	return cuda_launched("embed_kernel", err);
}

static __global__ void
__launch_bounds__(WARPS * 32)
    multiply_kernel(struct cuda_matrices m, struct cuda_rows from, struct cuda_rows to, bool add)
{
	uint32_t lane = threadIdx.x % 32, output = blockIdx.x * WARPS + threadIdx.x / 32;
	uint32_t token = blockIdx.y, row = output;
	struct cuda_matrix matrix = m.of[0];
	float value, *out;

	/* By constant indices: a computed one would move the parameters to local memory. */
#pragma unroll
	for (uint32_t i = 1; i < 3; i++) {
		if (i < m.n && row >= matrix.rows) {
			row -= matrix.rows;
			matrix = m.of[i];
		}
	}
	if (row >= matrix.rows)
		return;
	value = any_row_times(matrix.type, (const uint8_t *)matrix.at + row * matrix.row_bytes,
			      from.at + (uint64_t)token * from.stride, m.columns, lane);
	out = to.at + (uint64_t)token * to.stride + output;
	if (lane == 0)
		*out = add ? *out + value : value;
}

extern "C" int
cuda_multiply(void *stream, const struct cuda_matrices *matrices, struct cuda_rows from,
	      struct cuda_rows to, bool add, uint32_t tokens, struct error *err)
{
	uint32_t rows = 0;

	for (uint32_t i = 0; i < matrices->n; i++)
		rows += matrices->of[i].rows;
	multiply_kernel<<<dim3((rows + WARPS - 1) / WARPS, tokens), WARPS * 32, 0,
			  (cudaStream_t)stream>>>(*matrices, from, to, add);
	return cuda_launched("multiply_kernel", err);
}

static __device__ __forceinline__ float
expert_row_times(const struct cuda_moe &moe, uint32_t expert, enum role role, uint32_t row,
		 const float *x, uint32_t columns, uint32_t lane)
{
	const uint8_t *matrix = (const uint8_t *)moe.places[expert].role[role];

	return any_row_times(moe.type[role], matrix + row * moe.row_bytes[role], x, columns, lane);
}

/* A warp a row of gate and up both, so that neither leaves the chip. */
static __global__ void
__launch_bounds__(WARPS * 32) experts_in_kernel(struct cuda_moe moe)
{
	uint32_t lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
	uint64_t slot = (uint64_t)blockIdx.z * moe.top_k + blockIdx.y;
	const float *x = moe.x.at + (uint64_t)blockIdx.z * moe.x.stride;
	uint32_t expert = moe.chosen[slot];
	float gate, up;

	if (row >= moe.width)
		return;
	gate = expert_row_times(moe, expert, ROLE_GATE, row, x, moe.hidden, lane);
	up = expert_row_times(moe, expert, ROLE_UP, row, x, moe.hidden, lane);
	if (lane == 0)
		moe.act.at[slot * moe.act.stride + row] = gate / (1.0f + expf(-gate)) * up;
}

extern "C" int
cuda_experts_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	dim3 grid((moe->width + WARPS - 1) / WARPS, moe->top_k, tokens);

	experts_in_kernel<<<grid, WARPS * 32, 0, (cudaStream_t)stream>>>(*moe);
	return cuda_launched("experts_in_kernel", err);
}

/* A block a row; each warp takes some of the chosen experts, and one thread adds them up in the
 * order of chosen. */
static __global__ void
__launch_bounds__(WARPS * 32) experts_out_kernel(struct cuda_moe moe)
{
	extern __shared__ float parts[]; /* (top_k) */
	uint32_t lane = threadIdx.x % 32, row = blockIdx.x, token = blockIdx.y;
	float *out = moe.h.at + (uint64_t)token * moe.h.stride + row;

	for (uint32_t k = threadIdx.x / 32; k < moe.top_k; k += blockDim.x / 32) {
		uint64_t slot = (uint64_t)token * moe.top_k + k;
		float value = expert_row_times(moe, moe.chosen[slot], ROLE_DOWN, row,
					       moe.act.at + slot * moe.act.stride, moe.width, lane);

		if (lane == 0)
			parts[k] = moe.weights[slot] * value;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		float sum = 0;

		for (uint32_t k = 0; k < moe.top_k; k++)
			sum += parts[k];
		*out += sum;
	}
}

extern "C" int
cuda_experts_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	uint32_t warps = moe->top_k < WARPS ? moe->top_k : WARPS;

	experts_out_kernel<<<dim3(moe->hidden, tokens), warps * 32, (moe->top_k + 3) / 4 * 16,
			     (cudaStream_t)stream>>>(*moe);
	return cuda_launched("experts_out_kernel", err);
}

extern "C" int
cuda_finish(void *stream, struct error *err)
{
	return cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "waiting for kernels", err);
}
