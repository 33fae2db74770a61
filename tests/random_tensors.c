#include "tests/random_tensors.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/checked.h"

#define MAX_SHARDS 4

uint32_t
random_next(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static uint64_t
random_bytes(uint32_t *state)
{
	switch (random_next(state) % 4) {
	case 0:
		return 1 + random_next(state) % 64;
	case 1:
		return 1 + random_next(state) % 8192;
	case 2:
		return 4096ull * (1 + random_next(state) % 8);
	default:
		return 1 + random_next(state) % (12u << 20);
	}
}

static void
name_tensor(struct arena_tensor *tensor, uint64_t i, uint32_t *state, uint32_t n_layers)
{
	static const char *const roles[] = { "gate", "up", "down" };
	uint32_t layer = (uint32_t)(i / 4);

	*tensor = (struct arena_tensor){ .n_dims = 3, .dims = { 1, 1, 1, 1 } };
	if (i % 4 == 3 || layer >= n_layers) {
		snprintf(tensor->name, sizeof(tensor->name), "trunk.%u", (unsigned)i);
		tensor->bytes = random_bytes(state);
		return;
	}
	snprintf(tensor->name, sizeof(tensor->name), "blk.%u.ffn_%s_exps.weight", layer,
		 roles[i % 4]);
	tensor->dims[2] = RANDOM_EXPERTS;
	tensor->bytes = RANDOM_EXPERTS * random_bytes(state);
}

void
random_tensors_open(struct random_tensors *ret, uint32_t seed)
{
	uint32_t state = seed * 2654435761u + 12345;
	uint64_t at[MAX_SHARDS];

	ret->n_shards = 1 + random_next(&state) % MAX_SHARDS;
	ret->n_layers = random_next(&state) % 5;
	ret->n = ret->n_layers * 4 + 1 + random_next(&state) % 6;
	ret->list = calloc(ret->n, sizeof(*ret->list));
	assert(ret->list);
	for (uint64_t i = 0; i < ret->n; i++)
		name_tensor(&ret->list[i], i, &state, ret->n_layers);
	for (uint64_t i = ret->n; i-- > 1;) { /* shuffled: the order of the files */
		uint64_t k = random_next(&state) % (i + 1);
		struct arena_tensor swap = ret->list[i];

		ret->list[i] = ret->list[k];
		ret->list[k] = swap;
	}
	for (uint32_t i = 0; i < MAX_SHARDS; i++)
		at[i] = 24 + random_next(&state) % 100000;
	for (uint64_t i = 0; i < ret->n; i++) {
		struct arena_tensor *tensor = &ret->list[i];

		tensor->shard = random_next(&state) % ret->n_shards;
		if (random_next(&state) % 4 == 0)
			at[tensor->shard] += random_next(&state) % 10000;
		at[tensor->shard] = round_up(at[tensor->shard], 32);
		tensor->file_offset = at[tensor->shard];
		at[tensor->shard] += tensor->bytes;
	}
}

void
random_tensors_close(struct random_tensors *tensors)
{
	free(tensors->list);
	*tensors = (struct random_tensors){ 0 };
}
