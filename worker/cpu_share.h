/* Some of a layer's experts for one token, computed by CPU threads in another device's place and
 * with its bits: orders and answers of share_record.h.  The threads look for orders while they are
 * awake, and sleep else.  One thread gives orders and wakes. */
#ifndef HEARTH_WORKER_CPU_SHARE_H
#define HEARTH_WORKER_CPU_SHARE_H

#include "worker/compute.h"
#include "worker/share_record.h"

struct cpu_share;

struct cpu_share_config {
	const struct model *model;
	const struct expert_place *places; /* (layers, experts), as the CPU reads them */
	uint32_t threads;
	struct share_order *order;   /* a multiple of 64; cpu_share_order_bytes, zeroed */
	struct share_answer *answer; /* the same; cpu_share_answer_bytes, zeroed */
};

uint64_t cpu_share_order_bytes(const struct model *model);
uint64_t cpu_share_answer_bytes(const struct model *model);

/* Whether this CPU can compute a layer's experts so; any layer's. */
bool cpu_share_layer_possible(const struct model *model, uint32_t layer);
bool cpu_share_possible(const struct model *model);

/* What the config points to stays the caller's. */
int cpu_share_open(struct cpu_share **ret, const struct cpu_share_config *config,
		   struct error *err);
void cpu_share_close(struct cpu_share *share);

/* Between wake and rest orders are answered at once.  settle, between the two: until the last order
 * is answered, which who gave it may have given up. */
void cpu_share_wake(struct cpu_share *share);
void cpu_share_settle(const struct cpu_share *share);
void cpu_share_rest(struct cpu_share *share);

uint32_t cpu_share_threads(const struct cpu_share *share);
/* Experts computed since the share was opened. */
uint64_t cpu_share_experts(const struct cpu_share *share);

#endif
