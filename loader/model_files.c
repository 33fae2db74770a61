#include "loader/model_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#include "common/checked.h"
#include "common/model.h"
#include "loader/pack.h"

#define SUFFIX_BYTES (sizeof("-00001-of-00002.gguf") - 1)

/* "<stem>-00001-of-00003.gguf": what the name says.  False: it is no such name. */
static bool
parse_name(const char *path, unsigned *ret_no, unsigned *ret_count)
{
	size_t n = strlen(path);
	char again[SUFFIX_BYTES + 12];

	if (n <= SUFFIX_BYTES ||
	    sscanf(path + n - SUFFIX_BYTES, "-%5u-of-%5u.gguf", ret_no, ret_count) != 2)
		return false;
	snprintf(again, sizeof(again), "-%05u-of-%05u.gguf", *ret_no, *ret_count);
	return strcmp(path + n - SUFFIX_BYTES, again) == 0;
}

/* What split.no (from 0) and the name (from 1) say of a shard must agree. */
static int
check_shard(const struct shard *shard, uint64_t count, struct error *err)
{
	struct shard_split split;
	unsigned no = 0, of = 0;
	int rc = shard_find_split(shard, &split, err);

	if (rc < 0)
		return rc;
	if (!parse_name(shard->path, &no, &of))
		return error_set(err, -EINVAL,
				 "%s: split.count is %" PRIu64
				 ", want a name that ends in -00001-of-%05" PRIu64
				 ".gguf, by which the other shards are found",
				 shard->path, split.count, split.count);
	if (split.count != count || of != count)
		return error_set(err, -EINVAL,
				 "%s: split.count is %" PRIu64
				 " and the name says %u, want %" PRIu64,
				 shard->path, split.count, of, count);
	if (split.no + 1 != no)
		return error_set(err, -EINVAL,
				 "%s: split.no is %" PRIu64 " (from 0), its name says %u (from 1): "
				 "shards with swapped names",
				 shard->path, split.no, no);
	return 0;
}

/* `given` is the path of one of them. */
static int
open_shards(struct model_files *files, const char *given, uint64_t count, struct error *err)
{
	size_t stem = strlen(given) - SUFFIX_BYTES;
	size_t room = strlen(given) + 12;
	char *path = malloc(room);
	int rc = 0;

	files->shards = calloc(count, sizeof(*files->shards));
	if (!path || !files->shards) {
		free(path);
		return error_sys(err, -ENOMEM, "%s: %" PRIu64 " shards", given, count);
	}
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		snprintf(path, room, "%.*s-%05u-of-%05u.gguf", (int)stem, given, i + 1,
			 (unsigned)count);
		rc = shard_open(&files->shards[i], path, err);
		if (rc == -ENOENT)
			error_set(err, rc, "%s: missing: shard %u of %" PRIu64, path, i + 1, count);
		if (rc < 0)
			break;
		files->n_shards++;
		rc = check_shard(&files->shards[i], count, err);
		if (rc == 0)
			rc = shard_compare_keys(&files->shards[0], &files->shards[i], err);
	}
	free(path);
	return rc;
}

static int
open_all(struct model_files *files, const char *path, struct error *err)
{
	struct shard given;
	struct shard_split split;
	int rc = shard_open(&given, path, err);

	if (rc < 0)
		return rc;
	rc = shard_find_split(&given, &split, err);
	if (rc == 0 && split.count == 1) {
		files->shards = calloc(1, sizeof(*files->shards));
		if (files->shards) {
			files->shards[files->n_shards++] = given;
			return 0;
		}
		rc = error_sys(err, -ENOMEM, "%s", path);
	}
	if (rc == 0)
		rc = check_shard(&given, split.count, err);
	shard_close(&given);
	return rc == 0 ? open_shards(files, path, split.count, err) : rc;
}

static int
merge_tensors(struct model_files *files, struct error *err)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < files->n_shards; i++)
		n += files->shards[i].gguf.n_tensors;
	files->tensors = calloc(n + 1, sizeof(*files->tensors));
	if (!files->tensors)
		return error_sys(err, -ENOMEM, "%s: %" PRIu64 " tensors", files->shards[0].path, n);
	for (uint32_t i = 0; i < files->n_shards; i++) {
		const struct gguf *gguf = &files->shards[i].gguf;

		for (uint64_t k = 0; k < gguf->n_tensors; k++) {
			const struct gguf_tensor *from = &gguf->tensors[k];
			struct arena_tensor *to = &files->tensors[files->n_tensors++];

			memcpy(to->name, from->name.at, from->name.bytes);
			memcpy(to->dims, from->dims, sizeof(to->dims));
			to->type = from->type;
			to->n_dims = from->n_dims;
			to->bytes = from->bytes;
			to->shard = i;
			to->file_offset = from->offset;
			files->bytes += from->bytes;
		}
	}
	return 0;
}

static int
compare_names(const void *a, const void *b)
{
	const struct arena_tensor *x = *(const struct arena_tensor *const *)a;
	const struct arena_tensor *y = *(const struct arena_tensor *const *)b;

	return strcmp(x->name, y->name);
}

int
model_files_sort(const struct model_files *files, const struct arena_tensor ***ret,
		 struct error *err)
{
	const struct arena_tensor **sorted =
	    calloc(files->n_tensors + 1, sizeof(const struct arena_tensor *));

	if (!sorted)
		return error_sys(err, -ENOMEM, "%" PRIu64 " tensors", files->n_tensors);
	for (uint64_t i = 0; i < files->n_tensors; i++)
		sorted[i] = &files->tensors[i];
	qsort(sorted, files->n_tensors, sizeof(const struct arena_tensor *), compare_names);
	*ret = sorted;
	return 0;
}

static int
check_names(const struct model_files *files, struct error *err)
{
	const struct arena_tensor **sorted;
	int rc = model_files_sort(files, &sorted, err);

	if (rc < 0)
		return rc;
	for (uint64_t i = 1; i < files->n_tensors && rc == 0; i++)
		if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			rc = error_set(err, -EINVAL, "%s: %s is in %s too, want it once",
				       files->shards[sorted[i]->shard].path, sorted[i]->name,
				       files->shards[sorted[i - 1]->shard].path);
	free(sorted);
	return rc;
}

static int
check_count(const struct model_files *files, struct error *err)
{
	struct shard_split split;

	for (uint32_t i = 0; i < files->n_shards; i++) {
		int rc = shard_find_split(&files->shards[i], &split, err);

		if (rc < 0)
			return rc;
		if (split.tensors && split.tensors != files->n_tensors)
			return error_set(err, -EINVAL,
					 "%s: split.tensors.count is %" PRIu64
					 ", the shards hold %" PRIu64,
					 files->shards[i].path, split.tensors, files->n_tensors);
	}
	return 0;
}

/* Types (as bits) of the gate and up matrices of the experts in a shard.  Quantizers vary the type
 * of other matrices within one model, and these seldom. */
static uint64_t
expert_types(const struct model_files *files, uint32_t shard)
{
	uint64_t types = 0;

	for (uint64_t i = 0; i < files->n_tensors; i++) {
		enum role role;

		if (files->tensors[i].shard == shard && files->tensors[i].type < 64 &&
		    model_expert_layer(files->tensors[i].name, &role) >= 0 && role != ROLE_DOWN)
			types |= 1ull << files->tensors[i].type;
	}
	return types;
}

/* Two quants of one model are cut alike: names and counts agree, only the types tell.  Only a model
 * that names one quant (general.file_type) is held to it. */
static int
check_quant(const struct model_files *files, struct error *err)
{
	if (!gguf_find(&files->shards[0].gguf, "general.file_type"))
		return 0;
	for (uint32_t i = files->n_shards; i-- > 0;) {
		uint64_t types = expert_types(files, i), others = 0;

		for (uint32_t k = 0; k < files->n_shards; k++)
			others |= k == i ? 0 : expert_types(files, k);
		if (types && others && !(types & others))
			return error_set(err, -EINVAL,
					 "%s: its experts have no type in common with the other "
					 "shards': a shard of another quant",
					 files->shards[i].path);
	}
	return 0;
}

static uint64_t
stamp(const struct model_files *files)
{
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	for (uint32_t i = 0; i < files->n_shards; i++) {
		const struct shard *shard = &files->shards[i];
		uint64_t facts[2] = { shard->bytes, shard->mtime_ns };

		XXH3_64bits_update(&state, shard->header, shard->gguf.header_bytes);
		XXH3_64bits_update(&state, facts, sizeof(facts));
	}
	return XXH3_64bits_digest(&state);
}

int
model_files_open(struct model_files *ret, const char *path, struct error *err)
{
	struct model_files files = { 0 };
	int rc;

	if (pack_is(path)) {
		rc = pack_open(&files, path, err);
	} else {
		rc = open_all(&files, path, err);
		if (rc == 0)
			rc = merge_tensors(&files, err);
	}
	if (rc == 0)
		rc = check_names(&files, err);
	if (rc == 0)
		rc = check_count(&files, err);
	if (rc == 0)
		rc = check_quant(&files, err);
	if (rc < 0) {
		model_files_close(&files);
		return rc;
	}
	files.stamp = stamp(&files);
	*ret = files;
	return 0;
}

void
model_files_close(struct model_files *files)
{
	for (uint32_t i = 0; i < files->n_shards; i++)
		shard_close(&files->shards[i]);
	free(files->shards);
	free(files->tensors);
	free(files->hashes);
	*files = (struct model_files){ 0 };
}
