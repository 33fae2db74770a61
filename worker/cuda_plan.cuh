/* How a launch lays out the shared memory of its blocks. */
#ifndef HEARTH_WORKER_CUDA_PLAN_CUH
#define HEARTH_WORKER_CUDA_PLAN_CUH

#include "worker/cuda_landing.cuh"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_stage.cuh"

/* For rows, if they fit: a launch of several blocks an SM does not gain from more. */
#define ROWS_BYTES (80u << 10)

struct cuda_wants {
	uint32_t columns, vectors;
	uint32_t rows; /* of a product in one segment */
	uint32_t segments;
	uint32_t buffers; /* products of a warp that are staged at once, where there is room */
	uint32_t warps;
	bool norm;   /* floats too, whatever the types */
	bool landed; /* rows lie side by side, of one segment: as a piece, if they fit */
	uint32_t own_bytes;
	const uint32_t *types;
	uint32_t n_types;
};

static inline bool
type_is_floats(uint32_t type)
{
	switch (type) {
#define FLOATS_CASE(T) \
	case T::TYPE:  \
		return T::FLOATS;
		CUDA_TYPES(FLOATS_CASE)
#undef FLOATS_CASE
	}
	return false;
}

/* Of whole blocks. */
static inline uint32_t
type_bytes(uint32_t type, uint32_t columns)
{
	switch (type) {
#define BYTES_CASE(T) \
	case T::TYPE: \
		return columns / T::BLOCK * T::BYTES;
		CUDA_TYPES(BYTES_CASE)
#undef BYTES_CASE
	}
	return 0;
}

static inline uint32_t
row_most(const struct cuda_wants *wants, uint32_t columns)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < wants->n_types; i++)
		if (most < type_bytes(wants->types[i], columns))
			most = type_bytes(wants->types[i], columns);
	return most;
}

static inline uint32_t
pitch_of(const struct cuda_wants *wants, uint32_t columns)
{
	return (row_most(wants, columns) + 30) / 16 * 16; /* from a multiple of 16 to one */
}

/* Slices are of whole turns of a warp, so that the order of additions is the same however a row is
 * sliced: at a quantised type four blocks, at floats 32 pieces. */
static inline uint32_t
turn_columns(const struct cuda_wants *wants)
{
	for (uint32_t i = 0; i < wants->n_types; i++)
		if (!type_is_floats(wants->types[i]))
			return 4 * CUDA_FIXED_BLOCK;
	return CUDA_FIXED_BLOCK;
}

/* Rows in `bytes`: whole ones of all segments, of as many as fit, or slices of one; where not even
 * these fit at_once is 0. */
static inline void
plan_rows(struct cuda_plan *plan, const struct cuda_wants *wants, uint64_t bytes)
{
	uint64_t rows = (uint64_t)wants->rows * wants->warps;
	uint64_t one;

	plan->slice = wants->columns;
	one = rows * pitch_of(wants, plan->slice);
	if (one > bytes) {
		uint32_t turn = turn_columns(wants);

		plan->slice = (uint32_t)(bytes / (rows * pitch_of(wants, turn))) * turn;
		one = rows * pitch_of(wants, plan->slice);
	}
	plan->at_once = plan->slice > 0 && one > 0 ? (uint32_t)(bytes / one) : 0;
	if (plan->at_once > wants->segments)
		plan->at_once = wants->segments;
	plan->buffers = plan->at_once == wants->segments && plan->slice == wants->columns &&
				one * plan->at_once * wants->buffers <= bytes
			    ? wants->buffers
			    : 1;
	plan->pitch = pitch_of(wants, plan->slice);
	plan->buffer_bytes = wants->rows * plan->at_once * plan->pitch;
	plan->warp_bytes = plan->buffers * plan->buffer_bytes;
}

/* A warp's rows as one piece, from a line on, where there is room in `bytes`. */
static inline void
plan_landed(struct cuda_plan *plan, const struct cuda_wants *wants, uint64_t bytes)
{
	uint64_t rest = (plan->rows_at + LINE - 1) / LINE * LINE - plan->rows_at;
	uint64_t room = LANDING_ROOM((uint64_t)wants->rows * row_most(wants, wants->columns));

	if (plan->slice < wants->columns || rest + room * wants->warps > bytes)
		return;
	plan->landed = 1;
	plan->rows_at += (uint32_t)rest;
	plan->warp_bytes = (uint32_t)room;
}

/* -ENOTSUP: the device has too little memory for blocks over such vectors. */
static inline int
cuda_plan_make(struct cuda_plan *ret, const struct cuda_wants *wants, struct error *err)
{
	int limit = 0;
	uint64_t fixed, floats, rest, bytes;
	int r = cuda_shared_most(&limit, err);

	if (r)
		return r;
	*ret = {};
	ret->vectors = wants->vectors;
	ret->columns = wants->columns;
	for (uint32_t i = 0; i < wants->n_types; i++)
		*(type_is_floats(wants->types[i]) ? &ret->floats : &ret->fixed) = 1;
	fixed = ret->fixed ? (uint64_t)wants->vectors * CUDA_FIXED_BYTES(wants->columns) : 0;
	floats = ret->floats || wants->norm
		     ? (uint64_t)wants->vectors * ((wants->columns + 3) / 4 * 16)
		     : 0;
	rest = fixed + floats + (wants->own_bytes + 15) / 16 * 16;
	bytes = rest >= (uint64_t)limit ? 0 : limit - rest < ROWS_BYTES ? limit - rest : ROWS_BYTES;
	if (bytes > 0)
		plan_rows(ret, wants, bytes);
	if (ret->at_once == 0 && wants->warps > 0)
		return error_set(err, -ENOTSUP,
				 "cuda: %u vectors of %u in blocks of %d KiB: want a device with "
				 "more memory for each block",
				 wants->vectors, wants->columns, limit >> 10);
	ret->floats_at = (uint32_t)fixed;
	ret->own_at = (uint32_t)(fixed + floats);
	ret->rows_at = (uint32_t)rest;
	if (wants->landed)
		plan_landed(ret, wants, bytes);
	ret->bytes = ret->rows_at + wants->warps * ret->warp_bytes;
	return 0;
}

static inline struct staged_rows
staged_rows_of(const struct cuda_plan *plan, uint32_t type, uint64_t row_bytes)
{
	uint32_t all = (uint32_t)row_bytes;

	return staged_rows{ type, all,
			    plan->slice == plan->columns ? all : type_bytes(type, plan->slice) };
}

#endif
