/* Files that lie in memory, and a struct io_calls that reads them as badly as a test asks for. */
#ifndef HEARTH_TESTS_FAKE_FILES_H
#define HEARTH_TESTS_FAKE_FILES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "loader/io.h"
#include "loader/model_files.h"

#define FAKE_FILES 2
#define FAKE_DIRECT 100 /* a descriptor opened for direct reading is 100 above the other */

struct fake_files {
	uint8_t *bytes[FAKE_FILES];
	uint64_t n[FAKE_FILES]; /* as they are: a test may let one shrink */
	/* faults */
	bool short_reads;    /* gives fewer bytes than asked */
	uint32_t odd_direct; /* direct reads end this many bytes off a block; 0: whole blocks */
	bool interrupts;     /* every other call is interrupted */
	uint64_t fail_at;    /* reads that reach this offset of file 0 give `fail_with` */
	int fail_with;       /* 0: no failure */
	int direct_fails;    /* direct reads give this */
	int open_fails;      /* opening for direct reading gives this */
	uint32_t align;
	int populate_fails;
	/* seen */
	atomic_uint calls, direct_reads, buffered_reads;
	atomic_bool misaligned; /* a direct read that no drive would take */
};

extern struct fake_files fake;
extern const struct io_calls fake_io;

/* Fills `files` (shards and tensors) and the bytes: slices of several layers over two files, one
 * tensor of many pieces, gaps, and a file that ends a byte behind a block.  Clears all faults. */
void fake_open(struct model_files *files);
void fake_close(struct model_files *files);

#endif
