/* Tensor tables as odd as files may hold them: any order of layers, several shards, gaps, sizes
 * from a few bytes to several pieces.  Seeded. */
#ifndef HEARTH_TESTS_RANDOM_TENSORS_H
#define HEARTH_TESTS_RANDOM_TENSORS_H

#include "common/arena.h"

#define RANDOM_EXPERTS 3

struct random_tensors {
	uint64_t n;
	struct arena_tensor *list; /* shard, file_offset, bytes and name are set */
	uint32_t n_shards, n_layers;
};

void random_tensors_open(struct random_tensors *ret, uint32_t seed);
void random_tensors_close(struct random_tensors *tensors);

uint32_t random_next(uint32_t *state);

#endif
