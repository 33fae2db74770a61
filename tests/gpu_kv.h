/* The GPU's KV cache as a test reads and writes it, by the layout that worker/cuda_kernels.h
 * states. */
#ifndef HEARTH_TESTS_GPU_KV_H
#define HEARTH_TESTS_GPU_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/cuda_kernels.h"

/* Keys, or values, of all heads at all positions. */
struct gpu_kv {
	struct cuda_kv_tile *tiles;
	bool values;
	uint32_t kv_heads, context, head_dim;
};

uint64_t gpu_kv_tiles(uint32_t kv_heads, uint32_t context, uint32_t head_dim);

/* Columns are those of whole groups: behind head_dim they are to be 0. */
float gpu_kv_unit(const struct gpu_kv *kv, uint32_t head, uint32_t pos, uint32_t column);
double gpu_kv_get(const struct gpu_kv *kv, uint32_t head, uint32_t pos, uint32_t column);

/* Rounds a row of head_dim columns. */
void gpu_kv_put(const struct gpu_kv *kv, uint32_t head, uint32_t pos, const float *row);

/* True if both have the same bytes of a position, all columns and units. */
bool gpu_kv_same(const struct gpu_kv *a, const struct gpu_kv *b, uint32_t head, uint32_t pos);

/* One position's bytes from another cache of the same shape. */
void gpu_kv_copy(const struct gpu_kv *to, const struct gpu_kv *from, uint32_t head, uint32_t pos);

#endif
