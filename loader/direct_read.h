/* A range of a file, read without the page cache: straight to its place, as scatter_read.h does it.
 * Where place and file are not congruent, all of it comes through a buffer. */
#ifndef HEARTH_LOADER_DIRECT_READ_H
#define HEARTH_LOADER_DIRECT_READ_H

#include <stdint.h>

#include "loader/scatter_read.h"

/* File systems want 512 or 4096, some 64 KiB. */
#define DIRECT_MAX_ALIGN (1u << 20)

struct direct_file {
	const struct io_calls *io;
	int fd;         /* opened with O_DIRECT */
	uint32_t align; /* a power of two, at most DIRECT_MAX_ALIGN */
	uint64_t bytes; /* of the file */
};

/* A block of such reads: as large as the file system wants it, and IO_BLOCK at least. */
static inline uint64_t
direct_block(const struct direct_file *file)
{
	return file->align > IO_BLOCK ? file->align : IO_BLOCK;
}

/* *ret_got: the bytes in place, from the range's begin.  With 0 they are fewer than asked when
 * blocks stopped coming: at the file's last one, which is not whole, or behind a read that ended
 * off a block; the rest can be read buffered.  -EINVAL: the file system refuses the read. */
int direct_read(const struct direct_file *file, uint64_t offset, uint64_t bytes, uint8_t *to,
		struct bounce *bounce, uint64_t *ret_got);

#endif
