/* A forward whose logits are the caller's to keep; and what it says is the greatest is. */
#ifndef HEARTH_TESTS_FORWARD_COPY_H
#define HEARTH_TESTS_FORWARD_COPY_H

#include "worker/compute.h"

/* `logits` has room for the model's vocabulary; NULL: they are not asked for. */
int forward_copy(const struct compute_ops *ops, struct compute *compute, const struct model *model,
		 const uint32_t *ids, uint32_t n, uint32_t pos, float *logits, struct error *err);

#endif
