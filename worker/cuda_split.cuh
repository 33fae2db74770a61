/* A split of the context, by one block: the warps' tiles, their sums joined, and the splits' sums
 * joined by the last block. */
#ifndef HEARTH_WORKER_CUDA_SPLIT_CUH
#define HEARTH_WORKER_CUDA_SPLIT_CUH

#include "worker/cuda_attend.cuh"
#include "worker/cuda_fixed.cuh"
#include "worker/cuda_heads.cuh"
#include "worker/cuda_ring.cuh"

#define SPLITS_MAX 128u
#define SPLIT_LEAST 256u          /* positions: a tile for each of 8 warps */
#define SUMS_ROW (32 * CHUNK + 8) /* floats: heads begin at different banks */

static __host__ __device__ constexpr uint32_t
up(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* Of each split but the last, of at most `most`; whole tiles. */
static __device__ __forceinline__ uint32_t
split_positions(uint32_t length, uint32_t most)
{
	return max(up(up(length, most), CUDA_KV_TILE) * CUDA_KV_TILE, SPLIT_LEAST);
}

/* Of one (token, head, 128 columns, split): the values' sum not yet divided, and before all of
 * them, as pairs, the greatest score and the sum of exp2(score - greatest). */
struct partials {
	float2 *stats;
	float *sums;
	uint32_t splits; /* room for */
};

/* A head has up to 128 * CHUNKS columns; a block computes 128 of the output's.  SMALL: within the
 * shared memory that any device has; longer heads are always so. */
template <int CHUNKS, bool SMALL> struct block_room {
	static constexpr uint32_t WARPS = CHUNKS == 8 ? 2 : SMALL ? 4 : 8;
	static constexpr uint32_t DEPTH = SMALL ? 1 : 2; /* pieces of a warp under way at once */

	struct cuda_kv_tile ring[WARPS][DEPTH][CHUNK];
	struct landing landings[WARPS][DEPTH];
	struct head_rows q[4 * CHUNKS][4 * HEADS]; /* (groups, lanes) */
	float q_unit[4 * CHUNKS][HEADS];
	float line[WARPS][2][128 * CHUNKS];
	float2 stats[WARPS][HEADS];
	uint32_t last;
};

static_assert(sizeof(float[HEADS][SUMS_ROW]) <= sizeof(struct cuda_kv_tile[CHUNK]),
	      "a warp leaves its sums in its ring");

/* What a block computes. */
struct split {
	uint32_t token, pos, kv_head, head, heads; /* heads head..head + heads - 1 */
	uint32_t chunk, n_chunks;                  /* columns 128 * chunk .. of their output */
	uint32_t index, count;                     /* this of so many */
	uint32_t begin, end;                       /* positions */
	bool makes_row; /* the newest position's key and value: it is the last of them */
	bool to_cache;  /* and stores its key there, and its chunk of the value */
	bool key_to_cache;
};

static __device__ __forceinline__ split
split_of(const cuda_attention &a, uint32_t most, uint32_t token, uint32_t pos, bool makes_row)
{
	uint32_t group = a.heads / a.kv_heads, n_tiles = up(group, HEADS);
	uint32_t n_chunks = up(a.head_dim, 32 * CHUNK), length = pos + 1;
	uint32_t line = blockIdx.x / n_chunks, tile = line % n_tiles;
	uint32_t positions = split_positions(length, most);
	split ret;

	ret.token = token;
	ret.pos = pos;
	ret.kv_head = line / n_tiles;
	ret.head = ret.kv_head * group + tile * HEADS;
	ret.heads = min(group - tile * HEADS, HEADS);
	ret.chunk = blockIdx.x % n_chunks;
	ret.n_chunks = n_chunks;
	ret.index = blockIdx.y;
	ret.count = up(length, positions);
	ret.begin = ret.index * positions;
	ret.end = min(ret.begin + positions, length);
	ret.makes_row = makes_row && ret.end == length;
	ret.to_cache = tile == 0;
	ret.key_to_cache = tile == 0 && ret.chunk == 0;
	return ret;
}

/* A warp's pieces of its tiles one after another: of each tile the keys, four groups at a time,
 * then the values of its chunk. */
template <uint32_t DEPTH> struct stream {
	struct ring<DEPTH> ring;
	const uint8_t *at;                   /* keys of the tile to load next */
	int64_t to_values;                   /* from keys' end to the chunk's values, bytes */
	uint32_t groups, chunk_groups;       /* tiles of keys, of values */
	uint32_t group;                      /* the next of both */
	uint32_t pos, end, step, step_bytes; /* positions of the tile to load next; a step on */
};

/* The next piece starts on its way, none behind the last: in place of the oldest, which is done
 * with.
 */
template <uint32_t DEPTH>
static __device__ __forceinline__ void
piece_load(stream<DEPTH> &s)
{
	constexpr uint32_t TILE = sizeof(struct cuda_kv_tile);
	uint32_t left =
	    s.group < s.groups ? s.groups - s.group : s.groups + s.chunk_groups - s.group;
	const uint8_t *from = s.at + s.group * TILE + (s.group < s.groups ? 0 : s.to_values);

	ring_ask_piece<true>(s.ring, landing_piece{ from, ring_room(s.ring),
						    s.pos < s.end ? min(left, CHUNK) * TILE : 0 });
	ring_step(&s.ring);
	s.group += min(left, CHUNK);
	if (s.group < s.groups + s.chunk_groups)
		return;
	s.group = 0;
	s.pos += s.step;
	s.at += s.step_bytes;
}

template <uint32_t DEPTH>
static __device__ __forceinline__ stream<DEPTH>
stream_begin(const cuda_attention &a, const split &at, struct cuda_kv_tile (&ring)[DEPTH][CHUNK],
	     struct landing (&landings)[DEPTH])
{
	constexpr uint32_t TILE = sizeof(struct cuda_kv_tile);
	uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
	stream<DEPTH> ret;

	ret.ring = { landings, (uint8_t *)ring, sizeof(ring[0]), 0, 0 };
	ret.groups = CUDA_KV_GROUPS(a.head_dim);
	ret.chunk_groups = min(ret.groups - at.chunk * CHUNK, CHUNK);
	ret.group = 0;
	ret.pos = at.begin + warp * CUDA_KV_TILE;
	ret.end = at.end;
	ret.step = warps * CUDA_KV_TILE;
	ret.step_bytes = warps * ret.groups * TILE;
	ret.at = (const uint8_t *)(a.keys + tile_place(a, at.kv_head, ret.pos));
	ret.to_values = (const uint8_t *)a.values - (const uint8_t *)a.keys +
			(int64_t)(at.chunk * CHUNK * TILE) - (int64_t)(ret.groups * TILE);
	if (threadIdx.x % 32 == 0) {
		ring_open<DEPTH>(landings);
		landing_opened();
	}
#pragma unroll
	for (uint32_t i = 0; i < DEPTH; i++)
		piece_load(ret);
	ret.ring.parity = 0;
	return ret;
}

/* The oldest piece, once it is there. */
template <uint32_t DEPTH>
static __device__ __forceinline__ struct cuda_kv_tile *
piece_wait(const stream<DEPTH> &s)
{
	return (struct cuda_kv_tile *)ring_wait(s.ring);
}

/* A head of q to where all warps find it. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
query_put(block_room<CHUNKS, SMALL> *room, const struct fixed_four (&x)[CHUNKS], uint32_t head)
{
	uint32_t part = threadIdx.x % 8;

#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++) {
		uint32_t group = CHUNK * c + threadIdx.x % 32 / 8;
		uint32_t *to = room->q[group][4 * head + part / 2].bytes + part % 2 * 2;

		*(uint2 *)to = make_uint2(high_bytes(x[c]), low_bytes(x[c]));
		if (part == 0)
			room->q_unit[group][head] = x[c].unit * PRODUCT_UNIT;
	}
}

/* The newest row to the cache, by the warp that has the fewest tiles of those blocks that are to.
 */
template <int CHUNKS>
static __device__ __forceinline__ void
row_append(const cuda_attention &a, const split &at, const struct newest_row<CHUNKS> &row)
{
	uint32_t tiles = up(at.end - at.begin, CUDA_KV_TILE);

	if (!at.makes_row || threadIdx.x / 32 != tiles % (blockDim.x / 32))
		return;
	if (at.key_to_cache)
		key_append<CHUNKS>(a, at.kv_head, at.pos, row.key);
	if (at.to_cache)
		value_append(a, at.kv_head, at.pos, at.chunk, row.value);
}

/* Heads of q by turns, a warp each.  Every warp makes the newest row as well, beside its first
 * head: that takes no longer, and the one that wants it has it. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
heads_make(const cuda_attention &a, const split &at, const head_form<CHUNKS> &form,
	   const head_turns<CHUNKS> &turns, block_room<CHUNKS, SMALL> *room,
	   struct newest_row<CHUNKS> *ret)
{
	constexpr uint32_t WARPS = block_room<CHUNKS, SMALL>::WARPS;
	uint32_t warp = threadIdx.x / 32;
	const float *q = a.qkv.at + (uint64_t)at.token * a.qkv.stride;
	head_pairs<CHUNKS> key = head_load<CHUNKS>(key_from(a, at.token, at.kv_head), a.head_dim);
	float4 value = value_load(a, at.token, at.kv_head, at.chunk);
	float factor = query_factor(a);

#pragma unroll
	for (uint32_t n = 0; n < HEADS / WARPS; n++) {
		/* Heads beyond the last are there to be finite. */
		uint32_t head = warp + n * WARPS, from = at.head + min(head, at.heads - 1);
		head_pairs<CHUNKS> x =
		    head_load<CHUNKS>(q + (uint64_t)from * a.head_dim, a.head_dim);
		struct fixed_four fixed[CHUNKS];
		float scale = head_scale(a, x), key_scale = n == 0 ? head_scale(a, key) : 0;

		head_turn(a, x, scale, form.q_norm, turns, factor, room->line[warp][0]);
		if (n == 0)
			head_turn(a, key, key_scale, form.k_norm, turns, 1, room->line[warp][1]);
		__syncwarp();
		line_fix<CHUNKS>(room->line[warp][0], fixed);
		if (n == 0)
			line_fix<CHUNKS>(room->line[warp][1], ret->key);
		if (n == 0)
			ret->value = fixed_four_of<KV_LANES>(value);
		query_put(room, fixed, head);
		__syncwarp();
	}
}

/* A warp's next tile. */
struct tile_at {
	uint32_t pos, valid; /* the newest position; how many of the tile count */
	bool newest;         /* it is one of them, and this warp's to make */
};

/* Of a split's last tile: what lies behind its end counts nothing, and the newest row comes in by
 * `put`. */
template <class Put>
static __device__ __forceinline__ void
piece_mend(struct cuda_kv_tile *tiles, const tile_at &at, const Put &put)
{
	uint32_t lane = threadIdx.x % 32;

	if (lane >= at.valid)
		for (uint32_t i = 0; i < CHUNK; i++)
			tiles[i].unit[lane] = 0;
	if (at.newest)
		put();
	engine_after_writes();
	__syncwarp();
}

/* All tiles of a piece; a whole one's overlap. */
template <class Each>
static __device__ __forceinline__ void
piece_each(uint32_t n, const Each &each)
{
	if (n >= CHUNK) {
#pragma unroll
		for (uint32_t i = 0; i < CHUNK; i++)
			each(i);
		return;
	}
#pragma unroll
	for (uint32_t i = 0; i < CHUNK - 1; i++)
		if (i < n)
			each(i);
}

template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
keys_run(const tile_at &at, bool last, stream<block_room<CHUNKS, SMALL>::DEPTH> &s,
	 const block_room<CHUNKS, SMALL> *room, const struct newest_row<CHUNKS> &row,
	 float (&score)[8])
{
	uint32_t lane = threadIdx.x % 32;

#pragma unroll 1
	for (uint32_t c = 0; CHUNK * c < s.groups; c++) {
		struct cuda_kv_tile *tiles = piece_wait(s);

		if (last)
			piece_mend(tiles, at, [&]() {
#pragma unroll
				for (uint32_t k = 0; k < CHUNKS; k++)
					if (k == c && CHUNK * c + lane / 8 < s.groups)
						key_put(tiles + lane / 8, at.pos, row.key[k]);
			});
		piece_each(s.groups - CHUNK * c, [&](uint32_t i) {
			keys_add(tiles + i, room->q[CHUNK * c + i][lane],
				 room->q_unit[CHUNK * c + i][lane / 4], score);
		});
		piece_load(s);
	}
}

template <int CHUNKS, uint32_t DEPTH>
static __device__ __forceinline__ void
values_run(const tile_at &at, bool last, stream<DEPTH> &s, const struct newest_row<CHUNKS> &row,
	   const float (&weight)[8], float (&sums)[CHUNK][8])
{
	struct cuda_kv_tile *tiles = piece_wait(s);
	uint32_t part = threadIdx.x % 32 / 8;

	if (last)
		piece_mend(tiles, at, [&]() {
			if (part < s.chunk_groups)
				value_put(tiles + part, at.pos, row.value);
		});
	piece_each(s.chunk_groups, [&](uint32_t i) { values_add(tiles + i, weight, sums[i]); });
	piece_load(s);
}

/* A warp's tiles of the split, one after another. */
template <int CHUNKS, bool SMALL>
static __device__ __forceinline__ void
tiles_run(const split &at, stream<block_room<CHUNKS, SMALL>::DEPTH> &s,
	  const block_room<CHUNKS, SMALL> *room, const struct newest_row<CHUNKS> &row,
	  struct running *state, float (&sums)[CHUNK][8])
{
#pragma unroll 1
	for (uint32_t p = at.begin + threadIdx.x / 32 * CUDA_KV_TILE; p < at.end; p += s.step) {
		bool last = at.end - p <= CUDA_KV_TILE;
		tile_at tile = { at.pos, min(at.end - p, CUDA_KV_TILE), at.makes_row && last };
		float weight[8] = {}, factor;

		keys_run(tile, last, s, room, row, weight);
		factor = scores_weigh(weight, tile.valid, state);
		if (__any_sync(0xffffffffu, factor != 1.0f))
#pragma unroll
			for (uint32_t i = 0; i < 8 * CHUNK; i++)
				sums[i / 8][i % 8] *= factor;
		values_run(tile, last, s, row, weight, sums);
	}
}

#endif
