/* When the CPU came how far with an order.  In a build with PROBE=1 it writes that down, as the
 * kernels do (cuda_probe.cuh); in any other this is nothing. */
#ifndef HEARTH_WORKER_SHARE_PROBE_H
#define HEARTH_WORKER_SHARE_PROBE_H

#ifdef CUDA_PROBE

#include <stdint.h>

#include "common/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHARE_PROBES 256u /* layers */

/* Of a layer's last order; clock_ns(). */
struct share_probe {
	uint64_t seen;     /* the first part was taken */
	uint64_t acts;     /* all parts of gate and up were done */
	uint64_t answered; /* the answer is about to be stored */
	uint32_t experts;
};

extern struct share_probe share_probes[SHARE_PROBES];

#ifdef __cplusplus
}
#endif

/* By the one thread for which `is` is true, of an order. */
#define SHARE_PROBE(is, job, what)                                                      \
	do {                                                                            \
		struct share_probe *probe = &share_probes[(job)->layer % SHARE_PROBES]; \
		if (is) {                                                               \
			probe->what = clock_ns();                                       \
			probe->experts = (job)->n;                                      \
		}                                                                       \
	} while (0)

#else

#define SHARE_PROBE(is, job, what) (void)0

#endif
#endif
