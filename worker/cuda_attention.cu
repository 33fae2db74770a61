/* Grouped-query attention over a cache in fixed point (cuda_kernels.h).  The context is cut into
 * splits by its length so far alone, so that many blocks read it; one block computes a split for up
 * to 8 heads that share its keys and 128 columns of their output, and the last block of a token's
 * heads to finish joins the splits in order.  So neither the batch nor the room for a context
 * changes a bit.
 *
 * A single token's key and value are made by the block whose split holds them, which no other
 * reads; those of several tokens are appended by a kernel of their own before. */
#include "worker/cuda_join.cuh"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_parts.cuh"

#define BLOCKS_WANTED SPLITS_MAX /* of one token: about one for each SM of a large GPU */
#define SHARED_LEAST (64u << 10) /* what any device has for a block: compute capability 7.5 */

#define FITS(CHUNKS) (sizeof(block_room<CHUNKS, true>) <= SHARED_LEAST)
static_assert(FITS(1) && FITS(2) && FITS(4) && FITS(8), "any device runs any head");

static uint32_t
chunks_of(uint32_t head_dim)
{
	return head_dim <= 128 ? 1 : head_dim <= 256 ? 2 : head_dim <= 512 ? 4 : 8;
}

/* Blocks over which a token's heads and their columns are spread, before its positions are. */
static uint32_t
lines_of(uint32_t heads, uint32_t kv_heads, uint32_t head_dim)
{
	return kv_heads * up(heads / kv_heads, HEADS) * up(head_dim, 32 * CHUNK);
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
places_of(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t at_once)
{
	return (uint64_t)at_once * heads * up(head_dim, 32 * CHUNK) *
	       splits_most(lines_of(heads, kv_heads, head_dim));
}

extern "C" uint64_t
cuda_partial_floats(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t at_once)
{
	uint64_t places = places_of(heads, kv_heads, head_dim, at_once);

	return 2 * stats_of(places) + places * 32 * CHUNK;
}

extern "C" uint64_t
cuda_arrived_counts(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t at_once)
{
	return (uint64_t)lines_of(heads, kv_heads, head_dim) * at_once;
}

/* A warp a key, or a value, of every token. */
template <int CHUNKS>
static __global__ void __launch_bounds__(32)
    append_kernel(struct cuda_attention a, const struct cuda_input *in PROBE_PARAM)
{
	CUDA_SHARED(float, append_line);
	uint32_t kv_head = blockIdx.x / 2, token = blockIdx.y, pos = __ldcg(&in->pos) + token;
	struct fixed_four key[CHUNKS];
	head_pairs<CHUNKS> x, norm = head_load<CHUNKS>(a.k_norm, a.head_dim);
	head_turns<CHUNKS> turns = turns_at<CHUNKS>(frequencies_load<CHUNKS>(a), pos);

	let_next_begin();
	previous_done();
	if (blockIdx.x % 2) {
		for (uint32_t chunk = 0; chunk < up(a.head_dim, 32 * CHUNK); chunk++)
			value_append(a, kv_head, pos, chunk,
				     fixed_four_of<KV_LANES>(value_load(a, token, kv_head, chunk)));
		return;
	}
	x = head_load<CHUNKS>(key_from(a, token, kv_head), a.head_dim);
	head_turn(a, x, head_scale(a, x), norm, turns, 1, append_line);
	__syncwarp();
	line_fix<CHUNKS>(append_line, key);
	key_append<CHUNKS>(a, kv_head, pos, key);
}

template <int CHUNKS, bool SMALL>
static __global__ void __launch_bounds__(32 * block_room<CHUNKS, SMALL>::WARPS)
    attend_kernel(struct cuda_attention a, struct partials partial, const struct cuda_input *in,
		  uint32_t first, bool makes_row PROBE_PARAM)
{
	CUDA_SHARED(float4, attend_memory);
	block_room<CHUNKS, SMALL> *room = (block_room<CHUNKS, SMALL> *)attend_memory;
	head_form<CHUNKS> form = form_load<CHUNKS>(a);
	split at = split_of(a, partial.splits, first + blockIdx.z,
			    __ldcg(&in->pos) + first + blockIdx.z, makes_row);
	uint32_t warp = threadIdx.x / 32, line = blockIdx.z * gridDim.x + blockIdx.x;
	struct running state = { -INFINITY, 0 };
	newest_row<CHUNKS> row = {};
	float sums[CHUNK][8] = {};

	PROBE_BEGIN();
	if (at.index >= at.count) {
		previous_done();
		return;
	}
	/* Where a kernel before this one appended the rows, they are not to be read earlier; the
	 * position itself lies there since before the forward's first kernel began. */
	if (!makes_row)
		previous_done();
	stream pieces = stream_begin(a, at, room->ring[warp], room->landings[warp]);
	head_turns<CHUNKS> turns = turns_at(form.frequencies, at.pos);
	if (makes_row)
		previous_done();
	PROBE(PROBE_WAITED);
	heads_make(a, at, form, turns, room, &row);
	__syncthreads();
	PROBE(PROBE_LOADED);
	/* Not before: what the next kernel asks for would be in the way of q. */
	let_next_begin();
	row_append(a, at, row);
	tiles_run(at, pieces, room, row, &state, sums);
	warp_leave(room, state, sums);
	__syncthreads();
	split_store(a, partial, at, room);
	PROBE_END();
	if (at.count == 1 || !last_to_arrive(a.arrived + line, at.count, &room->last))
		return;
	PROBE(PROBE_ARRIVED);
	splits_output(a, partial, at, room);
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

template <int CHUNKS, bool SMALL>
static int
launch(const struct cuda_attention *a, const struct cuda_input *in, uint32_t first, uint32_t tokens,
       bool makes_row, void *stream, struct error *err)
{
	uint32_t lines = lines_of(a->heads, a->kv_heads, a->head_dim), splits = splits_most(lines);
	uint64_t places = places_of(a->heads, a->kv_heads, a->head_dim, a->at_once);
	struct partials partial = { (float2 *)a->partial, a->partial + 2 * stats_of(places),
				    splits };
	uint32_t most = up(a->context, SPLIT_LEAST);
	dim3 grid(lines, most < splits ? most : splits, tokens);

	return cuda_launch("attend_kernel", attend_kernel<CHUNKS, SMALL>, grid,
			   dim3(32 * block_room<CHUNKS, SMALL>::WARPS),
			   sizeof(block_room<CHUNKS, SMALL>), stream, err, *a, partial, in, first,
			   makes_row);
}

template <int CHUNKS, bool SMALL>
static int
attend(const struct cuda_attention *a, const struct cuda_input *in, uint32_t tokens, void *stream,
       struct error *err)
{
	uint32_t columns = a->heads * a->head_dim;
	int r = 0;

	if (tokens > 1)
		r = cuda_launch("append_kernel", append_kernel<CHUNKS>,
				dim3(2 * a->kv_heads, tokens), dim3(32),
				32 * CHUNK * CHUNKS * sizeof(float), stream, err, *a, in);
	for (uint32_t first = 0; first < tokens && !r; first += a->at_once) {
		uint32_t n = tokens - first < a->at_once ? tokens - first : a->at_once;

		r = launch<CHUNKS, SMALL>(a, in, first, n, tokens == 1, stream, err);
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
	int r;

	switch (chunks_of(a->head_dim)) {
	case 1:
		r = cuda_has_shared("attend_kernel", sizeof(block_room<1, false>), err);
		if (r == -ENOTSUP)
			return attend<1, true>(a, in, tokens, stream, err);
		return r ? r : attend<1, false>(a, in, tokens, stream, err);
	case 2:
		return attend<2, true>(a, in, tokens, stream, err);
	case 4:
		return attend<4, true>(a, in, tokens, stream, err);
	default:
		return attend<8, true>(a, in, tokens, stream, err);
	}
}
