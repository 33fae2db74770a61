/* The shape of Qwen3-30B-A3B with random weights (Q4_K and Q6_K as Q4_K_M files mix them), nothing
 * of it loaded.  One device a process; dies where memory cannot be had. */
#ifndef HEARTH_TESTS_BENCH_MODEL_H
#define HEARTH_TESTS_BENCH_MODEL_H

#include "common/device.h"
#include "common/model.h"
#include "worker/compute.h"

/* Returns the trunk's bytes; its matrices' offsets count from 0. */
uint64_t bench_model_make(struct model *ret, uint32_t layers, uint32_t context);

void bench_model_fill_trunk(struct device *device, const struct model *model, uint8_t *trunk);

/* Every expert in device memory, of its own. */
void bench_model_in_slots(struct device *device, const struct model *model,
			  struct expert_place *places);

#define BENCH_MODEL_HOST_BYTES (6ull << 30)
/* In registered host memory, which is returned, but for so many percent of them in slots. */
uint8_t *bench_model_in_host(struct device *device, const struct model *model, uint32_t percent,
			     struct expert_place *places);

#endif
