/* One file of a model: opened, its GGUF header read and parsed, and found to hold nothing that its
 * tensors do not explain.  Owns the descriptor and the header's bytes, into which gguf points. */
#ifndef HEARTH_LOADER_SHARD_H
#define HEARTH_LOADER_SHARD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/gguf.h"

struct shard {
	char *path;
	int fd;
	uint64_t bytes;
	uint64_t mtime_ns;
	uint8_t *header; /* at least gguf.header_bytes of the file */
	struct gguf gguf;
};

/* Of a split set, as the file's own keys say. */
struct shard_split {
	uint64_t count;   /* 1: not split */
	uint64_t no;      /* from 0 */
	uint64_t tensors; /* of the whole set; 0: not said */
};

int shard_open(struct shard *ret, const char *path, struct error *err);
int shard_find_split(const struct shard *shard, struct shard_split *ret, struct error *err);

/* Every key that both have says the same in both (split.no aside); else -EINVAL names the key. */
int shard_compare_keys(const struct shard *first, const struct shard *other, struct error *err);

void shard_close(struct shard *shard);

#endif
