/* Where each tensor goes in the arena.  Plain arithmetic over the tensor table; no I/O.
 *
 * A run is a stretch of one file whose tensors keep their distances in the arena: neighbours in the
 * file less than a block apart, of one slice.  Its place is congruent to its offset in the file
 * modulo IO_BLOCK (tensors of one stride, as a pack has them, share a run), and the blocks it
 * touches are touched by no other run: so whole blocks can be read straight into place, and what
 * comes along at the ends falls into padding.
 *
 * With a resident set an expert's matrix is placed as if it was a tensor of its own, if it is
 * resident at all, and a last slice is the window. */
#ifndef HEARTH_LOADER_PLACEMENT_H
#define HEARTH_LOADER_PLACEMENT_H

#include "common/arena.h"
#include "loader/resident.h"

struct run {
	uint32_t shard, slice;
	uint64_t file_offset, arena_offset, bytes;
};

struct placement {
	uint64_t tensors_offset, slices_offset, header_offset; /* the directory */
	uint64_t bytes;                                        /* of the arena */
	uint32_t n_slices;                                     /* 1 + layers, and a window */
	struct arena_slice *slices;
	uint64_t n_runs;
	struct run *runs; /* in the order of their places */
	/* With a resident set; else NULL. */
	uint64_t experts_offset, n_experts;
	struct arena_expert *experts; /* (n_experts): (layers, experts) */
	uint64_t budget_bytes;
};

/* Where an expert's matrix begins in its file. */
uint64_t placement_expert_at(const struct arena_tensor *tensor, uint64_t expert);

/* `resident`: NULL without a budget.
 * Sets slice and offset of every tensor.  `header_bytes` are kept for the directory. */
int placement_open(struct placement *ret, struct arena_tensor *tensors, uint64_t n_tensors,
		   uint64_t header_bytes, struct error *err);
int placement_open_resident(struct placement *ret, struct arena_tensor *tensors, uint64_t n_tensors,
			    uint64_t header_bytes, const struct resident *resident,
			    struct error *err);
void placement_close(struct placement *placement);

#endif
