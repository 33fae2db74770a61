/* A split of the context, by one block: the warps' tiles, their sums joined, and the splits' sums
 * joined by the last block. */
#ifndef HEARTH_WORKER_CUDA_SPLIT_CUH
#define HEARTH_WORKER_CUDA_SPLIT_CUH

#include "worker/cuda_attend.cuh"
#include "worker/cuda_fixed.cuh"
#include "worker/cuda_heads.cuh"

#define SPLIT_LEAST 256u /* positions: a tile for each of 8 warps */
#define SPLITS_MAX 128u
#define LOG2_E 1.44269504088896340736f
#define SUMS_ROW (32 * CHUNK + 8) /* floats: heads begin at different banks */

static __host__ __device__ constexpr uint32_t
up(uint32_t n, uint32_t by)
{
	return (n + by - 1) / by;
}

/* Of one (token, head, 128 columns, split): the values' sum not yet divided, and before all of
 * them, as pairs, the greatest score and the sum of exp2(score - greatest). */
struct partials {
	float2 *stats;
	float *sums;
	uint32_t splits; /* room for */
};

/* A head has up to 128 * CHUNKS columns; a block computes 128 of the output's.  DEPTH: pieces of a
 * warp that are on their way at once. */
template <int CHUNKS, int DEPTH> struct block_room {
	static constexpr uint32_t WARPS = CHUNKS > 2 ? 4 : 8;

	struct cuda_kv_tile ring[WARPS][DEPTH][PIECE_TILES];
	struct fixed_run q[4 * CHUNKS][4 * HEADS]; /* (groups, lanes) */
	float q_unit[4 * CHUNKS][HEADS];
	float line[WARPS][128 * CHUNKS];
	float2 stats[WARPS][HEADS];
	uint32_t last;
};

static_assert(sizeof(float[HEADS][SUMS_ROW]) <= sizeof(struct cuda_kv_tile[PIECE_TILES]),
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
	uint32_t positions = up(up(length, most), CUDA_KV_TILE) * CUDA_KV_TILE;
	split ret;

	positions = max(positions, SPLIT_LEAST);
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

/* A warp's pieces of its tiles one after another: of each tile the keys of all groups, then the
 * values of its chunk. */
template <int DEPTH> struct stream {
	struct cuda_kv_tile (*ring)[PIECE_TILES]; /* (DEPTH) */
	const struct cuda_kv_tile *keys, *values; /* of the tile to load next */
	uint32_t groups, chunk_groups;            /* tiles of keys, of values */
	uint32_t group;                           /* the next of both */
	uint32_t pos, end, step; /* positions of the tile to load next; a step on */
	uint32_t stride;         /* tiles of the cache in a step */
	uint32_t slot;           /* of the ring: the oldest piece, or the next */
};

/* The next piece starts on its way as one group of copies, empty behind the last. */
template <int DEPTH>
static __device__ __forceinline__ void
piece_load(struct stream<DEPTH> &s)
{
	constexpr uint32_t UNITS = sizeof(struct cuda_kv_tile) / 16;
	bool is_key = s.group < s.groups;
	uint32_t group = is_key ? s.group : s.group - s.groups;
	uint32_t left = (is_key ? s.groups : s.chunk_groups) - group;
	uint32_t units = min(left, PIECE_TILES) * UNITS;
	const uint4 *from = (const uint4 *)((is_key ? s.keys : s.values) + group);
	uint4 *to = (uint4 *)s.ring[s.slot];

	if (s.pos < s.end) {
#pragma unroll
		for (uint32_t i = threadIdx.x % 32; i < PIECE_TILES * UNITS; i += 32)
			if (i < units)
				copy16(to + i, from + i);
	}
	copies_end_group();
	s.slot = s.slot + 1 == DEPTH ? 0 : s.slot + 1;
	s.group += min(left, PIECE_TILES);
	if (s.group < s.groups + s.chunk_groups)
		return;
	s.group = 0;
	s.pos += s.step;
	s.keys += s.stride;
	s.values += s.stride;
}

template <int DEPTH>
static __device__ __forceinline__ struct stream<DEPTH>
stream_begin(const cuda_attention &a, const split &at, uint32_t warp, uint32_t warps,
	     struct cuda_kv_tile (*ring)[PIECE_TILES]) {
	struct stream<DEPTH> ret;

	ret.ring = ring;
	ret.groups = CUDA_KV_GROUPS(a.head_dim);
	ret.chunk_groups = min(ret.groups - at.chunk * CHUNK, CHUNK);
	ret.group = ret.slot = 0;
	ret.pos = at.begin + warp * CUDA_KV_TILE;
	ret.end = at.end;
	ret.step = warps * CUDA_KV_TILE;
	ret.stride = warps * ret.groups;
	ret.keys = a.keys + tile_place(a, at.kv_head, ret.pos);
	ret.values = a.values + tile_place(a, at.kv_head, ret.pos) + at.chunk * CHUNK;
#pragma unroll
	for (int i = 0; i < DEPTH; i++)
		piece_load(ret);
	return ret;
}

/* The oldest piece, once it is there. */
template <int DEPTH>
static __device__ __forceinline__ struct cuda_kv_tile *
piece_wait(const struct stream<DEPTH> &s)
{
	copies_wait_but<DEPTH - 1>();
	__syncwarp();
	return s.ring[s.slot];
}

/* The oldest piece is done with: another takes its place. */
template <int DEPTH>
static __device__ __forceinline__ void
piece_done(struct stream<DEPTH> &s)
{
	__syncwarp();
	piece_load(s);
}

/* The newest position's key and its block's part of the value, as a lane has them of a warp. */
template <int CHUNKS> struct newest_row {
	struct fixed_four key[CHUNKS], value;
};

/* What a warp asks for before the block waits for q, k and v: it depends on the position alone. */
template <int CHUNKS> struct head_form {
	head_pairs<CHUNKS> q_norm, k_norm;
	head_turns<CHUNKS> turns;
};

template <int CHUNKS>
static __device__ __forceinline__ head_form<CHUNKS>
form_load(const cuda_attention &a, const split &at)
{
	return head_form<CHUNKS>{ head_load<CHUNKS>(a.q_norm, a.head_dim),
				  head_load<CHUNKS>(a.k_norm, a.head_dim),
				  turns_at<CHUNKS>(a, at.pos) };
}

static __device__ __forceinline__ float4
line_four(const float *line, uint32_t chunk)
{
	return *(const float4 *)(line + 128 * chunk + 4 * (threadIdx.x % 32));
}

/* By a warp; `line`: its room for a head. */
template <int CHUNKS>
static __device__ __forceinline__ void
key_make(const cuda_attention &a, const head_form<CHUNKS> &form, const head_pairs<CHUNKS> &x,
	 float *line, struct fixed_four (&ret)[CHUNKS])
{
	head_turn<CHUNKS>(a, x, form.k_norm, form.turns, 1, line);
	__syncwarp();
#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++)
		ret[c] = fixed_four_of<KV_LANES>(line_four(line, c));
	__syncwarp();
}

/* Where lanes' columns of a position lie in the cache. */
template <int CHUNKS>
static __device__ __forceinline__ void
key_append(const cuda_attention &a, uint32_t kv_head, uint32_t pos,
	   const struct fixed_four (&key)[CHUNKS])
{
	struct cuda_kv_tile *to = a.keys + tile_place(a, kv_head, pos);

#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++) {
		uint32_t group = CHUNK * c + threadIdx.x % 32 / 8;

		if (group < CUDA_KV_GROUPS(a.head_dim))
			key_put(to + group, pos, key[c]);
	}
}

static __device__ __forceinline__ void
value_append(const cuda_attention &a, uint32_t kv_head, uint32_t pos, uint32_t chunk,
	     const struct fixed_four &value)
{
	uint32_t group = CHUNK * chunk + threadIdx.x % 32 / 8;

	if (group < CUDA_KV_GROUPS(a.head_dim))
		value_put(a.values + tile_place(a, kv_head, pos) + group, pos, value);
}

/* A head of q to where all warps find it. */
template <int CHUNKS, int DEPTH>
static __device__ __forceinline__ void
query_put(block_room<CHUNKS, DEPTH> *room, const float *line, uint32_t head)
{
	uint32_t part = threadIdx.x % 8;

#pragma unroll
	for (uint32_t c = 0; c < CHUNKS; c++) {
		uint32_t group = CHUNK * c + threadIdx.x % 32 / 8;
		struct fixed_four x = fixed_four_of<KV_LANES>(line_four(line, c));
		struct fixed_run *run = &room->q[group][4 * head + part / 2];

		run->high[part % 2] = high_bytes(x);
		run->low[part % 2] = low_bytes(x);
		if (part == 0)
			room->q_unit[group][head] = x.unit * PRODUCT_UNIT;
	}
}

/* Heads of q by turns, a warp each; and by the warp that has the newest position its row, to the
 * cache too.  All that the first turn needs is asked for before any is waited for. */
template <int CHUNKS, int DEPTH>
static __device__ __forceinline__ void
heads_make(const cuda_attention &a, const split &at, const head_form<CHUNKS> &form, bool makes_row,
	   block_room<CHUNKS, DEPTH> *room, struct newest_row<CHUNKS> *ret)
{
	constexpr uint32_t WARPS = block_room<CHUNKS, DEPTH>::WARPS;
	float factor = LOG2_E / sqrtf((float)a.head_dim), *line = room->line[threadIdx.x / 32];
	const float *q = a.qkv.at + (uint64_t)at.token * a.qkv.stride;
	head_pairs<CHUNKS> key = {};
	float4 value = {};

	if (makes_row) {
		key = head_load<CHUNKS>(key_from(a, at.token, at.kv_head), a.head_dim);
		value = value_load(a, at.token, at.kv_head, at.chunk);
	}
	for (uint32_t head = threadIdx.x / 32; head < HEADS; head += WARPS) {
		/* Heads beyond the last are there to be finite. */
		uint32_t from = at.head + min(head, at.heads - 1);

		head_turn<CHUNKS>(a, head_load<CHUNKS>(q + (uint64_t)from * a.head_dim, a.head_dim),
				  form.q_norm, form.turns, factor, line);
		__syncwarp();
		query_put(room, line, head);
		__syncwarp();
	}
	if (!makes_row)
		return;
	key_make<CHUNKS>(a, form, key, line, ret->key);
	ret->value = fixed_four_of<KV_LANES>(value);
	if (at.key_to_cache)
		key_append<CHUNKS>(a, at.kv_head, at.pos, ret->key);
	if (at.to_cache)
		value_append(a, at.kv_head, at.pos, at.chunk, ret->value);
}

/* A warp's scores of its next tile.  `newest`: the row is one of it. */
template <int CHUNKS, int DEPTH>
static __device__ __forceinline__ void
keys_run(const split &at, struct stream<DEPTH> &s, const block_room<CHUNKS, DEPTH> *room,
	 bool newest, const struct newest_row<CHUNKS> &row, float (&score)[8])
{
	uint32_t lane = threadIdx.x % 32;

#pragma unroll 1
	for (uint32_t group = 0; group < s.groups; group += PIECE_TILES) {
		struct cuda_kv_tile *tiles = piece_wait(s);

		if (newest) {
#pragma unroll
			for (uint32_t c = 0; c < CHUNKS; c++)
				if ((CHUNK * c + lane / 8) / PIECE_TILES == group / PIECE_TILES)
					key_put(tiles + lane / 8 % PIECE_TILES, at.pos, row.key[c]);
			__syncwarp();
		}
#pragma unroll
		for (uint32_t i = 0; i < PIECE_TILES; i++)
			if (group + i < s.groups)
				keys_add(tiles + i, room->q[group + i][lane],
					 room->q_unit[group + i][lane / 4], score);
		piece_done(s);
	}
}

/* Its values, by their weights. */
template <int CHUNKS, int DEPTH>
static __device__ __forceinline__ void
values_run(const split &at, struct stream<DEPTH> &s, bool newest,
	   const struct newest_row<CHUNKS> &row, const float (&weight)[8], uint32_t valid,
	   float (&sums)[CHUNK][8])
{
	uint32_t part = threadIdx.x % 32 / 8;

#pragma unroll
	for (uint32_t group = 0; group < CHUNK; group += PIECE_TILES) {
		if (group >= s.chunk_groups)
			continue;
		struct cuda_kv_tile *tiles = piece_wait(s);

		if (newest) {
			if (part / PIECE_TILES == group / PIECE_TILES)
				value_put(tiles + part % PIECE_TILES, at.pos, row.value);
			__syncwarp();
		}
#pragma unroll
		for (uint32_t i = 0; i < PIECE_TILES; i++)
			if (group + i < s.chunk_groups)
				values_add(tiles + i, weight, valid, sums[group + i]);
		piece_done(s);
	}
}

/* A warp's tiles of the split, one after another. */
template <int CHUNKS, int DEPTH>
static __device__ __forceinline__ void
tiles_run(const split &at, struct stream<DEPTH> &s, const block_room<CHUNKS, DEPTH> *room,
	  bool makes_row, const struct newest_row<CHUNKS> &row, struct running *state,
	  float (&sums)[CHUNK][8])
{
#pragma unroll 1
	for (uint32_t p = at.begin + threadIdx.x / 32 * CUDA_KV_TILE; p < at.end; p += s.step) {
		uint32_t valid = min(at.end - p, CUDA_KV_TILE);
		bool newest = makes_row && p + valid == at.end;
		float weight[8] = {}, factor;

		keys_run(at, s, room, newest, row, weight);
		factor = scores_weigh(weight, valid, state);
		if (__any_sync(0xffffffffu, factor != 1.0f))
#pragma unroll
			for (uint32_t i = 0; i < 8 * CHUNK; i++)
				sums[i / 8][i % 8] *= factor;
		values_run(at, s, newest, row, weight, valid, sums);
	}
}

#endif
