/* A matrix of many more rows than the device has warps, times one vector. */
#ifndef HEARTH_WORKER_CUDA_TALL_CUH
#define HEARTH_WORKER_CUDA_TALL_CUH

#include "worker/cuda_kernels.h"

/* *ret_done: false where the matrix is none of these, or its rows are too long; nothing is launched
 * then. */
int cuda_tall(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
	      struct cuda_rows to, bool *ret_done, struct error *err);

#endif
