#include "loader/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

static int64_t
system_read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	ssize_t n = pread(fd, to, bytes, (off_t)offset);

	return n < 0 ? -errno : n;
}

static int64_t
system_readv_at(int fd, const struct iovec *to, int n, uint64_t offset)
{
	ssize_t got = preadv(fd, to, n, (off_t)offset);

	return got < 0 ? -errno : got;
}

int
io_populate(void *at, uint64_t bytes)
{
	while (madvise(at, bytes, MADV_POPULATE_WRITE) < 0)
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	return 0;
}

static int
system_open_direct(int fd)
{
	char path[64];
	int direct;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	direct = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	return direct < 0 ? -errno : direct;
}

static int
system_direct_align(int fd, uint32_t *ret)
{
	struct statfs fs;
	struct statx st;

	if (fstatfs(fd, &fs) < 0 || statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &st) < 0)
		return -errno;
	*ret = IO_BLOCK;
	/* Opens with O_DIRECT since Linux 6.6, and copies all the same. */
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		*ret = 0;
	else if (st.stx_mask & STATX_DIOALIGN)
		*ret = st.stx_dio_offset_align > st.stx_dio_mem_align ? st.stx_dio_offset_align
								      : st.stx_dio_mem_align;
	return 0;
}

const struct io_calls io_system = {
	.read_at = system_read_at,
	.readv_at = system_readv_at,
	.populate = io_populate,
	.open_direct = system_open_direct,
	.direct_align = system_direct_align,
};

int64_t
io_read_all(const struct io_calls *io, int fd, void *to, uint64_t bytes, uint64_t offset,
	    uint64_t *ret_got)
{
	uint64_t got = 0;

	*ret_got = 0;
	while (got < bytes) {
		uint64_t left = bytes - got;
		int64_t n = io->read_at(fd, (uint8_t *)to + got,
					left < IO_MAX_READ ? left : IO_MAX_READ, offset + got);

		if (n == -EINTR)
			continue;
		if (n < 0)
			return n;
		if (n == 0)
			break;
		got += (uint64_t)n;
		*ret_got = got;
	}
	return (int64_t)got;
}
