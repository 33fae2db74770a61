/* Vectors in fixed point, as worker/cuda_fixed.cuh lays them out, read by a test. */
#ifndef HEARTH_TESTS_GPU_FIXED_H
#define HEARTH_TESTS_GPU_FIXED_H

#include "worker/cuda_kernels.h"

/* Dies unless vector n, of a multiple of 32 columns, is the same in both forms. */
void gpu_fixed_check(const struct cuda_vectors *vectors, uint64_t n, uint32_t columns);

#endif
