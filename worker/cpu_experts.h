/* The chosen experts of a layer for one or more tokens, as x += sum of share * expert(x).  Tokens
 * are grouped by expert, so that each expert's weights are read once for all tokens that chose it.
 * The memory is the owner's; one call at a time. */
#ifndef HEARTH_WORKER_CPU_EXPERTS_H
#define HEARTH_WORKER_CPU_EXPERTS_H

#include "worker/compute.h"
#include "worker/cpu_crew.h"

/* Tokens that one expert computes: places in the slots' tables.  A slot is one of a token's top_k
 * choices: slot = token * top_k + rank. */
struct cpu_group {
	uint32_t expert;
	uint32_t first; /* of `order` */
	uint32_t n;
	const struct expert_place *place;
};

/* What lies between the two halves of an expert. */
struct cpu_inner {
	struct cpu_vectors gate; /* (slots, expert_width) */
	float *up;               /* (slots, gate.stride) */
	uint64_t down_stride;
	float *down; /* (slots, hidden) */
};

/* Carves for so many slots. */
struct cpu_inner cpu_inner_carve(const struct model *model, uint64_t slots, uint8_t *base,
				 uint64_t *used);

struct cpu_experts_job {
	const struct cpu_crew *crew;
	const struct cpu_inner *inner;
	const struct model *model;
	uint32_t layer;
	uint32_t n_tokens, top_k, n_groups;
	const struct cpu_group *groups; /* (n_groups) */
	const uint32_t *order;          /* (n_tokens * top_k) slots by group */
	const float *shares;            /* (n_tokens * top_k) */
	const struct cpu_vectors *x;    /* (n_tokens, hidden), floats and fixed */
	float *out;                     /* (n_tokens, out_stride): is added to, in the order of the
					 * ranks */
	uint64_t out_stride;

	/* cpu_experts_run's own */
	uint32_t rows_a_part, parts_an_expert;
};

void cpu_experts_run(struct cpu_experts_job *job);

#endif
