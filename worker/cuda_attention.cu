/* Grouped-query attention over an f32 cache.  The context is cut into splits of CUDA_SPLIT
 * positions, each computed by one block for up to TILE heads that share their keys, and joined in
 * order: which block computes a split, and how many there are, changes no bit. */
#include "worker/cuda_kernels.h"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_rows.cuh"

#define THREADS CUDA_SPLIT /* a thread a position */
#define TILE_MAX 8u
#define AHEAD 8u           /* loads of a thread under way at once */
#define BLOCKS_WANTED 264u /* of a decode step, over all heads: two for each SM of a large GPU */

/* A warp a head of q, k or v: norm (not v), rotary of pairs (i, i + head_dim / 2), and to its
 * place.
 */
static __global__ void
heads_kernel(struct cuda_attention a, const struct cuda_input *in)
{
	uint32_t lane = threadIdx.x, head = blockIdx.x, token = blockIdx.y, half = a.head_dim / 2;
	uint32_t pos = in->pos + token, row = CUDA_KV_ROW(a.head_dim);
	const float *x = a.qkv.at + (uint64_t)token * a.qkv.stride + head * a.head_dim;
	bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
	uint32_t kv_head = is_q ? 0 : (head - a.heads) % a.kv_heads;
	float *cache = (is_v ? a.values : a.keys) + ((uint64_t)kv_head * a.context + pos) * row;
	float *q = a.q.at + (uint64_t)token * a.q.stride + head * a.head_dim;
	const float *weight = is_q ? a.q_norm : a.k_norm;
	float squares = 0, scale;

	for (uint32_t i = a.head_dim + lane; i < row && !is_q; i += 32)
		cache[i] = 0;
	if (is_v) {
		for (uint32_t i = lane; i < a.head_dim; i += 32)
			cache[i] = x[i];
		return;
	}
	for (uint32_t i = lane; i < a.head_dim; i += 32)
		squares = fmaf(x[i], x[i], squares);
	scale = 1.0f / sqrtf(warp_sum(squares) / (float)a.head_dim + a.epsilon);
	for (uint32_t i = lane; i < half; i += 32) {
		float low = x[i] * scale * weight[i], high = x[i + half] * scale * weight[i + half];
		float sine, cosine;

		sincosf((float)pos * a.frequency[i], &sine, &cosine);
		float turned = low * cosine - high * sine, other = high * cosine + low * sine;

		if (is_q) {
			q[i] = turned;
			q[i + half] = other;
		} else {
			cache[i] = turned;
			cache[i + half] = other;
		}
	}
}

extern "C" int
cuda_heads(void *stream, const struct cuda_attention *a, const struct cuda_input *in,
	   uint32_t tokens, struct error *err)
{
	return cuda_launch("heads_kernel", heads_kernel, dim3(a->heads + 2 * a->kv_heads, tokens),
			   32, 0, stream, err, *a, in);
}

/* Of one (token, head, split): the values' sum not yet divided, and before all of them, as pairs,
 * the greatest score and the sum of exp(score - greatest). */
struct partials {
	float2 *stats;
	float *sums;
	uint32_t splits; /* room for */
	uint32_t row;
};

static __host__ __device__ uint32_t
splits_of(uint32_t positions)
{
	return (positions + CUDA_SPLIT - 1) / CUDA_SPLIT;
}

static struct partials
partials_of(const struct cuda_attention *a)
{
	uint32_t splits = splits_of(a->context);
	uint64_t all = (uint64_t)a->at_once * a->heads * splits;

	return partials{ (float2 *)a->partial, a->partial + 2 * all, splits,
			 CUDA_KV_ROW(a->head_dim) };
}

extern "C" uint64_t
cuda_partial_floats(uint32_t heads, uint32_t head_dim, uint32_t context, uint32_t at_once)
{
	return (uint64_t)at_once * heads * splits_of(context) * (2 + CUDA_KV_ROW(head_dim));
}

template <int TILE>
static __device__ __forceinline__ void
add_products(const float4 &k, const float *q, uint32_t row, float (&sum)[TILE])
{
#pragma unroll
	for (int h = 0; h < TILE; h++) {
		float4 v = *(const float4 *)(q + h * row);

		sum[h] = fmaf(k.x, v.x, sum[h]);
		sum[h] = fmaf(k.y, v.y, sum[h]);
		sum[h] = fmaf(k.z, v.z, sum[h]);
		sum[h] = fmaf(k.w, v.w, sum[h]);
	}
}

template <int TILE>
static __device__ void
split_scores(const float *q, const float *key, uint32_t row, float factor, bool valid,
	     float *scores)
{
	float sum[TILE] = {};
	uint32_t end = valid ? row : 0;

	for (uint32_t d = 0; d < end; d += 4 * AHEAD) {
		float4 k[AHEAD];
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (d + 4 * i < end)
				k[i] = *(const float4 *)(key + d + 4 * i);
#pragma unroll
		for (uint32_t i = 0; i < AHEAD; i++)
			if (d + 4 * i < end)
				add_products<TILE>(k[i], q + d + 4 * i, row, sum);
	}
#pragma unroll
	for (int h = 0; h < TILE; h++)
		scores[h] = valid ? sum[h] * factor : -INFINITY;
}

/* A warp a head: scores become exp(score - greatest). */
template <int TILE>
static __device__ float2
split_softmax(float *scores, uint32_t head, uint32_t lane)
{
	float top = -INFINITY, sum = 0;

	for (uint32_t p = lane; p < CUDA_SPLIT; p += 32)
		top = fmaxf(top, scores[p * TILE + head]);
	for (int step = 16; step > 0; step /= 2)
		top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
	for (uint32_t p = lane; p < CUDA_SPLIT; p += 32) {
		float value = expf(scores[p * TILE + head] - top);

		scores[p * TILE + head] = value;
		sum += value;
	}
	return make_float2(top, warp_sum(sum));
}

template <int TILE>
static __device__ __forceinline__ void
add_value(float v, const float *scores, float (&sum)[TILE])
{
#pragma unroll
	for (int h = 0; h < TILE; h++)
		sum[h] = fmaf(scores[h], v, sum[h]);
}

/* sums[h * row + d] over the split's positions: `parts` groups of threads take every parts-th
 * position, and are added up in order. */
template <int TILE>
static __device__ void
split_values(const float *scores, const float *values, uint32_t row, uint32_t valid, float *room,
	     uint32_t heads, float *sums, uint64_t head_stride)
{
	uint32_t width = row < THREADS ? row : THREADS, parts = THREADS / width;
	uint32_t part = threadIdx.x / width, lane = threadIdx.x % width;

	for (uint32_t d = lane; d - lane < row; d += width) {
		uint32_t end = part < parts && d < row ? valid : 0;
		float sum[TILE] = {};

		for (uint32_t p = part; p < end; p += AHEAD * parts) {
			float v[AHEAD];
#pragma unroll
			for (uint32_t i = 0; i < AHEAD; i++)
				if (p + i * parts < end)
					v[i] = values[(uint64_t)(p + i * parts) * row + d];
#pragma unroll
			for (uint32_t i = 0; i < AHEAD; i++)
				if (p + i * parts < end)
					add_value<TILE>(v[i], scores + (p + i * parts) * TILE, sum);
		}
		__syncthreads();
#pragma unroll
		for (int h = 0; h < TILE; h++)
			room[h * THREADS + threadIdx.x] = sum[h];
		__syncthreads();
		for (uint32_t h = part; part < parts && d < row && h < heads; h += parts) {
			float all = 0;

			for (uint32_t i = 0; i < parts; i++)
				all += room[h * THREADS + i * width + lane];
			sums[h * head_stride + d] = all;
		}
	}
}

template <int TILE>
static __global__ void
__launch_bounds__(THREADS) split_kernel(struct cuda_attention a, struct partials partial,
					const struct cuda_input *in, uint32_t first)
{
	CUDA_SHARED(float, q); /* (TILE, row) */
	__shared__ float scores[CUDA_SPLIT * TILE], room[THREADS * TILE];
	uint32_t group = a.heads / a.kv_heads, tiles = (group + TILE - 1) / TILE;
	uint32_t kv_head = blockIdx.y / tiles, tile = blockIdx.y % tiles, row = partial.row;
	uint32_t head = kv_head * group + tile * TILE, warp = threadIdx.x / 32;
	uint32_t heads = min(group - tile * TILE, (uint32_t)TILE);
	uint32_t token = first + blockIdx.z, length = in->pos + token + 1;
	const float *keys = a.keys + (uint64_t)kv_head * a.context * row;
	const float *values = a.values + (uint64_t)kv_head * a.context * row;
	float factor = 1.0f / sqrtf((float)a.head_dim);

	for (uint32_t i = threadIdx.x; i < TILE * row; i += THREADS) {
		uint32_t h = i / row, d = i % row;

		q[i] = h < heads && d < a.head_dim
			   ? a.q.at[(uint64_t)token * a.q.stride + (head + h) * a.head_dim + d]
			   : 0;
	}
	for (uint32_t split = blockIdx.x; split < splits_of(length); split += gridDim.x) {
		uint32_t begin = split * CUDA_SPLIT, valid = min(length - begin, CUDA_SPLIT);
		uint64_t place = ((uint64_t)blockIdx.z * a.heads + head) * partial.splits + split;

		__syncthreads();
		split_scores<TILE>(q, keys + (uint64_t)(begin + threadIdx.x) * row, row, factor,
				   threadIdx.x < valid, scores + threadIdx.x * TILE);
		__syncthreads();
		if (warp < heads) {
			float2 stat = split_softmax<TILE>(scores, warp, threadIdx.x % 32);

			if (threadIdx.x % 32 == 0)
				partial.stats[place + (uint64_t)warp * partial.splits] = stat;
		}
		__syncthreads();
		split_values<TILE>(scores, values + (uint64_t)begin * row, row, valid, room, heads,
				   partial.sums + place * row, (uint64_t)partial.splits * row);
	}
}

/* A block a head and token: the splits joined in order. */
static __global__ void
join_kernel(struct cuda_attention a, struct partials partial, const struct cuda_input *in,
	    uint32_t first)
{
	uint32_t head = blockIdx.x, token = first + blockIdx.y;
	uint32_t splits = splits_of(in->pos + token + 1);
	uint64_t place = ((uint64_t)blockIdx.y * a.heads + head) * partial.splits;
	const float2 *stats = partial.stats + place;
	const float *sums = partial.sums + place * partial.row;
	float top = -INFINITY;

	for (uint32_t s = 0; s < splits; s++)
		top = fmaxf(top, stats[s].x);
	for (uint32_t d = threadIdx.x; d < a.head_dim; d += blockDim.x) {
		float sum = 0, weight = 0;

		for (uint32_t s = 0; s < splits; s++) {
			float factor = expf(stats[s].x - top);

			weight = fmaf(factor, stats[s].y, weight);
			sum = fmaf(factor, sums[(uint64_t)s * partial.row + d], sum);
		}
		a.out.at[(uint64_t)token * a.out.stride + head * a.head_dim + d] = sum / weight;
	}
}

template <int TILE>
static int
launch_split(void *stream, const struct cuda_attention *a, const struct cuda_input *in,
	     uint32_t first, uint32_t tokens, struct error *err)
{
	struct partials partial = partials_of(a);
	uint32_t group = a->heads / a->kv_heads, tiles = (group + TILE - 1) / TILE;
	uint32_t lines = a->kv_heads * tiles, blocks = (BLOCKS_WANTED + lines - 1) / lines;
	dim3 grid(blocks < partial.splits ? blocks : partial.splits, lines, tokens);

	return cuda_launch("split_kernel", split_kernel<TILE>, grid, THREADS,
			   TILE * partial.row * sizeof(float), stream, err, *a, partial, in, first);
}

extern "C" int
cuda_attend(void *stream, const struct cuda_attention *a, const struct cuda_input *in,
	    uint32_t tokens, struct error *err)
{
	uint32_t group = a->heads / a->kv_heads;

	for (uint32_t first = 0; first < tokens; first += a->at_once) {
		uint32_t n = tokens - first < a->at_once ? tokens - first : a->at_once;
		int r;

		if (group <= 1)
			r = launch_split<1>(stream, a, in, first, n, err);
		else if (group <= 2)
			r = launch_split<2>(stream, a, in, first, n, err);
		else if (group <= 4)
			r = launch_split<4>(stream, a, in, first, n, err);
		else
			r = launch_split<TILE_MAX>(stream, a, in, first, n, err);
		if (!r)
			r = cuda_launch("join_kernel", join_kernel, dim3(a->heads, n), 128, 0,
					stream, err, *a, partials_of(a), in, first);
		if (r)
			return r;
	}
	return 0;
}
