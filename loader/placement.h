/* Where each tensor goes in the arena.  Plain arithmetic over the tensor table; no I/O.
 *
 * A run is a stretch of one file whose tensors keep their distances in the arena: neighbours in the
 * file less than a block apart, of one slice.  Its place is congruent to its offset in the file
 * modulo IO_BLOCK (tensors of one stride, as a pack has them, share a run), and the blocks it
 * touches are touched by no other run: so whole blocks can be read straight into place, and what
 * comes along at the ends falls into padding. */
#ifndef HEARTH_LOADER_PLACEMENT_H
#define HEARTH_LOADER_PLACEMENT_H

#include "common/arena.h"

struct run {
	uint32_t shard, slice;
	uint64_t file_offset, arena_offset, bytes;
};

struct placement {
	uint64_t tensors_offset, slices_offset, header_offset; /* the directory */
	uint64_t bytes;                                        /* of the arena */
	uint32_t n_slices;                                     /* 1 + layers */
	struct arena_slice *slices;
	uint64_t n_runs;
	struct run *runs; /* in the order of their places */
};

/* Sets slice and offset of every tensor.  `header_bytes` are kept for the directory. */
int placement_open(struct placement *ret, struct arena_tensor *tensors, uint64_t n_tensors,
		   uint64_t header_bytes, struct error *err);
void placement_close(struct placement *placement);

#endif
