/* Vectors for the GPU tests of products, and how far a product may be from the exact one. */
#ifndef HEARTH_TESTS_GPU_VECTORS_H
#define HEARTH_TESTS_GPU_VECTORS_H

#include "tests/gpu.h"
#include "worker/cuda_kernels.h"

struct cuda_vectors gpu_vectors_open(struct device *device, uint64_t n, uint32_t columns);
void gpu_vectors_close(struct device *device, struct cuda_vectors *vectors, uint64_t n,
		       uint32_t columns);

double gpu_product(const float *row, const double *x, uint32_t columns);

/* Rounding to fixed point, where the row's type is a quantised one, half a unit of each column; and
 * what sums of floats, in any order of this depth, and a norm before them lose. */
double gpu_product_error(uint32_t type, const float *row, const double *x, uint32_t columns);

#endif
