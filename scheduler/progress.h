/* How far a stage that loads has come, as a bar for a terminal: share, speed and time left. */
#ifndef HEARTH_SCHEDULER_PROGRESS_H
#define HEARTH_SCHEDULER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/state.pb-c.h"

#define PROGRESS_BYTES 128
#define PROGRESS_WIDTH 30

/* "[########......]  42 % of 15.9 GiB, 1.93 GB/s, 4.8 s left".  False: the stage is not at work on
 * anything whose end is known. */
bool progress_bar(char ret[PROGRESS_BYTES], const Hearth__State *state, uint64_t now_ns);

#endif
