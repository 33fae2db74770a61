/* What the GPU tests share: a device or a skip said aloud, memory that host and device both see,
 * seeded numbers. */
#ifndef HEARTH_TESTS_GPU_H
#define HEARTH_TESTS_GPU_H

#include <stdint.h>

#include "common/device.h"
#include "common/model.h"
#include "common/types.h"
#include "worker/compute.h"

/* NULL: there is no GPU, and stderr says so: the test then exits 77. */
struct device *gpu_open(void);

/* `many` on a GPU, `few` where the kernels run on the CPU: tests/cuda_cpu. */
uint32_t gpu_many(const struct device *device, uint32_t many, uint32_t few);

/* Zeroed and registered: kernels read and write it at the same address.  Dies on failure. */
void *gpu_shared(struct device *device, uint64_t bytes);
void gpu_shared_free(struct device *device, void *at, uint64_t bytes);

float gpu_random(uint64_t *seed); /* in [-1, 1) */
/* A row of random quants with ordinary scales. */
void gpu_random_row(const struct type_info *info, uint8_t *row, uint32_t columns, uint64_t *seed);

/* A GGUF file wholly in registered host memory, its trunk and optionally its experts on the
 * device too, ready to be computed. */
struct gpu_model {
	struct device *device;
	struct model model;
	uint8_t *file; /* the "arena": offsets are the file's */
	uint64_t file_bytes;
	struct device_memory trunk, kv, slots;
	struct expert_place *places;
	struct compute *compute;
};

/* `slots`: every second expert in device memory (the others in place), else all in place.
 * `need` (may be NULL) and its arg are the config's. */
void gpu_model_open(struct gpu_model *ret, struct device *device, const char *path,
		    uint32_t context, bool slots,
		    int (*need)(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n),
		    void *need_arg);
/* The same, with some of the experts in place left to so many CPU threads. */
void gpu_model_open_sharing(struct gpu_model *ret, struct device *device, const char *path,
			    uint32_t context, bool slots, float share, uint32_t threads);
void gpu_model_close(struct gpu_model *model);

#endif
