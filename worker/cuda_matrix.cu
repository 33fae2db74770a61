/* Matrix times vector: a warp for two rows, so that x is read once for both.  Trunk matrices, the
 * embedding's rows, the experts. */
#include "worker/cuda_kernels.h"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_rows.cuh"

#define WARPS 4u         /* a block's */
#define OUT_WARPS_MAX 8u /* of experts_out_kernel */

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
	return cuda_launch("embed_kernel", embed_kernel, tokens, 128, 0, stream, err, *embedding,
			   columns, in, to);
}

/* Two rows from `row` on; the second is the first again where the matrix ends, and not for use. */
static __device__ __forceinline__ void
pair_times(uint32_t type, const uint8_t *matrix, uint64_t row_bytes, uint32_t row, bool both,
	   const float *x, uint32_t columns, uint32_t lane, float (&sums)[2])
{
	const uint8_t *first = matrix + row * row_bytes;
	const uint8_t *const rows[2] = { first, both ? first + row_bytes : first };

	any_rows_times<2>(type, rows, x, columns, lane, sums);
}

static __host__ __device__ uint32_t
pairs_of(uint32_t rows)
{
	return rows / 2 + rows % 2;
}

static __global__ void
__launch_bounds__(WARPS * 32)
    multiply_kernel(struct cuda_matrices m, struct cuda_rows from, struct cuda_rows to, bool add)
{
	uint32_t lane = threadIdx.x % 32, pair = blockIdx.x * WARPS + threadIdx.x / 32;
	uint32_t token = blockIdx.y, output = 0;
	struct cuda_matrix matrix = m.of[0];
	float sums[2] = { 0, 0 }, *out;
	bool both;

	/* By constant indices: a computed one would move the parameters to local memory. */
#pragma unroll
	for (uint32_t i = 1; i < 3; i++) {
		if (i < m.n && pair >= pairs_of(matrix.rows)) {
			pair -= pairs_of(matrix.rows);
			output += matrix.rows;
			matrix = m.of[i];
		}
	}
	if (pair >= pairs_of(matrix.rows))
		return;
	both = 2 * pair + 1 < matrix.rows;
	pair_times(matrix.type, (const uint8_t *)matrix.at, matrix.row_bytes, 2 * pair, both,
		   from.at + (uint64_t)token * from.stride, m.columns, lane, sums);
	out = to.at + (uint64_t)token * to.stride + output + 2 * pair;
	if (lane == 0)
		out[0] = add ? out[0] + sums[0] : sums[0];
	if (lane == 0 && both)
		out[1] = add ? out[1] + sums[1] : sums[1];
}

extern "C" int
cuda_multiply(void *stream, const struct cuda_matrices *matrices, struct cuda_rows from,
	      struct cuda_rows to, bool add, uint32_t tokens, struct error *err)
{
	uint32_t pairs = 0;

	for (uint32_t i = 0; i < matrices->n; i++)
		pairs += pairs_of(matrices->of[i].rows);
	return cuda_launch("multiply_kernel", multiply_kernel,
			   dim3((pairs + WARPS - 1) / WARPS, tokens), WARPS * 32, 0, stream, err,
			   *matrices, from, to, add);
}

static __device__ __forceinline__ const uint8_t *
expert_row(const struct cuda_moe &moe, uint32_t expert, enum role role, uint32_t row)
{
	return (const uint8_t *)moe.places[expert].role[role] + row * moe.row_bytes[role];
}

/* A warp a row of gate and up both, so that neither leaves the chip and x is read once. */
static __global__ void
__launch_bounds__(WARPS * 32) experts_in_kernel(struct cuda_moe moe)
{
	uint32_t lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32;
	uint64_t slot = (uint64_t)blockIdx.z * moe.top_k + blockIdx.y;
	const float *x = moe.x.at + (uint64_t)blockIdx.z * moe.x.stride;
	uint32_t expert = moe.chosen[slot];
	float sums[2] = { 0, 0 };

	if (row >= moe.width)
		return;
	const uint8_t *const rows[2] = { expert_row(moe, expert, ROLE_GATE, row),
					 expert_row(moe, expert, ROLE_UP, row) };
	if (moe.type[ROLE_GATE] == moe.type[ROLE_UP]) {
		any_rows_times<2>(moe.type[ROLE_GATE], rows, x, moe.hidden, lane, sums);
	} else {
		sums[0] = any_row_times(moe.type[ROLE_GATE], rows[0], x, moe.hidden, lane);
		sums[1] = any_row_times(moe.type[ROLE_UP], rows[1], x, moe.hidden, lane);
	}
	if (lane == 0)
		moe.act.at[slot * moe.act.stride + row] =
		    sums[0] / (1.0f + expf(-sums[0])) * sums[1];
}

extern "C" int
cuda_experts_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	dim3 grid((moe->width + WARPS - 1) / WARPS, moe->top_k, tokens);

	return cuda_launch("experts_in_kernel", experts_in_kernel, grid, WARPS * 32, 0, stream, err,
			   *moe);
}

/* A block two rows; each warp takes some of the chosen experts, and one thread a row adds them up
 * in the order of chosen. */
static __global__ void
__launch_bounds__(OUT_WARPS_MAX * 32) experts_out_kernel(struct cuda_moe moe)
{
	CUDA_SHARED(float, parts); /* (2, padded) */
	uint32_t lane = threadIdx.x % 32, row = 2 * blockIdx.x, token = blockIdx.y;
	uint32_t padded = (moe.top_k + 3) / 4 * 4;
	bool both = row + 1 < moe.hidden;

	for (uint32_t k = threadIdx.x / 32; k < moe.top_k; k += blockDim.x / 32) {
		uint64_t slot = (uint64_t)token * moe.top_k + k;
		const uint8_t *matrix = expert_row(moe, moe.chosen[slot], ROLE_DOWN, 0);
		float sums[2] = { 0, 0 };

		pair_times(moe.type[ROLE_DOWN], matrix, moe.row_bytes[ROLE_DOWN], row, both,
			   moe.act.at + slot * moe.act.stride, moe.width, lane, sums);
		if (lane < 2)
			parts[lane * padded + k] = moe.weights[slot] * (lane ? sums[1] : sums[0]);
	}
	__syncthreads();
	if (threadIdx.x < (both ? 2 : 1)) {
		float *out = moe.h.at + (uint64_t)token * moe.h.stride + row + threadIdx.x, sum = 0;

		for (uint32_t k = 0; k < moe.top_k; k++)
			sum += parts[threadIdx.x * padded + k];
		*out += sum;
	}
}

/* Shared arrays are whole 16 bytes: the compiler reads them so to the end. */
extern "C" int
cuda_experts_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	uint32_t warps = moe->top_k < OUT_WARPS_MAX ? moe->top_k : OUT_WARPS_MAX;
	size_t shared = 2 * ((moe->top_k + 3) / 4 * 4) * sizeof(float);

	return cuda_launch("experts_out_kernel", experts_out_kernel,
			   dim3(pairs_of(moe->hidden), tokens), warps * 32, shared, stream, err,
			   *moe);
}

extern "C" int
cuda_finish(void *stream, struct error *err)
{
	return cuda_check(cudaStreamSynchronize((cudaStream_t)stream), "waiting for kernels", err);
}
