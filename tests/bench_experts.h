/* How fast the CPU device goes through the experts of a token, from RAM, by itself: no attention,
 * no router, no head. */
#ifndef HEARTH_TESTS_BENCH_EXPERTS_H
#define HEARTH_TESTS_BENCH_EXPERTS_H

#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"
#include "common/model.h"

/* GB/s of the bytes of all experts that one token chooses, over all layers; the median of some
 * passes.  The arena is whole. */
int bench_experts_rate(const struct arena *arena, const struct model *model, uint32_t threads,
		       double *ret_gb_s, struct error *err);

#endif
