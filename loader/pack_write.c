#include "loader/pack_write.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/checked.h"
#include "common/checksum.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/model.h"
#include "loader/fingerprint.h"
#include "loader/io.h"
#include "loader/pack.h"
#include "loader/placement.h"

#define TRUNK_ALIGN 32u /* of ggml's own files */

struct writer {
	struct model_files *files;
	const char *part; /* the file's name until it is whole */
	int fd;
	struct pack_head head;
	struct pack_tensor *tensors; /* (n_tensors) as the model's */
	struct placement placement;  /* of the model: its slices */
	struct checksum_plan plan;
	uint8_t *unit; /* room for the largest */
};

/* The units of a model's checksums, and room for any of them.  The caller closes what is there. */
static int
open_units(struct model_files *files, struct placement *placement, struct checksum_plan *plan,
	   uint8_t **ret_unit, struct error *err)
{
	uint64_t most = 1;
	int rc = placement_open(placement, files->tensors, files->n_tensors, 0, err);

	if (rc == 0)
		rc = checksum_plan_open(plan, files->tensors, files->n_tensors, placement->n_slices,
					err);
	for (uint64_t i = 0; rc == 0 && i < plan->n_units; i++)
		most = plan->units[i].bytes > most ? plan->units[i].bytes : most;
	if (rc == 0)
		*ret_unit = malloc(most);
	if (rc == 0 && !*ret_unit)
		rc = error_sys(err, -ENOMEM, "a matrix of %" PRIu64 " bytes", most);
	return rc;
}

/* Reads a unit from its file and hashes it. */
static int
read_unit(const struct model_files *files, struct checksum_unit *unit, uint8_t *to,
	  struct error *err)
{
	const struct arena_tensor *tensor = &files->tensors[unit->tensor];
	const struct shard *shard = &files->shards[tensor->shard];
	uint64_t offset = tensor->file_offset + (unit->offset - tensor->offset), got;
	int64_t n = io_read_all(&io_system, shard->fd, to, unit->bytes, offset, &got);

	if (n < 0)
		return error_sys(err, (int)n, "%s: %s: reading %" PRIu64 " bytes at %" PRIu64,
				 shard->path, tensor->name, unit->bytes, offset);
	if (got < unit->bytes)
		return error_set(err, -EIO, "%s: %s: ends at %" PRIu64 ", want %" PRIu64 " bytes",
				 shard->path, tensor->name, offset + got, offset + unit->bytes);
	unit->hash = XXH3_64bits(to, unit->bytes);
	return 0;
}

static uint64_t
expert_bytes(const struct arena_tensor *tensor)
{
	return tensor->bytes / tensor->dims[2];
}

/* Of one layer, from `at` on; returns where it ends. */
static uint64_t
place_layer(struct writer *w, uint32_t layer, uint64_t at, uint64_t align)
{
	uint64_t offset[N_ROLES] = { 0 }, used = 0, experts = 0, stride;
	int64_t index[N_ROLES] = { -1, -1, -1 };
	enum role role;

	for (uint64_t i = 0; i < w->files->n_tensors; i++)
		if (model_expert_layer(w->files->tensors[i].name, &role) == (int)layer)
			index[role] = (int64_t)i;
	for (role = 0; role < N_ROLES; role++) {
		if (index[role] < 0)
			continue;
		offset[role] = round_up(used, EXPERT_ALIGN);
		used = offset[role] + expert_bytes(&w->files->tensors[index[role]]);
		experts = w->files->tensors[index[role]].dims[2];
	}
	stride = round_up(used, align);
	for (role = 0; role < N_ROLES; role++) {
		if (index[role] < 0)
			continue;
		w->tensors[index[role]].offset = at + offset[role];
		w->tensors[index[role]].stride = stride;
	}
	return at + experts * stride;
}

/* Every place in the file. */
static void
place_all(struct writer *w, uint64_t align)
{
	struct pack_head *head = &w->head;
	uint64_t at;

	head->header_offset = round_up(sizeof(*head), 64);
	head->tensors_offset = round_up(head->header_offset + head->header_bytes, 64);
	head->hashes_offset = head->tensors_offset + head->n_tensors * sizeof(*w->tensors);
	at = round_up(head->hashes_offset + head->n_hashes * sizeof(uint64_t), PACK_ALIGN);
	for (uint64_t i = 0; i < head->n_tensors; i++) {
		const struct arena_tensor *from = &w->files->tensors[i];
		struct pack_tensor *to = &w->tensors[i];

		memcpy(to->name, from->name, sizeof(to->name));
		memcpy(to->dims, from->dims, sizeof(to->dims));
		to->type = from->type;
		to->n_dims = from->n_dims;
		to->bytes = from->bytes;
		if (from->slice != 0)
			continue;
		to->offset = round_up(at, TRUNK_ALIGN);
		at = to->offset + to->bytes;
	}
	for (uint32_t i = 1; i < w->placement.n_slices; i++)
		at = place_layer(w, i - 1, round_up(at, align), align);
	head->bytes = round_up(at, PACK_ALIGN);
}

static int
write_bytes(const struct writer *w, const void *from, uint64_t bytes, uint64_t offset,
	    struct error *err)
{
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t n = pwrite(w->fd, (const uint8_t *)from + done, bytes - done,
				   (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_sys(err, -errno, "%s: writing %" PRIu64 " bytes at %" PRIu64,
					 w->part, bytes - done, offset + done);
		done += (uint64_t)n;
	}
	return 0;
}

static int
write_units(struct writer *w, struct error *err)
{
	int rc = 0;

	for (uint64_t i = 0; i < w->plan.n_units && rc == 0; i++) {
		struct checksum_unit *unit = &w->plan.units[i];
		const struct arena_tensor *from = &w->files->tensors[unit->tensor];
		const struct pack_tensor *to = &w->tensors[unit->tensor];
		uint64_t at = unit->offset - from->offset;

		if (to->stride)
			at = at / (from->stride ? from->stride : unit->bytes) * to->stride;
		rc = read_unit(w->files, unit, w->unit, err);
		if (rc == 0)
			rc = write_bytes(w, w->unit, unit->bytes, to->offset + at, err);
	}
	return rc;
}

static int
write_directory(struct writer *w, struct error *err)
{
	const struct pack_head *head = &w->head;
	uint64_t end = head->hashes_offset + head->n_hashes * sizeof(uint64_t);
	uint8_t *directory = calloc(1, end);
	uint64_t *hashes;
	int rc;

	if (!directory)
		return error_sys(err, -ENOMEM, "%s: %" PRIu64 " bytes of directory", w->part, end);
	memcpy(directory, head, sizeof(*head));
	memcpy(directory + head->header_offset, w->files->shards[0].header, head->header_bytes);
	memcpy(directory + head->tensors_offset, w->tensors, head->n_tensors * sizeof(*w->tensors));
	hashes = (uint64_t *)(void *)(directory + head->hashes_offset);
	for (uint64_t i = 0; i < head->n_hashes; i++)
		hashes[i] = w->plan.units[i].hash;
	((struct pack_head *)(void *)directory)->directory_hash =
	    pack_directory_hash(directory, end);
	rc = write_bytes(w, directory, end, 0, err);
	free(directory);
	return rc;
}

/* Room for all of it, so that a full drive is an error now. */
static int
open_part(struct writer *w, struct error *err)
{
	struct stat locked, named;

	w->fd = open(w->part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	if (w->fd < 0)
		return error_path(err, -errno, "%s", w->part);
	/* The one before may have given it its name between the two calls. */
	if (flock(w->fd, LOCK_EX | LOCK_NB) < 0 || fstat(w->fd, &locked) < 0 ||
	    stat(w->part, &named) < 0 || locked.st_ino != named.st_ino) {
		close(w->fd);
		w->fd = -1;
		return error_set(err, -EBUSY, "%s: another process writes it", w->part);
	}
	if (ftruncate(w->fd, 0) < 0 || ftruncate(w->fd, (off_t)w->head.bytes) < 0)
		return error_sys(err, -errno, "%s: %" PRIu64 " bytes", w->part, w->head.bytes);
	if (fallocate(w->fd, 0, 0, (off_t)w->head.bytes) < 0 && errno != EOPNOTSUPP)
		return error_sys(err, -errno, "%s: room for %" PRIu64 " MiB", w->part,
				 w->head.bytes >> 20);
	return 0;
}

static int
sync_folder(const char *path, struct error *err)
{
	char name[PATH_MAX];
	int fd, rc = 0;

	snprintf(name, sizeof(name), "%s", path);
	fd = open(dirname(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) < 0)
		rc = error_path(err, -errno, "%s: its folder", path);
	if (fd >= 0)
		close(fd);
	return rc;
}

static int
write_whole(struct writer *w, const char *path, struct error *err)
{
	int rc = open_part(w, err);

	if (rc == 0)
		rc = write_units(w, err);
	if (rc == 0)
		rc = write_directory(w, err);
	if (rc == 0 && (fsync(w->fd) < 0 || rename(w->part, path) < 0))
		rc = error_path(err, -errno, "%s", path);
	if (rc == 0)
		rc = sync_folder(path, err);
	else if (w->fd >= 0)
		unlink(w->part);
	if (w->fd >= 0)
		close(w->fd);
	return rc;
}

int
pack_write(const char *path, struct model_files *files, uint64_t align, struct error *err)
{
	char part[PATH_MAX];
	struct writer w = { .files = files,
			    .part = part,
			    .fd = -1,
			    .head = { .magic = PACK_MAGIC,
				      .version = PACK_VERSION,
				      .n_tensors = files->n_tensors,
				      .header_bytes = files->shards[0].gguf.header_bytes } };
	int rc;

	if (snprintf(part, sizeof(part), "%s.part", path) >= (int)sizeof(part))
		return error_path(err, -ENAMETOOLONG, "%s", path);
	rc = fingerprint_read(files, &w.head.fingerprint, err);
	if (rc == 0)
		rc = open_units(files, &w.placement, &w.plan, &w.unit, err);
	w.head.n_hashes = w.plan.n_units;
	w.tensors = calloc(files->n_tensors + 1, sizeof(*w.tensors));
	if (rc == 0 && !w.tensors)
		rc = error_sys(err, -ENOMEM, "%" PRIu64 " tensors", files->n_tensors);
	if (rc == 0 && w.tensors) {
		place_all(&w, align);
		rc = write_whole(&w, path, err);
	}
	free(w.tensors);
	free(w.unit);
	checksum_plan_close(&w.plan);
	placement_close(&w.placement);
	return rc;
}

static int
check_units(struct model_files *pack, struct checksum_plan *plan, uint8_t *unit, struct error *err)
{
	const char *path = pack->shards[0].path;
	int rc = 0;

	if (plan->n_units != pack->n_hashes)
		return error_set(err, -EBADMSG, "%s: %" PRIu64 " checksums, want %" PRIu64, path,
				 pack->n_hashes, plan->n_units);
	for (uint64_t i = 0; i < plan->n_units && rc == 0; i++) {
		rc = read_unit(pack, &plan->units[i], unit, err);
		if (rc == 0 && plan->units[i].hash != pack->hashes[i])
			rc = error_set(err, -EBADMSG,
				       "%s: %s: %" PRIu64
				       " bytes of it have the checksum %016" PRIx64
				       ", want %016" PRIx64 ": damaged",
				       path, pack->tensors[plan->units[i].tensor].name,
				       plan->units[i].bytes, plan->units[i].hash, pack->hashes[i]);
	}
	return rc;
}

int
pack_check(struct model_files *pack, const struct model_files *files, struct error *err)
{
	struct placement placement = { 0 };
	struct checksum_plan plan = { 0 };
	uint8_t *unit = NULL;
	uint64_t fingerprint = 0;
	int rc;

	rc = fingerprint_read(files, &fingerprint, err);
	if (rc == 0 && fingerprint != pack->fingerprint)
		rc = error_set(err, -EEXIST,
			       "%s: is there already, and is of the model %016" PRIx64
			       ", want %016" PRIx64 " (%s)",
			       pack->shards[0].path, pack->fingerprint, fingerprint,
			       files->shards[0].path);
	if (rc == 0)
		rc = open_units(pack, &placement, &plan, &unit, err);
	if (rc == 0)
		rc = check_units(pack, &plan, unit, err);
	free(unit);
	checksum_plan_close(&plan);
	placement_close(&placement);
	return rc;
}

static int
check_there(const char *path, const struct model_files *files, struct error *err)
{
	struct model_files pack = { 0 };
	int rc;

	if (!pack_is(path))
		return error_set(err, -EEXIST, "%s: is there already, and is no pack", path);
	rc = model_files_open(&pack, path, err);
	if (rc == 0)
		rc = pack_check(&pack, files, err);
	model_files_close(&pack);
	if (rc == 0)
		log_info("%s is the pack of %s, every byte of it", path, files->shards[0].path);
	return rc;
}

static int
write_new(const char *path, struct model_files *files, struct error *err)
{
	uint64_t begin = clock_ns();
	int rc = pack_write(path, files, PACK_ALIGN, err);

	if (rc == 0)
		log_info("packed %" PRIu64 " MiB into %s in %.2f s", files->bytes >> 20, path,
			 (double)(clock_ns() - begin) / 1e9);
	return rc;
}

int
pack_make(const char *path, const char *model, struct error *err)
{
	struct model_files files = { 0 };
	struct model shape = { 0 };
	int rc = model_files_open(&files, model, err);

	if (rc == 0)
		rc = model_read(&shape, &files.shards[0].gguf, files.tensors, files.n_tensors,
				files.shards[0].path, err);
	if (rc == 0)
		rc = access(path, F_OK) == 0 ? check_there(path, &files, err)
					     : write_new(path, &files, err);
	model_close(&shape);
	model_files_close(&files);
	return rc;
}
