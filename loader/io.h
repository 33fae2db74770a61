/* The system calls that reading a model takes, so that a test can put others in their place: short
 * reads, EINTR, EIO, EINVAL, a file that shrinks, memory that is not there.  Each answers with 0 or
 * more, or -errno. */
#ifndef HEARTH_LOADER_IO_H
#define HEARTH_LOADER_IO_H

#include <stdint.h>

struct iovec;

/* Linux moves at most this many bytes in one read. */
#define IO_MAX_READ 0x7ffff000u

/* Windows of direct reads: congruence of file and arena is kept modulo this. */
#define IO_BLOCK 4096u

struct io_calls {
	int64_t (*read_at)(int fd, void *to, uint64_t bytes, uint64_t offset);
	/* Into several places, one behind the other in the file. */
	int64_t (*readv_at)(int fd, const struct iovec *to, int n, uint64_t offset);
	/* Faults pages in to write, so that missing memory is an error here and no SIGBUS later. */
	int (*populate)(void *at, uint64_t bytes);
	/* The same open file again, with O_DIRECT. */
	int (*open_direct)(int fd);
	/* What direct reads must be aligned to (offset and memory); 0: none possible here.
	 * IO_BLOCK where the kernel does not say. */
	int (*direct_align)(int fd, uint32_t *ret);
};

extern const struct io_calls io_system;

/* io_system's, by itself. */
int io_populate(void *at, uint64_t bytes);

/* Reads all of the range: loops over short reads and EINTR.  Returns the bytes read, fewer than
 * asked only at the file's end, or -errno (*ret_got says how many came before). */
int64_t io_read_all(const struct io_calls *io, int fd, void *to, uint64_t bytes, uint64_t offset,
		    uint64_t *ret_got);

#endif
