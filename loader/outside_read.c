#include "loader/outside_read.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>

#include "common/checked.h"

static int
check_hash(const struct outside_config *config, const struct batch_window *window,
	   struct error *err)
{
	const uint64_t *hashes = config->hashes;
	uint64_t hash;

	if (!hashes)
		return 0;
	hash = XXH3_64bits(config->arena + window->arena_offset, window->bytes);
	if (hash == hashes[window->tag])
		return 0;
	return error_set(err, -EBADMSG,
			 "%s: %s: %" PRIu64 " bytes at %" PRIu64 " have the checksum %016" PRIx64
			 ", want %016" PRIx64 ": damaged",
			 config->files->shards[window->shard].path,
			 config->placement->slices[window->slice].name, window->bytes,
			 window->file_offset, hash, hashes[window->tag]);
}

static int
read_one(struct fetch *fetch, const struct batch_window *window, struct bounce *bounce,
	 struct error *err)
{
	const struct piece piece = { .shard = window->shard,
				     .slice = window->slice,
				     .file_offset = window->file_offset,
				     .arena_offset = window->arena_offset,
				     .bytes = window->bytes };

	return fetch_piece(fetch, &piece, bounce, err);
}

/* With what lies between the windows, into memory of its own, and from there to their places. */
static int
read_merged(const struct outside_config *config, struct fetch *fetch,
	    const struct batch_request *request, const struct batch_window *windows,
	    struct bounce *bounce, struct error *err)
{
	uint64_t shift = request->file_offset % IO_BLOCK;
	uint64_t room = round_up(shift + request->bytes, IO_BLOCK);
	struct batch_window whole = { .shard = request->shard,
				      .slice = windows[0].slice,
				      .file_offset = request->file_offset,
				      .arena_offset = shift,
				      .bytes = request->bytes };
	struct fetch aside = *fetch;
	int rc;

	aside.arena = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (aside.arena == MAP_FAILED)
		return error_sys(err, -errno, "%" PRIu64 " bytes to read into", room);
	rc = read_one(&aside, &whole, bounce, err);
	for (uint64_t i = 0; i < request->n && rc == 0; i++) {
		uint8_t *to = config->arena + windows[i].arena_offset;

		rc = fetch->io->populate(
		    to - (uintptr_t)to % IO_BLOCK,
		    round_up((uintptr_t)to % IO_BLOCK + windows[i].bytes, IO_BLOCK));
		if (rc < 0)
			error_sys(err, rc, "no memory for %" PRIu64 " bytes of the window",
				  windows[i].bytes);
		else
			memcpy(to,
			       aside.arena + shift +
				   (windows[i].file_offset - request->file_offset),
			       windows[i].bytes);
	}
	munmap(aside.arena, room);
	return rc;
}

int
outside_read(const struct outside_config *config, struct fetch *fetch,
	     const struct batch_request *request, const struct batch_window *windows,
	     struct bounce *bounce, struct error *err)
{
	int rc = request->n == 1 ? read_one(fetch, windows, bounce, err)
				 : read_merged(config, fetch, request, windows, bounce, err);

	for (uint64_t i = 0; i < request->n && rc == 0; i++)
		rc = check_hash(config, &windows[i], err);
	return rc;
}
