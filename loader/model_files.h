/* All files of a model, from any one of them: siblings found and matched, their tensors in one
 * table.  Owns the shards.  Headers only: no tensor's byte is read here. */
#ifndef HEARTH_LOADER_MODEL_FILES_H
#define HEARTH_LOADER_MODEL_FILES_H

#include "common/arena.h"
#include "loader/shard.h"

struct model_files {
	uint32_t n_shards;
	struct shard *shards; /* by split.no; the first holds the metadata */
	uint64_t n_tensors;
	struct arena_tensor *tensors; /* by shard and its order; slice and offset are still 0 */
	uint64_t bytes;               /* of all tensors */
	/* Of the very files, as they lie there: XXH3 of each header, size and time of change.  A
	 * warm arena is of one stamp. */
	uint64_t stamp;
	/* Of the model, whatever its files are called and wherever they were copied to
	 * (loader/fingerprint.h); of a pack, of the model it was made from; 0: not read yet. */
	uint64_t fingerprint;
	/* Of a pack (loader/pack.h), which is one shard. */
	uint64_t *hashes; /* (n_hashes) what each checksum unit must have; NULL: no pack */
	uint64_t n_hashes;
	bool aligned; /* its experts' ranges are whole blocks */
};

int model_files_open(struct model_files *ret, const char *path, struct error *err);
/* The tensors in the order of their names; the caller frees. */
int model_files_sort(const struct model_files *files, const struct arena_tensor ***ret,
		     struct error *err);
void model_files_close(struct model_files *files);

#endif
