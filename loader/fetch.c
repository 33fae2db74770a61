#include "loader/fetch.h"

#include <assert.h>
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
fetch_fail(const struct fetch *fetch, const struct piece *piece, uint64_t got, int code,
	   struct error *err)
{
	const char *path = fetch->files->shards[piece->shard].path;
	const char *slice = fetch->placement->slices[piece->slice].name;
	const char *tensor = tensor_at(fetch, piece->shard, piece->file_offset + got);

	if (code == 0)
		return error_set(
		    err, -EIO,
		    "%s: %s: reading %" PRIu64 " bytes at %" PRIu64 " gave %" PRIu64
		    ": the file ends there, it was longer when its header was read (%s)",
		    slice, tensor, piece->bytes, piece->file_offset, got, path);
	return error_sys(err, code,
			 "%s: %s: reading %" PRIu64 " bytes at %" PRIu64 " gave %" PRIu64 " (%s)",
			 slice, tensor, piece->bytes, piece->file_offset, got, path);
}

/* The pages of `bytes` of the piece, from `at` on. */
static int
fetch_fault_in(const struct fetch *fetch, const struct piece *piece, uint64_t at, uint64_t bytes,
	       struct error *err)
{
	uint64_t from = round_down(piece->arena_offset + at, IO_BLOCK);
	uint64_t to = round_up(piece->arena_offset + at + bytes, IO_BLOCK);
	int rc = fetch->populate ? populate_range(fetch->populate, from, to)
				 : fetch->io->populate(fetch->arena + from, to - from);

	if (rc < 0)
		return error_sys(err, rc,
				 "%s: no memory for %" PRIu64 " bytes of the arena at %" PRIu64,
				 fetch->placement->slices[piece->slice].name, to - from, from);
	return 0;
}

/* From `got` on: what came before is in place.  A huge page's worth at a time, so that its zeros
 * are still in the core's cache when the bytes come over them: 28 GB/s instead of 20 (16 cores). */
static int
fetch_buffered(const struct fetch *fetch, const struct piece *piece, uint64_t got,
	       struct error *err)
{
	int file = fetch->files->shards[piece->shard].fd;

	while (got < piece->bytes) {
		uint64_t place = piece->arena_offset + got, more;
		uint64_t step = round_down(place, ARENA_SLICE_ALIGN) + ARENA_SLICE_ALIGN - place;
		int64_t n;
		int rc;

		if (step > piece->bytes - got)
			step = piece->bytes - got;
		rc = fetch_fault_in(fetch, piece, got, step, err);
		if (rc < 0)
			return rc;
		n = io_read_all(fetch->io, file, fetch->arena + place, step,
				piece->file_offset + got, &more);
		got += more;
		if (n < 0 || more < step)
			return fetch_fail(fetch, piece, got, n < 0 ? (int)n : 0, err);
	}
	return 0;
}

/* 0: it is read buffered from now on. */
static int
fetch_refused(struct fetch *fetch, const struct piece *piece, struct error *err)
{
	const char *path = fetch->files->shards[piece->shard].path;
	struct error why;

	error_set(&why, -ENOTSUP,
		  "%s: its file system opens it for direct reading and refuses the read", path);
	if (!fetch->fallback.fn)
		return error_set(err, -ENOTSUP, "%s, want --read buffered", why.text);
	if (!atomic_exchange(&fetch->direct[piece->shard].refused, true))
		fetch->fallback.fn(fetch->fallback.arg, why.text);
	return 0;
}

static int
fetch_direct(struct fetch *fetch, const struct piece *piece, struct bounce *bounce,
	     struct error *err)
{
	uint64_t got;
	int rc = direct_read(&fetch->direct[piece->shard].direct, piece->file_offset, piece->bytes,
			     fetch->arena + piece->arena_offset, bounce, &got);

	if (rc == -EINVAL) {
		rc = fetch_refused(fetch, piece, err);
		return rc < 0 ? rc : fetch_buffered(fetch, piece, 0, err);
	}
	if (rc < 0)
		return fetch_fail(fetch, piece, got, rc, err);
	return got < piece->bytes ? fetch_buffered(fetch, piece, got, err) : 0;
}

static bool
reads_direct(struct fetch *fetch, uint32_t shard)
{
	return fetch->direct && fetch->direct[shard].direct.fd >= 0 &&
	       !atomic_load(&fetch->direct[shard].refused);
}

int
fetch_piece(struct fetch *fetch, const struct piece *piece, struct bounce *bounce,
	    struct error *err)
{
	int rc;

	if (!reads_direct(fetch, piece->shard))
		return fetch_buffered(fetch, piece, 0, err);
	rc = fetch_fault_in(fetch, piece, 0, piece->bytes, err);
	return rc < 0 ? rc : fetch_direct(fetch, piece, bounce, err);
}

/* Neighbours in file and arena are one.  Returns how many are left. */
static uint32_t
join(const struct piece *pieces, uint64_t n, struct piece *ret)
{
	uint32_t joined = 0;

	for (uint64_t i = 0; i < n; i++) {
		struct piece *last = joined ? &ret[joined - 1] : NULL;

		if (last && pieces[i].run == last->run) {
			last->bytes = pieces[i].file_offset + pieces[i].bytes - last->file_offset;
			continue;
		}
		assert(joined < SCATTER_MOST);
		ret[joined++] = pieces[i];
	}
	return joined;
}

/* How the shard's bytes can be scattered; false: its blocks are larger than what place and file are
 * congruent by. */
static bool
find_scatter_file(struct fetch *fetch, uint32_t shard, struct scatter_file *ret)
{
	const struct direct_file *direct = fetch->direct ? &fetch->direct[shard].direct : NULL;
	const struct shard *file = &fetch->files->shards[shard];

	if (!reads_direct(fetch, shard))
		*ret = (struct scatter_file){ fetch->io, file->fd, 1, file->bytes };
	else if (direct_block(direct) == IO_BLOCK)
		*ret = (struct scatter_file){ fetch->io, direct->fd, IO_BLOCK, direct->bytes };
	else
		return false;
	return true;
}

static int
scatter(struct fetch *fetch, const struct scatter_file *file, const struct piece *pieces,
	uint32_t n, struct bounce *bounce, struct error *err)
{
	struct scatter_range ranges[SCATTER_MOST];
	uint64_t end;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		ranges[i] = (struct scatter_range){ pieces[i].file_offset, pieces[i].bytes,
						    fetch->arena + pieces[i].arena_offset };
	rc = scatter_read(file, ranges, n, bounce, &end);
	if (rc == -EINVAL && file->block > 1) {
		rc = fetch_refused(fetch, pieces, err);
		if (rc < 0)
			return rc;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t got = end > pieces[i].file_offset ? end - pieces[i].file_offset : 0;

		if (got >= pieces[i].bytes)
			continue;
		if (rc < 0)
			return fetch_fail(fetch, &pieces[i], got, rc, err);
		rc = fetch_buffered(fetch, &pieces[i], got, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int
fetch_pieces(struct fetch *fetch, const struct piece *pieces, uint64_t n, struct bounce *bounce,
	     struct error *err)
{
	struct piece joined[SCATTER_MOST];
	struct scatter_file file;
	uint32_t k = join(pieces, n, joined);
	bool scatters = k > 1 && find_scatter_file(fetch, pieces->shard, &file);
	int rc = 0;

	for (uint32_t i = 0; i < k && rc == 0; i++)
		rc = scatters ? fetch_fault_in(fetch, &joined[i], 0, joined[i].bytes, err)
			      : fetch_piece(fetch, &joined[i], bounce, err);
	if (rc == 0 && scatters)
		rc = scatter(fetch, &file, joined, k, bounce, err);
	return rc;
}

static int
open_direct(const struct fetch *fetch, const struct shard *shard, struct direct_file *ret,
	    struct error *err)
{
	uint32_t align = 0;
	int rc = fetch->io->direct_align(shard->fd, &align);

	if (rc < 0)
		return error_sys(err, rc, "%s: alignment of direct reads", shard->path);
	if (align == 0)
		return error_set(err, -ENOTSUP, "%s: its file system has no direct reading",
				 shard->path);
	if (align > DIRECT_MAX_ALIGN || (align & (align - 1)))
		return error_set(err, -ENOTSUP,
				 "%s: its file system reads direct in blocks of %" PRIu32
				 ", want a power of two up to %u",
				 shard->path, align, DIRECT_MAX_ALIGN);
	rc = fetch->io->open_direct(shard->fd);
	if (rc == -EINVAL)
		return error_set(err, -ENOTSUP, "%s: its file system refuses O_DIRECT",
				 shard->path);
	if (rc < 0)
		return error_sys(err, rc, "%s: opening for direct reading", shard->path);
	*ret = (struct direct_file){ fetch->io, rc, align, shard->bytes };
	return 0;
}

static int
open_all_direct(struct fetch *fetch, struct error *err)
{
	const struct fetch_fallback *fallback = &fetch->fallback;
	uint32_t n = fetch->files->n_shards;
	struct error why;

	fetch->direct = calloc(n, sizeof(*fetch->direct));
	if (!fetch->direct)
		return error_sys(err, -ENOMEM, "%" PRIu32 " shards", n);
	for (uint32_t i = 0; i < n; i++) {
		struct direct_file *file = &fetch->direct[i].direct;
		int rc;

		file->fd = -1;
		atomic_init(&fetch->direct[i].refused, false);
		fetch->n_direct++;
		rc = open_direct(fetch, &fetch->files->shards[i], file, &why);
		if (rc == -ENOTSUP && fallback->fn)
			fallback->fn(fallback->arg, why.text);
		else if (rc == -ENOTSUP)
			return error_set(err, rc, "%s, want --read buffered", why.text);
		else if (rc < 0)
			return error_set(err, rc, "%s", why.text);
	}
	return 0;
}

int
fetch_open(struct fetch *ret, const struct io_calls *io, const struct model_files *files,
	   const struct placement *placement, uint8_t *arena, bool direct,
	   const struct fetch_fallback *fallback, struct error *err)
{
	struct fetch fetch = { .io = io, .files = files, .placement = placement, .arena = arena };
	int rc = 0;

	if (fallback)
		fetch.fallback = *fallback;
	if (direct)
		rc = open_all_direct(&fetch, err);
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
		if (fetch->direct[i].direct.fd >= 0)
			close(fetch->direct[i].direct.fd);
	free(fetch->direct);
	*fetch = (struct fetch){ 0 };
}
