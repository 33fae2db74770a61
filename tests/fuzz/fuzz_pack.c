// links: common/gguf.c common/gguf_find.c common/gguf_cursor.c common/types.c common/error.c
// links: common/model.c common/model_keys.c common/model_layout.c common/checksum.c
// links: loader/placement.c loader/pieces.c loader/pack.c loader/fingerprint.c loader/shard.c
// links: loader/model_files.c loader/io.c common/utf8.c
/* A pack whose directory is any bytes, with the hash that they have: what opens it, and what places
 * the tensors that it tells of. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/checked.h"
#include "loader/pack.h"
#include "loader/pieces.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Magic, version, size and hash are right: what is behind them is what is looked at. */
static void
seal(uint8_t *bytes, size_t n, uint64_t fingerprint)
{
	struct pack_head *head = (struct pack_head *)bytes;
	uint64_t end;

	head->magic = PACK_MAGIC;
	head->version = PACK_VERSION;
	head->bytes = n;
	head->fingerprint = fingerprint;
	if (checked_mul(head->n_hashes, sizeof(uint64_t), &end) &&
	    checked_add(end, head->hashes_offset, &end) && end >= sizeof(*head) && end <= n)
		head->directory_hash = pack_directory_hash(bytes, end);
}

static void
write_whole(int fd, const uint8_t *bytes, size_t n)
{
	if (pwrite(fd, bytes, n, 0) != (ssize_t)n)
		abort();
}

static void
look_at(struct model_files *files)
{
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	struct error err;

	if (placement_open(&placement, files->tensors, files->n_tensors, 1000, &err) < 0)
		return;
	if (checksum_plan_open(&plan, files->tensors, files->n_tensors, placement.n_slices, &err) ==
	    0) {
		if (pieces_open(&pieces, &placement, &plan, NULL, &err) == 0)
			pieces_close(&pieces);
		checksum_plan_close(&plan);
	}
	placement_close(&placement);
}

/* The first try tells the fingerprint that would be right. */
int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	uint8_t *copy = malloc(n + sizeof(struct pack_head));
	unsigned long long right = 0;
	struct model_files files;
	struct error err = { "" };
	char path[32];
	const char *at;

	if (fd < 0 || !copy)
		abort();
	memcpy(copy, bytes, n);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int i = 0; i < 2 && n >= sizeof(struct pack_head); i++) {
		seal(copy, n, right);
		write_whole(fd, copy, n);
		if (model_files_open(&files, path, &err) == 0) {
			look_at(&files);
			model_files_close(&files);
			break;
		}
		at = strstr(err.text, "and holds ");
		if (!at || sscanf(at, "and holds %16llx", &right) != 1)
			break;
	}
	free(copy);
	close(fd);
	return 0;
}
