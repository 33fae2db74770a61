/* A range of a file, read without the page cache.  Whole blocks go straight to their place; of the
 * blocks at the ends, which belong to somebody else too, only the range's own bytes are put there:
 * a neighbour may be in use already, and a drive or a cipher may pass through other bytes on the
 * way. Where place and file are not congruent, all of it comes through a buffer. */
#ifndef HEARTH_LOADER_DIRECT_READ_H
#define HEARTH_LOADER_DIRECT_READ_H

#include <stdint.h>

#include "loader/io.h"

/* File systems want 512 or 4096, some 64 KiB. */
#define DIRECT_MAX_ALIGN (1u << 20)

struct direct_file {
	const struct io_calls *io;
	int fd;         /* opened with O_DIRECT */
	uint32_t align; /* a power of two, at most DIRECT_MAX_ALIGN */
	uint64_t bytes; /* of the file */
};

/* Memory for what cannot be read in place; one a thread, zeroed at first, grown as needed. */
struct bounce {
	uint8_t *at;
	uint64_t bytes, align;
};
void bounce_close(struct bounce *bounce);

/* *ret_got: the bytes in place, from the range's begin.  With 0 they are fewer than asked when
 * blocks stopped coming: at the file's last one, which is not whole, or behind a read that ended
 * off a block; the rest can be read buffered.  -EINVAL: the file system refuses the read. */
int direct_read(const struct direct_file *file, uint64_t offset, uint64_t bytes, uint8_t *to,
		struct bounce *bounce, uint64_t *ret_got);

#endif
