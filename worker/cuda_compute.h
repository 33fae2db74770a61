/* What the files of compute_cuda share: cuda_open.cu makes it ready and ends it, compute_cuda.cu
 * computes.  For the thread that computes. */
#ifndef HEARTH_WORKER_CUDA_COMPUTE_H
#define HEARTH_WORKER_CUDA_COMPUTE_H

#include <cuda_runtime.h>

#include "worker/cuda_step.h"

/* One token that was begun before it was asked for. */
struct cuda_ahead {
	bool begun;
	bool shared; /* with a share for the CPU */
	bool usual;  /* if so: by a graph that was there */
	uint32_t id, pos;
};

struct compute {
	struct compute_config config;
	struct cuda_scratch scratch;
	void *memory;                   /* scratch's */
	struct cuda_input *input;       /* pinned */
	float *logits;                  /* pinned, (vocabulary) */
	struct cuda_greatest *greatest; /* pinned, (2) by turn % 2 */
	cudaEvent_t done[2];            /* the same: it is there */
	uint64_t turn;                  /* of the newest forward, or of what is begun */
	struct cuda_ahead ahead;
	cudaStream_t stream;
	cudaGraphExec_t token; /* from scratch.input to the greatest logit; NULL: not captured */
	bool answered;         /* a forward has given a result */
	bool asks;             /* need_experts */
	struct cuda_asking asking;
	struct cuda_sharing sharing;
	bool common;              /* some expert lies where the CPU reads it too */
	unsigned long long *used; /* pinned, (layers, experts) */
	char kernels[32];
};

int cuda_compute_enter(const struct compute *compute, struct error *err);

uint64_t cuda_compute_own_bytes(const struct model *model, uint32_t context);
int cuda_compute_open(struct compute **ret, const struct compute_config *config, struct error *err);
void cuda_compute_close(struct compute *compute); /* waits for what was launched */

int cuda_compute_places_changed(struct compute *compute, struct error *err);

#endif
