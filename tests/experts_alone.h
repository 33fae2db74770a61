/* Some of a layer's experts for one token, computed by CPU threads of its own beside another
 * device: what a caller adds to what that device computes.  Not for several callers at once. */
#ifndef HEARTH_TESTS_EXPERTS_ALONE_H
#define HEARTH_TESTS_EXPERTS_ALONE_H

#include "worker/compute.h"

struct experts_alone;

/* The model stays the caller's.  threads: the calling one among them. */
int experts_alone_open(struct experts_alone **ret, const struct model *model, uint32_t threads,
		       struct error *err);
void experts_alone_close(struct experts_alone *alone);

/* out[0..hidden-1] = the sum of weights[i] * expert i (x), in the order of i; x: hidden floats,
 * normed; n: 1 to the model's top_k.  The bits depend on neither threads nor places. */
void experts_alone_run(struct experts_alone *alone, uint32_t layer, const float *x,
		       const struct expert_place *const *places, const float *weights, uint32_t n,
		       float *out);

#endif
