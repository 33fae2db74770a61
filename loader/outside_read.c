#include "loader/outside_read.h"

#include <errno.h>
#include <inttypes.h>
#include <xxhash.h>

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

int
outside_read(const struct outside_config *config, struct fetch *fetch,
	     const struct batch_request *request, const struct batch_window *windows,
	     struct bounce *bounce, struct error *err)
{
	struct piece pieces[BATCH_WINDOWS];
	int rc;

	for (uint64_t i = 0; i < request->n; i++)
		pieces[i] = (struct piece){ .shard = windows[i].shard,
					    .slice = windows[i].slice,
					    .run = i, /* each has a place of its own */
					    .file_offset = windows[i].file_offset,
					    .arena_offset = windows[i].arena_offset,
					    .bytes = windows[i].bytes };
	rc = fetch_pieces(fetch, pieces, request->n, bounce, err);
	/* Every worker would ask for it again and fail: the file is to blame, not the worker. */
	if (rc == -EIO)
		rc = -EBADMSG;
	for (uint64_t i = 0; i < request->n && rc == 0; i++)
		rc = check_hash(config, &windows[i], err);
	return rc;
}
