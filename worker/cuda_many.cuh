/* cuda_multiply of several tokens. */
#ifndef HEARTH_WORKER_CUDA_MANY_CUH
#define HEARTH_WORKER_CUDA_MANY_CUH

#include "worker/cuda_kernels.h"

int cuda_many(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
	      struct cuda_rows to, bool add, uint32_t tokens, struct error *err);

#endif
