#include "loader/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/checked.h"
#include "common/model.h"
#include "loader/fingerprint.h"
#include "loader/io.h"

/* As of a GGUF file's header, and as much again. */
#define MAX_DIRECTORY_BYTES (1ull << 30)

bool
pack_is(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint64_t magic = 0;
	bool is =
	    fd >= 0 && pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == PACK_MAGIC;

	if (fd >= 0)
		close(fd);
	return is;
}

uint64_t
pack_directory_hash(uint8_t *bytes, uint64_t end)
{
	struct pack_head *head = (struct pack_head *)bytes;
	uint64_t kept = head->directory_hash, hash;

	head->directory_hash = 0;
	hash = XXH3_64bits(bytes, end);
	head->directory_hash = kept;
	return hash;
}

static int
read_bytes(const struct shard *pack, void *to, uint64_t bytes, uint64_t offset, struct error *err)
{
	uint64_t got;
	int64_t n = io_read_all(&io_system, pack->fd, to, bytes, offset, &got);

	if (n < 0)
		return error_path(err, (int)n, "%s: reading %" PRIu64 " bytes at %" PRIu64,
				  pack->path, bytes, offset);
	if (got < bytes)
		return error_set(err, -EBADMSG, "%s: ends at %" PRIu64 ", want %" PRIu64 " bytes",
				 pack->path, offset + got, offset + bytes);
	return 0;
}

/* A table between the head and the directory's end. */
static bool
table_fits(uint64_t offset, uint64_t n, uint64_t size, uint64_t end)
{
	uint64_t bytes, last;

	return offset % 8 == 0 && offset >= sizeof(struct pack_head) &&
	       checked_mul(n, size, &bytes) && checked_add(offset, bytes, &last) && last <= end;
}

static int
read_head(const struct shard *pack, struct pack_head *ret, uint64_t *ret_end, struct error *err)
{
	struct pack_head head;
	uint64_t end;
	int rc = read_bytes(pack, &head, sizeof(head), 0, err);

	if (rc < 0)
		return rc;
	if (head.version != PACK_VERSION)
		return error_set(err, -EBADMSG, "%s: a pack of version %" PRIu32 ", want %u",
				 pack->path, head.version, PACK_VERSION);
	if (head.bytes != pack->bytes)
		return error_set(err, -EBADMSG,
				 "%s: %" PRIu64 " bytes, want the %" PRIu64
				 " that it says: cut, or with something behind it",
				 pack->path, pack->bytes, head.bytes);
	if (!checked_mul(head.n_hashes, sizeof(uint64_t), &end) ||
	    !checked_add(end, head.hashes_offset, &end) || end > pack->bytes ||
	    end > MAX_DIRECTORY_BYTES ||
	    !table_fits(head.header_offset, head.header_bytes, 1, end) ||
	    !table_fits(head.tensors_offset, head.n_tensors, sizeof(struct pack_tensor), end) ||
	    !table_fits(head.hashes_offset, head.n_hashes, sizeof(uint64_t), end))
		return error_set(err, -EBADMSG,
				 "%s: its directory does not fit its %" PRIu64 " bytes: damaged",
				 pack->path, pack->bytes);
	*ret = head;
	*ret_end = end;
	return 0;
}

static int
check_tensor(const struct shard *pack, const struct arena_tensor *tensor, uint64_t data,
	     struct error *err)
{
	uint64_t extent, end;
	bool experts = model_expert_layer(tensor->name, NULL) >= 0;

	if (tensor->n_dims == 0 || tensor->n_dims > GGUF_MAX_DIMS ||
	    (tensor->stride != 0 && !experts) ||
	    (experts && (tensor->dims[2] == 0 || tensor->bytes % tensor->dims[2])) ||
	    tensor->file_offset < data || !arena_tensor_extent(tensor, &extent) ||
	    !checked_add(tensor->file_offset, extent, &end) || end > pack->bytes)
		return error_set(err, -EBADMSG,
				 "%s: %s: %" PRIu64 " bytes at %" PRIu64 ", %" PRIu64
				 " from expert to expert, in a pack of %" PRIu64 ": damaged",
				 pack->path, tensor->name, tensor->bytes, tensor->file_offset,
				 tensor->stride, pack->bytes);
	return 0;
}

/* Tensors from the directory. */
static int
take_tensors(struct model_files *files, const uint8_t *directory, uint64_t end, struct error *err)
{
	const struct pack_head *head = (const struct pack_head *)directory;
	const struct pack_tensor *from = (const void *)(directory + head->tensors_offset);
	int rc = 0;

	files->tensors = calloc(head->n_tensors + 1, sizeof(*files->tensors));
	if (!files->tensors)
		return error_sys(err, -ENOMEM, "%s: %" PRIu64 " tensors", files->shards[0].path,
				 head->n_tensors);
	files->aligned = true;
	for (uint64_t i = 0; i < head->n_tensors && rc == 0; i++, from++) {
		struct arena_tensor *to = &files->tensors[files->n_tensors++];

		memcpy(to->name, from->name, sizeof(to->name));
		to->name[sizeof(to->name) - 1] = '\0';
		memcpy(to->dims, from->dims, sizeof(to->dims));
		to->type = from->type;
		to->n_dims = from->n_dims;
		to->bytes = from->bytes;
		to->file_offset = from->offset;
		to->stride = from->stride;
		if (to->stride % PACK_ALIGN)
			files->aligned = false;
		rc = check_tensor(&files->shards[0], to, end, err);
		files->bytes += to->bytes;
	}
	return rc;
}

static int
compare_places(const void *a, const void *b)
{
	const struct arena_tensor *x = a, *y = b;

	return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

/* Tensors of one stride may lie within one another, each in a part of its own of every expert.
 * `tensors` come in the order of places. */
static int
check_overlap(const char *path, const struct arena_tensor *tensors, uint64_t n, bool *aligned,
	      struct error *err)
{
	uint64_t group = 0, used = 0, end = 0, stride = 0;

	for (uint64_t i = 0; i < n; i++) {
		const struct arena_tensor *t = &tensors[i];
		uint64_t each = t->stride ? t->bytes / t->dims[2] : t->bytes, extent = 0;
		bool inside = t->file_offset < end;

		if (inside &&
		    (t->stride == 0 || t->stride != stride || t->file_offset < used ||
		     t->file_offset - group > stride || each > stride - (t->file_offset - group)))
			return error_set(err, -EBADMSG, "%s: %s lies over %s: damaged", path,
					 t->name, tensors[i - 1].name);
		if (!inside) {
			group = t->file_offset;
			stride = t->stride;
			if (stride && group % PACK_ALIGN)
				*aligned = false;
		}
		used = t->file_offset + each;
		arena_tensor_extent(t, &extent);
		if (t->file_offset + extent > end)
			end = t->file_offset + extent;
	}
	return 0;
}

static int
check_places(struct model_files *files, struct error *err)
{
	struct arena_tensor *sorted = calloc(files->n_tensors + 1, sizeof(*sorted));
	int rc;

	if (!sorted)
		return error_sys(err, -ENOMEM, "%" PRIu64 " tensors", files->n_tensors);
	memcpy(sorted, files->tensors, files->n_tensors * sizeof(*sorted));
	qsort(sorted, files->n_tensors, sizeof(*sorted), compare_places);
	rc = check_overlap(files->shards[0].path, sorted, files->n_tensors, &files->aligned, err);
	free(sorted);
	return rc;
}

static int
take_header(struct shard *pack, const uint8_t *directory, struct error *err)
{
	const struct pack_head *head = (const struct pack_head *)directory;
	int rc;

	pack->header = malloc(head->header_bytes + 1);
	if (!pack->header)
		return error_sys(err, -ENOMEM, "%s: a header of %" PRIu64 " bytes", pack->path,
				 head->header_bytes);
	memcpy(pack->header, directory + head->header_offset, head->header_bytes);
	/* Its tensors lie in another file, which was as long as it had to be. */
	rc = gguf_parse(&pack->gguf, pack->header, head->header_bytes, UINT64_MAX, pack->path, err);
	if (rc == 0 && pack->gguf.header_bytes != head->header_bytes) {
		gguf_close(&pack->gguf);
		pack->gguf = (struct gguf){ 0 };
		rc = -ENODATA;
	}
	return rc == -ENODATA ? error_set(err, -EBADMSG,
					  "%s: its GGUF header is not whole: damaged", pack->path)
			      : rc;
}

static int
check_directory(const struct shard *pack, uint8_t *directory, uint64_t end, struct error *err)
{
	const struct pack_head *head = (const struct pack_head *)directory;
	uint64_t hash = pack_directory_hash(directory, end);

	if (hash != head->directory_hash)
		return error_set(err, -EBADMSG,
				 "%s: its directory has the checksum %016" PRIx64
				 ", want %016" PRIx64 ": damaged",
				 pack->path, hash, head->directory_hash);
	return 0;
}

static int
take_directory(struct model_files *files, const struct pack_head *head, uint8_t *directory,
	       uint64_t end, struct error *err)
{
	struct shard *pack = &files->shards[0];
	int rc = read_bytes(pack, directory, end, 0, err);

	if (rc == 0 && memcmp(directory, head, sizeof(*head)) != 0)
		rc = error_set(err, -EBADMSG, "%s: changed while it was read", pack->path);
	if (rc == 0)
		rc = check_directory(pack, directory, end, err);
	if (rc == 0)
		rc = take_header(pack, directory, err);
	if (rc == 0)
		rc = take_tensors(files, directory, end, err);
	if (rc == 0)
		rc = check_places(files, err);
	if (rc < 0)
		return rc;
	files->fingerprint = head->fingerprint;
	files->n_hashes = head->n_hashes;
	files->hashes = malloc((head->n_hashes + 1) * sizeof(*files->hashes));
	if (!files->hashes)
		return error_sys(err, -ENOMEM, "%s: %" PRIu64 " checksums", pack->path,
				 head->n_hashes);
	memcpy(files->hashes, directory + head->hashes_offset, head->n_hashes * sizeof(uint64_t));
	return 0;
}

static int
check_fingerprint(const struct model_files *files, struct error *err)
{
	uint64_t fingerprint = 0;
	int rc = fingerprint_read(files, &fingerprint, err);

	if (rc == 0 && fingerprint != files->fingerprint)
		rc = error_set(err, -EBADMSG,
			       "%s: says it is of the model %016" PRIx64 ", and holds %016" PRIx64
			       ": damaged or put together from two",
			       files->shards[0].path, files->fingerprint, fingerprint);
	return rc;
}

static int
open_pack(struct shard *pack, const char *path, struct error *err)
{
	struct stat st;

	pack->path = strdup(path);
	if (!pack->path)
		return error_sys(err, -ENOMEM, "%s", path);
	pack->fd = open(path, O_RDONLY | O_CLOEXEC);
	if (pack->fd < 0 || fstat(pack->fd, &st) < 0)
		return error_path(err, -errno, "%s", path);
	pack->bytes = (uint64_t)st.st_size;
	pack->mtime_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec;
	return 0;
}

/* The caller closes what is half made. */
int
pack_open(struct model_files *files, const char *path, struct error *err)
{
	struct pack_head head = { 0 };
	uint8_t *directory = NULL;
	uint64_t end = 0;
	int rc;

	files->shards = calloc(1, sizeof(*files->shards));
	if (!files->shards)
		return error_sys(err, -ENOMEM, "%s", path);
	files->shards[files->n_shards++].fd = -1;
	rc = open_pack(&files->shards[0], path, err);
	if (rc == 0)
		rc = read_head(&files->shards[0], &head, &end, err);
	if (rc == 0) {
		directory = calloc(1, end + 1);
		rc = directory ? take_directory(files, &head, directory, end, err)
			       : error_sys(err, -ENOMEM, "%s: %" PRIu64 " bytes", path, end);
	}
	free(directory);
	return rc < 0 ? rc : check_fingerprint(files, err);
}
