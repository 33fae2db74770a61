#include "loader/fingerprint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#include "common/model.h"
#include "loader/io.h"

static void
add_facts(XXH3_state_t *state, const struct arena_tensor *tensor)
{
	char name[GGUF_MAX_NAME] = "";

	memcpy(name, tensor->name, strnlen(tensor->name, sizeof(name) - 1));
	XXH3_64bits_update(state, name, sizeof(name));
	XXH3_64bits_update(state, &tensor->type, sizeof(tensor->type));
	XXH3_64bits_update(state, &tensor->n_dims, sizeof(tensor->n_dims));
	XXH3_64bits_update(state, tensor->dims, sizeof(tensor->dims));
	XXH3_64bits_update(state, &tensor->bytes, sizeof(tensor->bytes));
}

static int
add_sample(XXH3_state_t *state, const struct model_files *files, const struct arena_tensor *tensor,
	   uint64_t i, struct error *err)
{
	const struct shard *shard = &files->shards[tensor->shard];
	bool experts = model_expert_layer(tensor->name, NULL) >= 0 && tensor->dims[2] != 0;
	uint64_t n = experts ? tensor->dims[2] : 1, each = tensor->bytes / n, got;
	uint64_t offset = tensor->file_offset + i % n * (tensor->stride ? tensor->stride : each);
	uint64_t want = each < FINGERPRINT_SAMPLE_BYTES ? each : FINGERPRINT_SAMPLE_BYTES;
	uint8_t bytes[FINGERPRINT_SAMPLE_BYTES];
	int64_t rc = io_read_all(&io_system, shard->fd, bytes, want, offset, &got);

	if (rc < 0)
		return error_sys(err, (int)rc, "%s: %s: reading %" PRIu64 " bytes at %" PRIu64,
				 shard->path, tensor->name, want, offset);
	if (got < want)
		return error_set(err, -EIO, "%s: %s: ends at %" PRIu64 ", want %" PRIu64 " bytes",
				 shard->path, tensor->name, offset + got, offset + want);
	XXH3_64bits_update(state, bytes, want);
	return 0;
}

int
fingerprint_read(const struct model_files *files, uint64_t *ret, struct error *err)
{
	const struct arena_tensor **sorted;
	XXH3_state_t state;
	int rc = model_files_sort(files, &sorted, err);

	if (rc < 0)
		return rc;
	XXH3_64bits_reset(&state);
	XXH3_64bits_update(&state, files->shards[0].header, files->shards[0].gguf.header_bytes);
	for (uint64_t i = 0; i < files->n_tensors; i++)
		add_facts(&state, sorted[i]);
	for (uint64_t i = 0; i < FINGERPRINT_SAMPLES && files->n_tensors && rc == 0; i++)
		rc = add_sample(&state, files, sorted[i * files->n_tensors / FINGERPRINT_SAMPLES],
				i, err);
	free(sorted);
	if (rc == 0)
		*ret = XXH3_64bits_digest(&state);
	return rc;
}
