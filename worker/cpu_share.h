/* Some of a layer's experts for one token, computed by CPU threads of its own beside another
 * device: what a caller adds to what that device computes.  Not for several callers at once. */
#ifndef HEARTH_WORKER_CPU_SHARE_H
#define HEARTH_WORKER_CPU_SHARE_H

#include "worker/compute.h"

struct cpu_share;

/* The model stays the caller's.  threads: the calling one among them. */
int cpu_share_open(struct cpu_share **ret, const struct model *model, uint32_t threads,
		   struct error *err);
void cpu_share_close(struct cpu_share *share);

/* out[0..hidden-1] = the sum of weights[i] * expert i (x), in the order of i; x: hidden floats,
 * normed; n: 1 to the model's top_k.  The bits depend on neither threads nor places. */
void cpu_share_run(struct cpu_share *share, uint32_t layer, const float *x,
		   const struct expert_place *const *places, const float *weights, uint32_t n,
		   float *out);

#endif
