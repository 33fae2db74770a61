/* Brings one piece of a file to its place in the arena, buffered or direct.  After fetch_open
 * nothing here changes: any number of threads may fetch pieces at once. */
#ifndef HEARTH_LOADER_FETCH_H
#define HEARTH_LOADER_FETCH_H

#include "loader/io.h"
#include "loader/model_files.h"
#include "loader/pieces.h"

struct fetch {
	const struct io_calls *io;
	const struct model_files *files;
	const struct placement *placement;
	uint8_t *arena;
	int *direct; /* (shards) descriptors; NULL: buffered */
	uint32_t n_direct;
};

/* With `direct`, -ENOTSUP and the file's name when one of them cannot be read so. */
int fetch_open(struct fetch *ret, const struct io_calls *io, const struct model_files *files,
	       const struct placement *placement, uint8_t *arena, bool direct, struct error *err);

/* Also faults in the pages of the piece.  The message names layer, tensor, offset, what was wanted
 * and what came. */
int fetch_piece(const struct fetch *fetch, const struct piece *piece, struct error *err);

void fetch_close(struct fetch *fetch);

#endif
