/* The GPU's clock beside the host's. */
#ifndef HEARTH_TESTS_BENCH_CLOCK_H
#define HEARTH_TESTS_BENCH_CLOCK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/error.h"

/* What to add to clock_ns() for the GPU's %globaltimer, and by how much that may be wrong.  The two
 * drift apart by some us a second: for moments close by. */
int bench_clock_offset(int64_t *ret_ns, uint64_t *ret_within_ns, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
