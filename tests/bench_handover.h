/* The GPU's side of build/bin/gpu_handover: one kernel stores a word for the CPU in each way there
 * is, the next reads host memory in place and looks for the CPU's answer.  Without CUDA: -ENODEV.
 */
#ifndef HEARTH_TESTS_BENCH_HANDOVER_H
#define HEARTH_TESTS_BENCH_HANDOVER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "common/error.h"

#define HANDOVER_PAYLOAD 512u /* words: as much as an order has with it */

/* What the two see, in host memory; a word and what lies beside it in two lines of its own. */
struct handover_lines {
	uint64_t order[16]; /* the GPU's: number of the round */
	uint64_t answer[16];
	uint64_t payload[HANDOVER_PAYLOAD]; /* written before the order: the same number */
};

/* Of a round, by the GPU's clock, in ns. */
struct handover_times {
	uint64_t stored; /* the order: just before */
	uint64_t seen;   /* the answer; 0: not within the limit */
	uint64_t read;   /* the last block had read its part; 0: nothing was to be read */
};

struct handover;

/* memory: to be read in place; registered here, and let go by close. */
int handover_open(struct handover **ret, void *memory, uint64_t bytes, char ret_name[128],
		  struct error *err);
void handover_close(struct handover *handover);

struct handover_lines *handover_lines_of(struct handover *handover);

/* The ways to store, by number; NULL: no more. */
const char *handover_way(uint32_t way);

/* Stores `round` that way, with the reads right behind it, and waits for all of it.  Ends within a
 * fraction of a second, answered or not. */
int handover_round(struct handover *handover, uint32_t way, uint64_t round, uint64_t read_bytes,
		   struct handover_times *ret, struct error *err);

#ifdef __cplusplus
}
#endif
#endif
