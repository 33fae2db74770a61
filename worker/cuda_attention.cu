/* Grouped-query attention over an f32 cache.  The context is cut into splits by its length so far
 * alone, so that many blocks read it; one block computes a split for the heads that share its keys,
 * and the last block of a token's heads to finish joins the splits in order.  So neither the batch
 * nor the room for a context changes a bit.
 *
 * A single token's key and value are made by the block whose split holds them, which no other
 * reads; those of several tokens are appended by a kernel of their own before. */
#include "worker/cuda_join.cuh"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_split.cuh"

#define BLOCKS_WANTED SPLITS_MAX /* of one token: about two for each SM of a large GPU */

static uint32_t
chunks_of(uint32_t head_dim)
{
	return head_dim <= 128 ? 1 : head_dim <= 256 ? 2 : head_dim <= 512 ? 4 : 8;
}

/* Blocks over which a token's heads are spread, before its positions are. */
static uint32_t
lines_of(uint32_t heads, uint32_t kv_heads, uint32_t head_dim)
{
	return kv_heads * up(heads / kv_heads, 8 / chunks_of(head_dim));
}

static uint32_t
splits_most(uint32_t lines)
{
	return lines < BLOCKS_WANTED ? BLOCKS_WANTED / lines : 1;
}

/* Room for pairs, so that the sums behind them lie at a multiple of 16 bytes. */
static uint64_t
stats_of(uint64_t places)
{
	return (places + 1) / 2 * 2;
}

static uint64_t
places_of(uint32_t heads, uint32_t lines, uint32_t at_once)
{
	return (uint64_t)at_once * heads * splits_most(lines);
}

extern "C" uint64_t
cuda_partial_floats(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t at_once)
{
	uint64_t places = places_of(heads, lines_of(heads, kv_heads, head_dim), at_once);

	return 2 * stats_of(places) + places * CUDA_KV_ROW(head_dim);
}

extern "C" uint64_t
cuda_arrived_counts(uint32_t heads, uint32_t at_once)
{
	return (uint64_t)heads * at_once;
}

/* A warp a key, or a value, of every token. */
template <int CHUNKS>
static __global__ void
append_kernel(struct cuda_attention a, const struct cuda_input *in PROBE_PARAM)
{
	CUDA_SHARED(float2, append_turn);
	uint32_t lane = threadIdx.x, kv_head = blockIdx.x / 2, token = blockIdx.y;
	uint32_t pos = __ldcg(&in->pos) + token, row = CUDA_KV_ROW(a.head_dim);
	const float *x = key_from(a, token, kv_head);
	uint64_t place = cache_place(a, kv_head, pos);

	let_next_begin();
	previous_done();
	if (blockIdx.x % 2) {
		x += (uint64_t)a.kv_heads * a.head_dim;
		for (uint32_t i = lane; i < row; i += 32)
			a.values[place + i] = i < a.head_dim ? __ldcg(x + i) : 0;
		return;
	}
	for (uint32_t i = lane; i < a.head_dim / 2; i += 32)
		append_turn[i] = turn_at(a, pos, i);
	__syncwarp();
	head_turn(a, head_load<CHUNKS>(x, a.head_dim), a.k_norm, append_turn, 1, a.keys + place,
		  row);
}

template <int CHUNKS>
static __global__ void __launch_bounds__(32 * shape<CHUNKS>::WARPS, 2)
    attend_kernel(struct cuda_attention a, struct partials partial, const struct cuda_input *in,
		  uint32_t first, bool makes_row PROBE_PARAM)
{
	CUDA_SHARED(float4, attend_memory);
	block_room<CHUNKS> *room = (block_room<CHUNKS> *)attend_memory;
	split at = split_of<CHUNKS>(a, partial.splits, first + blockIdx.z,
				    __ldcg(&in->pos) + first + blockIdx.z, makes_row);
	uint32_t *counter = a.arrived + (uint64_t)blockIdx.z * gridDim.x + blockIdx.x;
	float factor = LOG2_E / sqrtf((float)a.head_dim);
	value_sums<CHUNKS> sums = {};
	running<CHUNKS> state;

	PROBE_BEGIN();
	let_next_begin();
	if (at.index >= at.count) {
		previous_done();
		return;
	}
	/* Where a kernel before this one appended the rows, they are not to be read earlier; the
	 * position itself lies there since before the forward's first kernel began. */
	if (!makes_row)
		previous_done();
	block_begin<CHUNKS>(a, at, room);
	if (makes_row)
		previous_done();
	PROBE(PROBE_WAITED);
	__syncthreads();
	heads_make<CHUNKS>(a, at, factor, room);
	__syncthreads();
	PROBE(PROBE_LOADED);
#pragma unroll
	for (uint32_t i = 0; i < shape<CHUNKS>::LEFT; i++) {
		state.top[i] = -INFINITY;
		state.sum[i] = 0;
	}
	tiles_run<CHUNKS>(a, at, room, state, sums);
	warp_leave<CHUNKS>(room, state, sums);
	__syncthreads();
	PROBE(PROBE_MULTIPLIED);
	split_store<CHUNKS>(a, partial, at, room);
	PROBE_END();
	if (at.count == 1 || !last_to_arrive(counter, at.count, &room->last))
		return;
	PROBE(PROBE_ARRIVED);
	for (uint32_t i = threadIdx.x / 32; i < 8; i += shape<CHUNKS>::WARPS) {
		uint32_t head = i / CHUNKS, column = i % CHUNKS * 128 + 4 * (threadIdx.x % 32);

		if (head < at.heads)
			part_output(a, at, head, column,
				    splits_join(a, partial, at, head, column,
						room->warps[threadIdx.x / 32].keys[0]));
	}
	PROBE_END();
}

/* A warp 128 columns of the output into fixed point, where heads are not whole groups of it. */
static __global__ void
fix_kernel(struct cuda_vectors v, uint32_t columns PROBE_PARAM)
{
	uint32_t column = 128 * blockIdx.x + 4 * threadIdx.x;
	const float *from = v.rows.at + (uint64_t)blockIdx.y * v.rows.stride + column;

	let_next_begin();
	previous_done();
	fixed_store(v.fixed.at + (uint64_t)blockIdx.y * v.fixed.stride, column,
		    column < columns ? __ldcg((const float4 *)from) : make_float4(0, 0, 0, 0),
		    column < columns);
}

template <int CHUNKS>
static int
launch(const struct cuda_attention *a, const struct cuda_input *in, uint32_t first, uint32_t tokens,
       bool makes_row, void *stream, struct error *err)
{
	uint32_t lines = lines_of(a->heads, a->kv_heads, a->head_dim), splits = splits_most(lines);
	uint64_t places = places_of(a->heads, lines, a->at_once);
	struct partials partial = { (float2 *)a->partial, a->partial + 2 * stats_of(places),
				    splits };
	uint32_t units = up(a->context, SPLIT_UNIT);
	dim3 grid(lines, units < splits ? units : splits, tokens);

	return cuda_launch("attend_kernel", attend_kernel<CHUNKS>, grid,
			   dim3(32 * shape<CHUNKS>::WARPS), sizeof(block_room<CHUNKS>), stream, err,
			   *a, partial, in, first, makes_row);
}

template <int CHUNKS>
static int
attend(const struct cuda_attention *a, const struct cuda_input *in, uint32_t tokens, void *stream,
       struct error *err)
{
	uint32_t columns = a->heads * a->head_dim;
	int r = 0;

	if (tokens > 1)
		r = cuda_launch("append_kernel", append_kernel<CHUNKS>,
				dim3(2 * a->kv_heads, tokens), dim3(32),
				a->head_dim / 2 * sizeof(float2), stream, err, *a, in);
	for (uint32_t first = 0; first < tokens && !r; first += a->at_once) {
		uint32_t n = tokens - first < a->at_once ? tokens - first : a->at_once;

		r = launch<CHUNKS>(a, in, first, n, tokens == 1, stream, err);
	}
	if (!r && a->head_dim % 32 != 0 && columns % 32 == 0)
		r = cuda_launch("fix_kernel", fix_kernel, dim3(up(columns, 128), tokens), dim3(32),
				0, stream, err, a->out, columns);
	return r;
}

extern "C" int
cuda_attend(void *stream, const struct cuda_attention *a, const struct cuda_input *in,
	    uint32_t tokens, struct error *err)
{
	switch (chunks_of(a->head_dim)) {
	case 1:
		return attend<1>(a, in, tokens, stream, err);
	case 2:
		return attend<2>(a, in, tokens, stream, err);
	case 4:
		return attend<4>(a, in, tokens, stream, err);
	default:
		return attend<8>(a, in, tokens, stream, err);
	}
}
