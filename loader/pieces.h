/* The loader's work list: runs cut into pieces that one thread reads in one go, in the order of
 * slices, and for each piece the checksum units it helps to fill.  Plain arithmetic; no I/O. */
#ifndef HEARTH_LOADER_PIECES_H
#define HEARTH_LOADER_PIECES_H

#include "common/checksum.h"
#include "loader/placement.h"

#define PIECE_BYTES (8ull << 20) /* 55 GB/s to the device and full drive speed from 8 MiB on */

struct piece {
	uint32_t shard, slice;
	/* Congruent modulo IO_BLOCK; inside a run, pieces meet at multiples of it in the file. */
	uint64_t file_offset, arena_offset, bytes;
	uint64_t first_unit, n_units; /* in pieces.units */
};

struct pieces {
	uint64_t n;
	struct piece *list;
	uint64_t bytes;    /* of all pieces */
	uint64_t *units;   /* indices of the plan's units, in the order of place */
	uint32_t *waiting; /* for each unit of the plan: pieces that touch it */
	uint32_t *open;    /* for each slice: units that a piece touches */
};

/* Slices with skip[slice] get no piece (NULL: none is skipped). */
int pieces_open(struct pieces *ret, const struct placement *placement,
		const struct checksum_plan *plan, const bool *skip, struct error *err);
void pieces_close(struct pieces *pieces);

#endif
