/* The loader's work list: the least that is read at once.  A piece is a group of whole checksum
 * units, neighbours in one run, so that an expert's matrix lies whole in one piece and can be read
 * ahead of all others.  No two pieces share a byte.  Plain arithmetic; no I/O. */
#ifndef HEARTH_LOADER_PIECES_H
#define HEARTH_LOADER_PIECES_H

#include "common/checksum.h"
#include "loader/placement.h"

/* Units are grouped up to this; a larger one is a piece by itself.  A drive is at half its speed or
 * more from here on, and neighbours are read in one go where nothing is urgent. */
#define PIECE_BYTES (512ull << 10)

#define PIECE_NONE UINT64_MAX

struct piece {
	uint32_t shard, slice;
	uint64_t run; /* of the placement; neighbours of one run are neighbours in the file */
	uint64_t file_offset, arena_offset, bytes; /* from its first unit to the end of its last */
	uint64_t first_unit, n_units;              /* in pieces.units */
};

struct pieces {
	uint64_t n;
	struct piece *list; /* in the order of place */
	uint64_t bytes;     /* of all pieces */
	uint64_t *units;    /* indices of the plan's units, in the order of place */
	uint64_t *of_unit; /* for each unit of the plan: its piece, PIECE_NONE in a skipped slice */
	uint64_t *in_slice; /* for each slice: its pieces */
	uint64_t n_slices;
	uint64_t skipped_bytes; /* of the units that are in no piece */
};

/* Slices with skip[slice] get no piece (NULL: none is skipped). */
int pieces_open(struct pieces *ret, const struct placement *placement,
		const struct checksum_plan *plan, const bool *skip, struct error *err);
/* The piece that holds this place of the arena; PIECE_NONE: none does, it is filled already. */
uint64_t pieces_find(const struct pieces *pieces, uint64_t place);
void pieces_close(struct pieces *pieces);

#endif
