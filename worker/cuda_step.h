/* A forward as a sequence of launches, and the device memory between them.  Where it does not ask
 * for experts it waits for nothing on the device: the sequence for one token can be captured as a
 * graph. */
#ifndef HEARTH_WORKER_CUDA_STEP_H
#define HEARTH_WORKER_CUDA_STEP_H

#include "worker/cuda_kernels.h"
#include "worker/cuda_sharing.h"

/* What lies between kernels; pointers into one allocation. */
struct cuda_scratch {
	struct cuda_input *input;
	struct expert_place *places;     /* (layers, experts) */
	float *frequency;                /* (head_dim / 2) */
	struct cuda_rows h, qkv, router; /* (COMPUTE_BATCH) rows */
	struct cuda_vectors x, attended; /* the same */
	struct cuda_vectors act;         /* (COMPUTE_BATCH * top_k) */
	struct cuda_rows logits;         /* (1) */
	unsigned long long *parts;       /* CUDA_GREATEST_PARTS(vocabulary) */
	uint32_t *chosen;                /* (COMPUTE_BATCH, top_k) */
	unsigned long long *used;        /* (layers, experts) how often chosen */
	float *weights;
	struct cuda_group *groups; /* for a batch, as members and products */
	uint32_t *members;         /* (COMPUTE_BATCH * top_k) */
	struct cuda_rows products; /* the same */
	float *partial;
	uint32_t *attend_arrived; /* of the splits; 0 between launches, as route_arrived */
	uint32_t *route_arrived;  /* (COMPUTE_BATCH) */
	uint32_t *share_arrived;  /* (1), the same */
	uint32_t *parts_arrived;  /* (1), the same */
	uint32_t *given;          /* (top_k) */
	unsigned long long *met;  /* (1) */
	uint32_t at_once;         /* tokens that partial has room for */
};

/* Lays the scratch out from `base` on (a multiple of 256; NULL to learn the size).  Returns its
 * bytes. */
uint64_t cuda_scratch_plan(const struct model *model, uint8_t *base, struct cuda_scratch *ret);

uint64_t cuda_kv_bytes(const struct model *model, uint32_t context);

/* What asking needs on the host. */
struct cuda_asking {
	uint32_t *chosen; /* pinned, (COMPUTE_BATCH, top_k) */
	uint32_t *needed; /* (experts) */
	bool *is_needed;  /* (experts) */
};

struct cuda_step {
	const struct compute_config *config;
	const struct cuda_scratch *scratch;
	void *stream;
	uint32_t tokens;
	/* Pinned, (2): the greatest logit of the last token, at turn % 2, with which scratch->input
	 * then goes on; all go to scratch->logits.  NULL: no logits. */
	struct cuda_greatest *greatest;
	/* Ask config->need_experts before a layer's experts; waits for the device there.  NULL: do
	 * not. */
	const struct cuda_asking *asking;
	const struct cuda_sharing *sharing; /* NULL: no experts are left to the CPU */
};

/* What scratch->input is about. */
int cuda_step_launch(const struct cuda_step *step, struct error *err);

#endif
