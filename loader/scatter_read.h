/* Ranges of a file, one behind the other, each with a place of its own, in as few reads as the
 * system allows: what lies between them is read too, into memory that nobody looks at.  Whole
 * blocks of a range go straight to their place; of a block that it has only in part, only its own
 * bytes are put there: a neighbour may be in use already, and a drive or a cipher may pass through
 * other bytes on the way. */
#ifndef HEARTH_LOADER_SCATTER_READ_H
#define HEARTH_LOADER_SCATTER_READ_H

#include <stdint.h>

#include "loader/io.h"

/* Ranges at once: with their ends and the gaps they are fewer parts than one call takes. */
#define SCATTER_MOST 192u

/* Memory for what cannot be read in place; one a thread, zeroed at first, grown as needed. */
struct bounce {
	uint8_t *at;
	uint64_t bytes, align;
};
int bounce_room(struct bounce *bounce, uint64_t bytes, uint64_t align); /* -ENOMEM */
void bounce_close(struct bounce *bounce);

struct scatter_file {
	const struct io_calls *io;
	int fd;
	uint64_t block; /* reads are of whole ones, a power of two; 1: any byte will do */
	uint64_t bytes; /* of the file */
};

/* `place` is congruent to `offset` modulo the block. */
struct scatter_range {
	uint64_t offset, bytes;
	uint8_t *place;
};

/* A part of a block that is not whole. */
void scatter_copy_out(const struct scatter_range *range, uint64_t at, const uint8_t *bytes,
		      uint64_t n);

/* 1 to SCATTER_MOST ranges, in the order of the file and apart.  *ret_end: all before it is in
 * place.  With 0 it lies before the last range's end when blocks stopped coming: at the file's last
 * one, which is not whole, or behind a read that ended off a block. */
int scatter_read(const struct scatter_file *file, const struct scatter_range *ranges, uint32_t n,
		 struct bounce *bounce, uint64_t *ret_end);

#endif
