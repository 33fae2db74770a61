#include "loader/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/checked.h"
#include "loader/io.h"

#define FIRST_READ (1u << 20)
/* A header of a vocabulary of a million tokens takes a tenth of this. */
#define MAX_HEADER_BYTES (512u << 20)

static int
open_file(struct shard *shard, struct error *err)
{
	struct stat st;

	/* Opening a FIFO must not wait for its writer. */
	shard->fd = open(shard->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (shard->fd < 0)
		return error_path(err, -errno, "%s", shard->path);
	if (fstat(shard->fd, &st) < 0)
		return error_path(err, -errno, "%s", shard->path);
	if (S_ISDIR(st.st_mode))
		return error_set(err, -EISDIR, "%s: a folder, want a GGUF file", shard->path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, -EINVAL, "%s: no regular file, want a GGUF file",
				 shard->path);
	shard->bytes = (uint64_t)st.st_size;
	shard->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	return 0;
}

/* Reads on to `want` bytes of the file. */
static int
read_header(struct shard *shard, uint64_t have, uint64_t want, struct error *err)
{
	uint8_t *grown = realloc(shard->header, want + 1);
	uint64_t got;
	int64_t n;

	if (!grown)
		return error_sys(err, -ENOMEM, "%s: a header of %" PRIu64 " bytes", shard->path,
				 want);
	shard->header = grown;
	n = io_read_all(&io_system, shard->fd, grown + have, want - have, have, &got);
	if (n < 0)
		return error_path(err, (int)n, "%s: reading %" PRIu64 " bytes at %" PRIu64,
				  shard->path, want - have, have);
	if (got < want - have)
		return error_set(err, -EIO, "%s: ends at %" PRIu64 ", want %" PRIu64 " bytes",
				 shard->path, have + got, shard->bytes);
	return 0;
}

static int
parse_header(struct shard *shard, struct error *err)
{
	uint64_t have = 0, want = FIRST_READ;
	struct gguf gguf;
	int rc = -ENODATA;

	while (rc == -ENODATA) {
		if (have == MAX_HEADER_BYTES)
			return error_set(err, -EBADMSG,
					 "%s: a header of more than %u bytes, want less",
					 shard->path, MAX_HEADER_BYTES);
		if (want > shard->bytes)
			want = shard->bytes;
		rc = read_header(shard, have, want, err);
		if (rc < 0)
			return rc;
		have = want;
		want *= 2;
		rc = gguf_parse(&gguf, shard->header, have, shard->bytes, shard->path, err);
	}
	if (rc == 0)
		shard->gguf = gguf;
	return rc;
}

/* Behind the last tensor there may be padding, and nothing more. */
static int
check_end(const struct shard *shard, struct error *err)
{
	const struct gguf *gguf = &shard->gguf;
	uint64_t end = gguf->header_bytes, padded, got;
	char magic[4] = "";

	for (uint64_t i = 0; i < gguf->n_tensors; i++)
		if (gguf->tensors[i].offset + gguf->tensors[i].bytes > end)
			end = gguf->tensors[i].offset + gguf->tensors[i].bytes;
	if (!checked_round_up(end, gguf->alignment, &padded))
		padded = end;
	for (int i = 0; i < 2; i++) {
		uint64_t at = i ? padded : end;

		if (at < shard->bytes &&
		    io_read_all(&io_system, shard->fd, magic, sizeof(magic), at, &got) ==
			sizeof(magic) &&
		    memcmp(magic, "GGUF", sizeof(magic)) == 0)
			return error_set(err, -EINVAL,
					 "%s: another GGUF file begins at %" PRIu64
					 ": joined shards, want each in its own file",
					 shard->path, at);
	}
	if (shard->bytes > padded)
		return error_set(err, -EINVAL,
				 "%s: %" PRIu64
				 " bytes behind the last tensor, want its end at %" PRIu64,
				 shard->path, shard->bytes - end, end);
	return 0;
}

int
shard_open(struct shard *ret, const char *path, struct error *err)
{
	struct shard shard = { .fd = -1, .path = strdup(path) };
	int rc;

	if (!shard.path)
		return error_sys(err, -ENOMEM, "%s", path);
	rc = open_file(&shard, err);
	if (rc == 0)
		rc = parse_header(&shard, err);
	if (rc == 0)
		rc = check_end(&shard, err);
	if (rc < 0) {
		shard_close(&shard);
		return rc;
	}
	*ret = shard;
	return 0;
}

static int
find_number(const struct shard *shard, const char *key, uint64_t *ret, struct error *err)
{
	int rc = gguf_find_u64(&shard->gguf, key, ret, err);
	char text[sizeof(err->text)];

	if (rc >= 0)
		return 0;
	memcpy(text, err->text, sizeof(text));
	return error_set(err, rc, "%s (%s)", text, shard->path);
}

int
shard_find_split(const struct shard *shard, struct shard_split *ret, struct error *err)
{
	struct shard_split split = { .count = 1 };
	int rc = find_number(shard, "split.count", &split.count, err);

	if (rc == 0)
		rc = find_number(shard, "split.no", &split.no, err);
	if (rc == 0)
		rc = find_number(shard, "split.tensors.count", &split.tensors, err);
	if (rc < 0)
		return rc;
	if (split.count == 0 || split.count > 99999)
		return error_set(err, -EINVAL, "key split.count: %" PRIu64 ", want 1 to 99999 (%s)",
				 split.count, shard->path);
	*ret = split;
	return 0;
}

/* Where a value ends: fixed sizes, or strings one after the other. */
static const uint8_t *
value_end(const struct gguf_pair *pair)
{
	static const uint8_t bytes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
	const uint8_t *at = pair->at;

	if (pair->element != GGUF_STRING)
		return at + pair->count * bytes[pair->element];
	for (uint64_t i = 0; i < pair->count; i++)
		gguf_next_string(&at);
	return at;
}

static bool
values_equal(const struct gguf_pair *a, const struct gguf_pair *b)
{
	size_t n = (size_t)(value_end(a) - a->at);

	return a->kind == b->kind && a->element == b->element && a->count == b->count &&
	       n == (size_t)(value_end(b) - b->at) && memcmp(a->at, b->at, n) == 0;
}

int
shard_compare_keys(const struct shard *first, const struct shard *other, struct error *err)
{
	for (uint64_t i = 0; i < other->gguf.n_pairs; i++) {
		const struct gguf_pair *pair = &other->gguf.pairs[i];

		if (gguf_string_is(pair->key, "split.no"))
			continue;
		for (uint64_t k = 0; k < first->gguf.n_pairs; k++) {
			const struct gguf_pair *same = &first->gguf.pairs[k];

			if (same->key.bytes != pair->key.bytes ||
			    memcmp(same->key.at, pair->key.at, pair->key.bytes) != 0)
				continue;
			if (!values_equal(same, pair))
				return error_set(
				    err, -EINVAL,
				    "%s: key %.*s differs from %s: a shard of another model",
				    other->path, (int)pair->key.bytes, pair->key.at, first->path);
		}
	}
	return 0;
}

void
shard_close(struct shard *shard)
{
	gguf_close(&shard->gguf);
	free(shard->header);
	free(shard->path);
	if (shard->fd >= 0)
		close(shard->fd);
	*shard = (struct shard){ .fd = -1 };
}
