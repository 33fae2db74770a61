/* The inside of compute_cpu, shared by its three parts: compute_cpu.c (life and the walk through
 * the layers), cpu_attention.c and cpu_router.c.  All memory is made at open. */
#ifndef HEARTH_WORKER_CPU_COMPUTE_H
#define HEARTH_WORKER_CPU_COMPUTE_H

#include "worker/compute.h"
#include "worker/cpu_crew.h"
#include "worker/cpu_experts.h"

struct compute {
	struct compute_config config;
	struct cpu_crew crew;
	void *block; /* all of the below */

	/* of the call in progress */
	uint32_t n, pos;
	uint32_t layer;
	bool asks; /* need_experts */

	/* Rows of a token begin at multiples of a cache line. */
	uint64_t hidden_stride, q_stride, kv_stride;
	float *x;                  /* (batch, hidden) the residual stream */
	struct cpu_vectors normed; /* (batch, hidden) */
	struct cpu_vectors mixed;  /* (batch, heads * head_dim) attention's output */
	struct cpu_inner inner;    /* (batch * top_k) */
	float *added;              /* (batch, hidden) what the residual stream gets */
	float *q;                  /* (batch, heads * head_dim) */
	float *k, *v;              /* (batch, kv_heads * head_dim), on their way to the cache */
	float *cosines, *sines;    /* (batch, head_dim / 2) */
	float *frequencies;        /* (head_dim / 2) */

	/* A slot is one of a token's top_k choices: slot = token * top_k + rank. */
	float *routed;            /* (batch, experts) router logits */
	float *shares;            /* (batch * top_k) */
	uint32_t *chosen;         /* (batch * top_k) experts */
	uint32_t *order;          /* (batch * top_k) slots by expert */
	struct cpu_group *groups; /* (experts) those with work */
	uint32_t n_groups;
	uint32_t *needed; /* (experts) the groups' experts, ascending */
	uint64_t *used;   /* (layers, experts) how often chosen since it was asked */

	uint64_t scores_stride;
	float *logits; /* (vocabulary) */
	float *scores; /* (threads, context) */
};

/* One matrix of the trunk against columns of a batch. */
struct cpu_product {
	const struct matrix *matrix;
	uint32_t n_columns;
	const struct cpu_vectors *x;
	float *y; /* (n_columns, y_stride) */
	uint64_t y_stride;
};

#define CPU_MAX_PRODUCTS 3

/* compute_cpu.open with a kernel set of the caller's choice. */
int cpu_compute_open(struct compute **ret, const struct compute_config *config,
		     const struct cpu_kernels *kernels, struct error *err);

const uint8_t *cpu_trunk_at(const struct compute *compute, const struct matrix *matrix);
/* y = x * weight / rms(x); y may be x. */
void cpu_norm(const struct compute *compute, const struct matrix *weight, const float *x, float *y);
/* All of x's tokens to normed. */
void cpu_norm_all(struct compute *compute, const struct matrix *weight);

/* Up to CPU_MAX_PRODUCTS of them at once. */
void cpu_multiply(struct compute *compute, const struct cpu_product *products, uint32_t n_products);
/* x += attention(normed), keys and values into the cache. */
void cpu_attention(struct compute *compute);
uint64_t cpu_kv_bytes(const struct model *model, uint32_t context);
/* cos and sin of the call's positions. */
void cpu_rotation_prepare(struct compute *compute);

/* Which experts the call's tokens choose, and the groups. */
void cpu_route(struct compute *compute);
/* x += those experts(normed), which must be there. */
void cpu_experts(struct compute *compute);

#endif
