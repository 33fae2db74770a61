/* Brings pieces of a file to their places in the arena, buffered or direct, and writes nothing but
 * their bytes.  Any number of threads may fetch pieces at once, each with a bounce of its own. */
#ifndef HEARTH_LOADER_FETCH_H
#define HEARTH_LOADER_FETCH_H

#include <stdatomic.h>

#include "loader/direct_read.h"
#include "loader/model_files.h"
#include "loader/pieces.h"
#include "loader/populate.h"

/* Called with each file that is read buffered although direct was asked for. */
struct fetch_fallback {
	void (*fn)(void *arg, const char *why); /* NULL: such a file is an error */
	void *arg;
};

struct fetch_file {
	struct direct_file direct; /* fd < 0: it cannot be read so */
	atomic_bool refused;       /* at a read: buffered from then on */
};

struct fetch {
	const struct io_calls *io;
	const struct model_files *files;
	const struct placement *placement;
	uint8_t *arena;
	struct populate *populate; /* NULL: each piece by io->populate; set after fetch_open */
	struct fetch_fallback fallback;
	struct fetch_file *direct; /* (n_direct) the shards; NULL: buffered */
	uint32_t n_direct;
};

/* With `direct` and no fallback, -ENOTSUP and the file's name when one of them cannot be read so.
 */
int fetch_open(struct fetch *ret, const struct io_calls *io, const struct model_files *files,
	       const struct placement *placement, uint8_t *arena, bool direct,
	       const struct fetch_fallback *fallback, struct error *err);

/* Also faults in the pages of the piece.  The message names layer, tensor, offset, what was wanted
 * and what came. */
int fetch_piece(struct fetch *fetch, const struct piece *piece, struct bounce *bounce,
		struct error *err);

/* Several of one file as one read, with what lies between them: in the order of the file and apart,
 * at most SCATTER_MOST that are not neighbours in the arena too. */
int fetch_pieces(struct fetch *fetch, const struct piece *pieces, uint64_t n, struct bounce *bounce,
		 struct error *err);

void fetch_close(struct fetch *fetch);

#endif
