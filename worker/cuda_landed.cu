/* The experts' kernels of one token where all that a block reads fits into its shared memory: rows
 * and vectors come as whole pieces (cuda_landing.cuh).  The bits are those of cuda_experts.cu,
 * which takes what does not fit. */
#include "worker/cuda_experts.cuh"
#include "worker/cuda_landing.cuh"

#define ROWS 16u /* of a block's act: whole groups in fixed point */
#define IN_WARPS 8u
#define TURNS (ROWS / IN_WARPS)
#define IN_PIECES (2 * TURNS) /* gate and up of each turn */
#define OUT_ROWS 8u
#define OUT_WARPS (2 * OUT_ROWS) /* two a row of h */
#define VECTOR_PIECES 2u
#define ROW_MOST (64u << 10) /* bytes: no sum here leaves 32 bits */

/* How a block's shared memory is laid out: vectors in both forms, its own, the experts' places,
 * rows. */
struct landed {
	struct cuda_moe moe;
	uint32_t fixed_bytes, float_bytes; /* 0: the types do not need that form */
	uint32_t floats_at, own_at, table_at, rows_at;
	uint32_t room; /* bytes for a piece of rows */
	uint32_t bytes;
};

static __device__ __forceinline__ uint32_t
rows_left(uint32_t first, uint32_t rows, uint32_t at_most)
{
	return first < rows ? min(rows - first, at_most) : 0;
}

/* VECTOR_PIECES of them. */
static __device__ __forceinline__ void
vectors_ask(const struct landed &p, struct landing *landing, uint8_t *memory,
	    const struct cuda_vectors &from)
{
	for (uint32_t i = landing_first(); i < VECTOR_PIECES; i += landing_step()) {
		if (i == 0)
			landing_ask(landing, memory, from.fixed.at, p.fixed_bytes);
		else
			landing_ask(landing, memory + p.floats_at, (const uint8_t *)(from.rows.at),
				    p.float_bytes);
	}
}

static __device__ __forceinline__ struct vectors
vectors_at(const struct landed &p, const uint8_t *memory, const struct cuda_vectors &from)
{
	uint32_t fixed = landing_place(from.fixed.at);
	uint32_t floats = landing_place(from.rows.at);

	return vectors{ memory + fixed, (const float *)(memory + p.floats_at + floats),
			from.fixed.stride, from.rows.stride };
}

/* A block's own memory. */
struct in_own {
	float act[ROWS];
	struct landing turns[TURNS], table;
	uint32_t place[IN_PIECES]; /* of a piece's first row in its room */
};

/* Piece i is of turn i / 2, gate and up by turns. */
static __device__ __forceinline__ void
in_ask(const struct landed &p, struct in_own *own, const struct expert_place *table, uint8_t *rooms,
       uint32_t slot, uint32_t i)
{
	const struct cuda_moe &moe = p.moe;
	uint32_t first = blockIdx.x * ROWS + i / 2 * IN_WARPS;
	uint32_t row_bytes = (uint32_t)(i % 2 ? moe.row_bytes[ROLE_UP] : moe.row_bytes[ROLE_GATE]);
	const uint8_t *from =
	    (const uint8_t *)table[__ldcg(moe.chosen + slot)].role[i % 2 ? ROLE_UP : ROLE_GATE] +
	    (uint64_t)first * row_bytes;

	own->place[i] = landing_place(from);
	landing_ask(&own->turns[i / 2], rooms + i * p.room, from,
		    rows_left(first, moe.width, IN_WARPS) * row_bytes);
}

static __device__ __forceinline__ float
row_times(uint32_t type, const uint8_t *row, const struct vectors &x, uint32_t columns)
{
	float sum[1] = {};

	any_rows_times<1>(
	    type, (uintptr_t)row % 16 == 0, [=](uint32_t, uint32_t) { return row; }, x, 1, columns,
	    sum);
	return warp_sums(sum);
}

/* A block has ROWS of act of one chosen expert, a warp one a turn, of gate and up both.  ALIKE:
 * these are of one type. */
template <bool ALIKE>
static __global__ void
__launch_bounds__(IN_WARPS * 32, 3) experts_in_landed_kernel(struct landed p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, in_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * ROWS;
	uint32_t slot = blockIdx.y;
	struct in_own *own = (struct in_own *)(in_memory + p.own_at);
	uint8_t *rooms = in_memory + p.rows_at;
	const struct vectors x = vectors_at(p, in_memory, moe.x);
	const struct expert_place *table;
	float weight;

	PROBE_BEGIN();
	if (threadIdx.x == 0) {
		for (uint32_t turn = 0; turn < TURNS; turn++)
			landing_open(&own->turns[turn], turn == 0 ? 2 + VECTOR_PIECES : 2);
		landing_open(&own->table, 1);
	}
	landings_opened();
	/* Places change between tokens alone, or by a copy that this kernel is launched behind. */
	for (uint32_t i = landing_first(); i < 1; i += landing_step())
		landing_ask(&own->table, in_memory + p.table_at, (const uint8_t *)moe.places,
			    moe.experts * (uint32_t)sizeof(*moe.places));
	landing_wait(&own->table);
	table = (const struct expert_place *)(in_memory + p.table_at + landing_place(moe.places));
	previous_done();
	PROBE(PROBE_WAITED);
	/* Not before: the next kernel reads the choice as soon as it begins. */
	let_next_begin();
	if (share_given(moe.share, slot))
		return;
	vectors_ask(p, &own->turns[0], in_memory, moe.x);
	for (uint32_t i = landing_first(); i < IN_PIECES; i += landing_step())
		in_ask(p, own, table, rooms, slot, i);
	weight = __ldcg(moe.weights + slot);
#pragma unroll 1
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t begin = first + turn * IN_WARPS, there, row;
		const uint8_t *gates = rooms + 2 * turn * p.room, *ups = gates + p.room;
		float sums[2] = {}, gate, up;

		landing_wait(&own->turns[turn]);
		PROBE(PROBE_LOADED);
		there = rows_left(begin, moe.width, IN_WARPS);
		row = there > 0 ? min(warp, there - 1) : 0;
		gates += own->place[2 * turn] + row * (uint32_t)moe.row_bytes[ROLE_GATE];
		ups += own->place[2 * turn + 1] + row * (uint32_t)moe.row_bytes[ROLE_UP];
		if constexpr (ALIKE) {
			auto pair = [=](uint32_t, uint32_t n) { return n == 0 ? gates : ups; };
			bool whole = ((uintptr_t)gates | (uintptr_t)ups) % 16 == 0;

			any_rows_times<2>(moe.type[ROLE_GATE], whole, pair, x, 1, moe.hidden, sums);
			gate = warp_sums(sums);
			up = __shfl_sync(0xffffffffu, gate, 16);
		} else {
			gate = row_times(moe.type[ROLE_GATE], gates, x, moe.hidden);
			up = row_times(moe.type[ROLE_UP], ups, x, moe.hidden);
		}
		if (lane == 0)
			own->act[turn * IN_WARPS + warp] =
			    warp < there ? act_of(gate, up, weight) : 0;
	}
	PROBE(PROBE_MULTIPLIED);
	__syncthreads();
	if (warp == 0)
		act_store<ROWS>(moe, slot, first, own->act);
	PROBE_END();
}

/* A block's own memory: this, places (top_k), parts (OUT_ROWS, top_k). */
struct out_own {
	struct landing landing;
};

/* Piece k is of chosen expert k: the block's rows of down. */
static __device__ __forceinline__ void
out_ask(const struct landed &p, struct landing *landing, uint32_t *place, uint8_t *rooms,
	uint32_t k)
{
	const struct cuda_moe &moe = p.moe;
	uint32_t first = blockIdx.x * OUT_ROWS, row_bytes = (uint32_t)moe.row_bytes[ROLE_DOWN];
	const uint8_t *from =
	    role_at(moe, __ldcg(moe.chosen + k), ROLE_DOWN) + (uint64_t)first * row_bytes;

	place[k] = landing_place(from);
	if (share_given(moe.share, k))
		row_bytes = 0;
	landing_ask(landing, rooms + k * p.room, from,
		    rows_left(first, moe.hidden, OUT_ROWS) * row_bytes);
}

/* One of the two warps of a row: its half of the chosen, into parts. */
static __device__ __forceinline__ void
out_times(const struct landed &p, const uint32_t *place, const uint8_t *rooms, struct vectors x,
	  struct segment_parts parts)
{
	const struct cuda_moe &moe = p.moe;
	uint32_t warp = threadIdx.x / 32, half = (moe.top_k + 1) / 2;
	uint32_t first = warp / OUT_ROWS * half, n = min(half, moe.top_k - first);
	uint32_t row_at = warp % OUT_ROWS * (uint32_t)moe.row_bytes[ROLE_DOWN], odd = row_at;

	parts = parts.from(first);
	rooms += first * p.room + row_at;
	place += first;
	for (uint32_t k = 0; k < n; k++) {
		odd |= place[k];
		parts.from(k).at[threadIdx.x % 32] = 0;
	}
	__syncwarp();
	x.fixed += first * x.fixed_stride;
	x.floats += first * x.floats_stride;
	any_rows_times<1>(
	    moe.type[ROLE_DOWN], odd % 16 == 0,
	    [=](uint32_t k, uint32_t) { return rooms + k * p.room + place[k]; }, x, n, moe.width,
	    parts);
}

static __global__ void
__launch_bounds__(OUT_WARPS * 32, 2) experts_out_landed_kernel(struct landed p PROBE_PARAM)
{
	CUDA_SHARED(uint8_t, out_memory);
	const struct cuda_moe &moe = p.moe;
	uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t row = blockIdx.x * OUT_ROWS + warp % OUT_ROWS;
	struct out_own *own = (struct out_own *)(out_memory + p.own_at);
	uint32_t *place = (uint32_t *)(own + 1);
	struct segment_parts of_block = { (float *)(place + moe.top_k) };
	struct segment_parts parts = of_block.from(warp % OUT_ROWS * moe.top_k);
	uint8_t *rooms = out_memory + p.rows_at;
	float *out = moe.h.at + row, sum = 0;
	bool adds = warp < OUT_ROWS && row < moe.hidden;

	PROBE_BEGIN();
	if (threadIdx.x == 0)
		landing_open(&own->landing, moe.top_k + VECTOR_PIECES);
	landings_opened();
	/* The choice was made before the kernel before this one let it begin. */
	for (uint32_t k = landing_first(); k < moe.top_k; k += landing_step())
		out_ask(p, &own->landing, place, rooms, k);
	previous_done();
	PROBE(PROBE_WAITED);
	vectors_ask(p, &own->landing, out_memory, moe.act);
	if (adds)
		sum = __ldcg(out);
	landing_wait(&own->landing);
	PROBE(PROBE_LOADED);
	let_next_begin();
	if (row < moe.hidden)
		out_times(p, place, rooms, vectors_at(p, out_memory, moe.act), parts);
	PROBE(PROBE_MULTIPLIED);
	__syncthreads();
	if (moe.share.order) {
		share_await(moe.share, moe.top_k);
		parts_take<OUT_ROWS, OUT_WARPS>(moe, of_block, blockIdx.x * OUT_ROWS);
	}
	if (adds) {
		sum = segments_add(sum, parts, moe.top_k);
		if (lane == 0)
			*out = sum;
	}
	PROBE_END();
}

/* Of `n` vectors and `pieces` of rows.  *ret_fits: two blocks have room on an SM. */
static int
lay_out(struct landed *p, const struct cuda_vectors *vectors, uint32_t n, uint32_t columns,
	uint32_t own, uint32_t places, uint32_t pieces, bool *ret_fits, struct error *err)
{
	uint64_t bytes;
	int most = 0;

	if (p->fixed_bytes)
		p->fixed_bytes =
		    (n - 1) * vectors->fixed.stride + (uint32_t)CUDA_FIXED_BYTES(columns);
	if (p->float_bytes)
		p->float_bytes = 4 * ((n - 1) * vectors->rows.stride + (columns + 3) / 4 * 4);
	p->floats_at = LANDING_ROOM(p->fixed_bytes);
	p->own_at = p->floats_at + LANDING_ROOM(p->float_bytes);
	p->table_at = (p->own_at + own + LINE - 1) / LINE * LINE;
	p->rows_at =
	    p->table_at + (places ? LANDING_ROOM(places * sizeof(struct expert_place)) : 0);
	bytes = p->rows_at + (uint64_t)pieces * p->room;
	p->bytes = (uint32_t)bytes;
	if (int r = cuda_shared_each(2, &most, err))
		return r;
	*ret_fits = most > 0 && bytes <= (uint64_t)most;
	return 0;
}

static void
want_form(struct landed *p, uint32_t type)
{
	*(type_is_floats(type) ? &p->float_bytes : &p->fixed_bytes) = 1;
}

int
cuda_landed_in(void *stream, const struct cuda_moe *moe, bool *ret_done, struct error *err)
{
	const uint32_t gate = moe->type[ROLE_GATE], up = moe->type[ROLE_UP];
	dim3 grid((moe->width + ROWS - 1) / ROWS, moe->top_k);
	uint64_t row = moe->row_bytes[ROLE_GATE] > moe->row_bytes[ROLE_UP]
			   ? moe->row_bytes[ROLE_GATE]
			   : moe->row_bytes[ROLE_UP];
	struct landed p = {};
	int r;

	*ret_done = false;
	if (row > ROW_MOST)
		return 0;
	p.moe = *moe;
	p.room = (uint32_t)LANDING_ROOM(IN_WARPS * row);
	want_form(&p, gate);
	want_form(&p, up);
	r = lay_out(&p, &moe->x, 1, moe->hidden, sizeof(struct in_own), moe->experts, IN_PIECES,
		    ret_done, err);
	if (r || !*ret_done)
		return r;
	auto kernel = gate == up ? experts_in_landed_kernel<true> : experts_in_landed_kernel<false>;

	return cuda_launch_behind(moe->behind_copy, "experts_in_landed_kernel", kernel, grid,
				  IN_WARPS * 32, p.bytes, stream, err, p);
}

int
cuda_landed_out(void *stream, const struct cuda_moe *moe, bool *ret_done, struct error *err)
{
	uint32_t own =
	    (uint32_t)sizeof(struct out_own) +
	    moe->top_k * (uint32_t)(sizeof(uint32_t) + OUT_ROWS * SEGMENT_PITCH * sizeof(float));
	struct landed p = {};
	int r;

	*ret_done = false;
	if (moe->row_bytes[ROLE_DOWN] > ROW_MOST || moe->top_k > OUT_WARPS * 32)
		return 0;
	p.moe = *moe;
	p.room = (uint32_t)LANDING_ROOM(OUT_ROWS * moe->row_bytes[ROLE_DOWN]);
	want_form(&p, moe->type[ROLE_DOWN]);
	r = lay_out(&p, &moe->act, moe->top_k, moe->width, own, 0, moe->top_k, ret_done, err);
	if (r || !*ret_done)
		return r;
	return cuda_launch("experts_out_landed_kernel", experts_out_landed_kernel,
			   (moe->hidden + OUT_ROWS - 1) / OUT_ROWS, OUT_WARPS * 32, p.bytes, stream,
			   err, p);
}
