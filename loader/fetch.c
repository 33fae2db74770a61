#include "loader/fetch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/checked.h"

/* Where the tensor's bytes begin that stand at this offset of its shard or, with no tensor between,
 * before it. */
static uint64_t
tensor_begin(const struct arena_tensor *tensor, uint64_t offset)
{
	uint64_t experts = tensor->dims[2], at;

	if (tensor->stride == 0)
		return tensor->file_offset;
	at = (offset - tensor->file_offset) / tensor->stride;
	return tensor->file_offset + (at < experts ? at : experts - 1) * tensor->stride;
}

/* The tensor whose bytes stand at this offset of a shard; the piece's padding belongs to the one
 * before it. */
static const char *
tensor_at(const struct fetch *fetch, uint32_t shard, uint64_t offset)
{
	const struct arena_tensor *best = NULL;

	for (uint64_t i = 0; i < fetch->files->n_tensors; i++) {
		const struct arena_tensor *tensor = &fetch->files->tensors[i];

		if (tensor->shard == shard && tensor->file_offset <= offset &&
		    (!best || tensor_begin(tensor, offset) > tensor_begin(best, offset)))
			best = tensor;
	}
	return best ? best->name : "header";
}

static int
fetch_fail(const struct fetch *fetch, const struct piece *piece, uint64_t offset, uint64_t want,
	   uint64_t got, int code, struct error *err)
{
	const char *path = fetch->files->shards[piece->shard].path;
	const char *slice = fetch->placement->slices[piece->slice].name;
	const char *tensor = tensor_at(fetch, piece->shard, offset + got);

	if (code == 0)
		return error_set(
		    err, -EIO,
		    "%s: %s: reading %" PRIu64 " bytes at %" PRIu64 " gave %" PRIu64
		    ": the file ends there, it was longer when its header was read (%s)",
		    slice, tensor, want, offset, got, path);
	return error_sys(err, code,
			 "%s: %s: reading %" PRIu64 " bytes at %" PRIu64 " gave %" PRIu64 " (%s)",
			 slice, tensor, want, offset, got, path);
}

static int
fetch_buffered(const struct fetch *fetch, const struct piece *piece, uint64_t offset,
	       uint64_t bytes, struct error *err)
{
	uint8_t *to = fetch->arena + piece->arena_offset + (offset - piece->file_offset);
	uint64_t got;
	int64_t n =
	    io_read_all(fetch->io, fetch->files->shards[piece->shard].fd, to, bytes, offset, &got);

	if (n < 0 || got < bytes)
		return fetch_fail(fetch, piece, offset, bytes, got, n < 0 ? (int)n : 0, err);
	return 0;
}

/* Whole blocks, up to the file's last one.  *ret_end: where they stopped coming.  A read that ends
 * off a block cannot be taken up again there: it goes on from the block, or buffered. */
static int
fetch_blocks(const struct fetch *fetch, const struct piece *piece, uint64_t from, uint64_t to,
	     uint64_t *ret_end, struct error *err)
{
	const struct shard *shard = &fetch->files->shards[piece->shard];
	uint8_t *at = fetch->arena + piece->arena_offset - (piece->file_offset - from);
	uint64_t done = 0;

	while (from + done < to) {
		uint64_t left = to - from - done;
		int64_t n = fetch->io->read_at(
		    fetch->direct[piece->shard], at + done,
		    left < IO_MAX_READ ? left : round_down(IO_MAX_READ, IO_BLOCK), from + done);

		if (n == -EINTR)
			continue;
		if (n == -EINVAL)
			return error_set(
			    err, -ENOTSUP,
			    "%s: its file system opens it for direct reading and refuses "
			    "the read, want --read buffered",
			    shard->path);
		if (n < 0)
			return fetch_fail(fetch, piece, from, to - from, done, (int)n, err);
		if ((uint64_t)n < IO_BLOCK)
			break;
		done += round_down((uint64_t)n, IO_BLOCK);
	}
	*ret_end = from + done;
	return 0;
}

static int
fetch_direct(const struct fetch *fetch, const struct piece *piece, struct error *err)
{
	uint64_t file_blocks = round_down(fetch->files->shards[piece->shard].bytes, IO_BLOCK);
	uint64_t piece_end = piece->file_offset + piece->bytes;
	uint64_t to = round_up(piece_end, IO_BLOCK);
	uint64_t end = 0;
	int rc = fetch_blocks(fetch, piece, round_down(piece->file_offset, IO_BLOCK),
			      to < file_blocks ? to : file_blocks, &end, err);

	if (rc < 0 || end >= piece_end)
		return rc;
	if (end < piece->file_offset)
		end = piece->file_offset;
	return fetch_buffered(fetch, piece, end, piece_end - end, err);
}

int
fetch_piece(const struct fetch *fetch, const struct piece *piece, struct error *err)
{
	uint64_t from = round_down(piece->arena_offset, IO_BLOCK);
	uint64_t to = round_up(piece->arena_offset + piece->bytes, IO_BLOCK);
	int rc = fetch->io->populate(fetch->arena + from, to - from);

	if (rc < 0)
		return error_sys(err, rc,
				 "%s: no memory for %" PRIu64 " bytes of the arena at %" PRIu64,
				 fetch->placement->slices[piece->slice].name, to - from, from);
	if (fetch->direct)
		return fetch_direct(fetch, piece, err);
	return fetch_buffered(fetch, piece, piece->file_offset, piece->bytes, err);
}

static int
open_direct(const struct fetch *fetch, const struct shard *shard, int *ret, struct error *err)
{
	uint32_t align = 0;
	int rc = fetch->io->direct_align(shard->fd, &align);

	if (rc < 0)
		return error_sys(err, rc, "%s: alignment of direct reads", shard->path);
	if (align == 0 || align > IO_BLOCK)
		return error_set(
		    err, -ENOTSUP,
		    "%s: its file system has no direct reading%s, want --read buffered",
		    shard->path, align ? " of 4096-byte blocks" : "");
	rc = fetch->io->open_direct(shard->fd);
	if (rc == -EINVAL)
		return error_set(err, -ENOTSUP,
				 "%s: its file system refuses O_DIRECT, want --read buffered",
				 shard->path);
	if (rc < 0)
		return error_sys(err, rc, "%s: opening for direct reading", shard->path);
	*ret = rc;
	return 0;
}

int
fetch_open(struct fetch *ret, const struct io_calls *io, const struct model_files *files,
	   const struct placement *placement, uint8_t *arena, bool direct, struct error *err)
{
	struct fetch fetch = { .io = io, .files = files, .placement = placement, .arena = arena };
	int rc = 0;

	if (direct) {
		fetch.direct = calloc(files->n_shards, sizeof(*fetch.direct));
		if (!fetch.direct)
			return error_sys(err, -ENOMEM, "%" PRIu32 " shards", files->n_shards);
	}
	for (uint32_t i = 0; direct && i < files->n_shards && rc == 0; i++) {
		rc = open_direct(&fetch, &files->shards[i], &fetch.direct[i], err);
		if (rc == 0)
			fetch.n_direct++;
	}
	if (rc < 0) {
		fetch_close(&fetch);
		return rc;
	}
	*ret = fetch;
	return 0;
}

void
fetch_close(struct fetch *fetch)
{
	for (uint32_t i = 0; i < fetch->n_direct; i++)
		close(fetch->direct[i]);
	free(fetch->direct);
	*fetch = (struct fetch){ 0 };
}
