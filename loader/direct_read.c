#include "loader/direct_read.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "common/checked.h"

/* One request; as good as any larger from here on. */
#define BOUNCE_BYTES (4ull << 20)

struct range {
	uint64_t offset, end; /* what is asked for */
	uint64_t from, to;    /* the whole blocks of the file that hold it */
	uint64_t block;
	uint8_t *place;
};

void
bounce_close(struct bounce *bounce)
{
	free(bounce->at);
	*bounce = (struct bounce){ 0 };
}

static int
bounce_room(struct bounce *bounce, uint64_t bytes, uint64_t align)
{
	void *at;

	if (bounce->bytes >= bytes && bounce->align >= align)
		return 0;
	if (posix_memalign(&at, align, bytes) != 0)
		return -ENOMEM;
	free(bounce->at);
	*bounce = (struct bounce){ .at = at, .bytes = bytes, .align = align };
	return 0;
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What of the block at `block` belongs to the range. */
static void
copy_out(const struct range *range, uint64_t at, const uint8_t *bytes, uint64_t n)
{
	uint64_t begin = at > range->offset ? at : range->offset;
	uint64_t end = least(at + n, range->end);

	if (begin < end)
		memcpy(range->place + (begin - range->offset), bytes + (begin - at), end - begin);
}

/* The blocks from `at` on: the first and the last into the buffer where the range has only a part
 * of them. */
static int
point_at_blocks(const struct range *range, uint64_t at, struct bounce *bounce, struct iovec *iov)
{
	uint64_t inner_end = least(round_down(range->end, range->block), range->to);
	int n = 0;

	if (at < range->offset) {
		iov[n++] = (struct iovec){ bounce->at, range->block };
		at += range->block;
	}
	if (at < inner_end) {
		iov[n++] = (struct iovec){ range->place + (at - range->offset), inner_end - at };
		at = inner_end;
	}
	if (at < range->to)
		iov[n++] = (struct iovec){ bounce->at + range->block, range->block };
	return n;
}

static int
read_in_place(const struct direct_file *file, const struct range *range, struct bounce *bounce,
	      uint64_t *ret_end)
{
	uint64_t tail = round_down(range->end, range->block);
	uint64_t at = range->from;
	struct iovec iov[3];
	int64_t n = 0;

	while (at < range->to) {
		n = file->io->readv_at(file->fd, iov, point_at_blocks(range, at, bounce, iov), at);
		if (n == -EINTR)
			continue;
		if (n < 0 || (uint64_t)n < range->block)
			break; /* a read that ends off a block cannot be taken up there */
		at += round_down((uint64_t)n, range->block);
	}
	if (at > range->from && range->from < range->offset)
		copy_out(range, range->from, bounce->at, range->block);
	if (at > tail && tail >= range->offset)
		copy_out(range, tail, bounce->at + range->block, range->block);
	*ret_end = at;
	return n < 0 ? (int)n : 0;
}

static int
read_through_buffer(const struct direct_file *file, const struct range *range,
		    struct bounce *bounce, uint64_t *ret_end)
{
	uint64_t at = range->from;
	int64_t n = 0;

	while (at < range->to) {
		n = file->io->read_at(file->fd, bounce->at, least(range->to - at, BOUNCE_BYTES),
				      at);
		if (n == -EINTR)
			continue;
		if (n < 0 || (uint64_t)n < range->block)
			break;
		n = (int64_t)round_down((uint64_t)n, range->block);
		copy_out(range, at, bounce->at, (uint64_t)n);
		at += (uint64_t)n;
	}
	*ret_end = at;
	return n < 0 ? (int)n : 0;
}

int
direct_read(const struct direct_file *file, uint64_t offset, uint64_t bytes, uint8_t *to,
	    struct bounce *bounce, uint64_t *ret_got)
{
	uint64_t block = file->align > IO_BLOCK ? file->align : IO_BLOCK;
	struct range range = { .offset = offset,
			       .end = offset + bytes,
			       .from = round_down(offset, block),
			       .to = least(round_up(offset + bytes, block),
					   round_down(file->bytes, block)),
			       .block = block,
			       .place = to };
	bool congruent = ((uintptr_t)to - offset) % block == 0;
	uint64_t end = 0;
	int rc;

	*ret_got = 0;
	rc = bounce_room(bounce, congruent ? 2 * block : BOUNCE_BYTES, block);
	if (rc < 0)
		return rc;
	rc = congruent ? read_in_place(file, &range, bounce, &end)
		       : read_through_buffer(file, &range, bounce, &end);
	if (end > offset)
		*ret_got = least(end, range.end) - offset;
	return rc;
}
