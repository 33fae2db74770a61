#include "loader/direct_read.h"

#include <errno.h>
#include <stdbool.h>

#include "common/checked.h"

/* One request; as good as any larger from here on. */
#define BOUNCE_BYTES (4ull << 20)

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static int
read_through_buffer(const struct direct_file *file, const struct scatter_range *range,
		    struct bounce *bounce, uint64_t *ret_end)
{
	uint64_t block = direct_block(file), end = range->offset + range->bytes;
	uint64_t at = round_down(range->offset, block);
	uint64_t to = least(round_up(end, block), round_down(file->bytes, block));
	int64_t n = 0;
	int rc = bounce_room(bounce, BOUNCE_BYTES, block);

	while (rc == 0 && at < to) {
		n = file->io->read_at(file->fd, bounce->at, least(to - at, BOUNCE_BYTES), at);
		if (n == -EINTR)
			continue;
		if (n < 0 || (uint64_t)n < block)
			break;
		n = (int64_t)round_down((uint64_t)n, block);
		scatter_copy_out(range, at, bounce->at, (uint64_t)n);
		at += (uint64_t)n;
	}
	*ret_end = at;
	return n < 0 ? (int)n : rc;
}

int
direct_read(const struct direct_file *file, uint64_t offset, uint64_t bytes, uint8_t *to,
	    struct bounce *bounce, uint64_t *ret_got)
{
	const struct scatter_file blocks = { file->io, file->fd, direct_block(file), file->bytes };
	const struct scatter_range range = { offset, bytes, to };
	bool congruent = ((uintptr_t)to - offset) % blocks.block == 0;
	uint64_t end = 0;
	int rc = congruent ? scatter_read(&blocks, &range, 1, bounce, &end)
			   : read_through_buffer(file, &range, bounce, &end);

	*ret_got = end > offset ? least(end, offset + bytes) - offset : 0;
	return rc;
}
