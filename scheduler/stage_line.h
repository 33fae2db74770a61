/* What a stage is doing, as one line for a person. */
#ifndef HEARTH_SCHEDULER_STAGE_LINE_H
#define HEARTH_SCHEDULER_STAGE_LINE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/state.pb-c.h"

#define STAGE_LINE_BYTES 1024

/* The figures of the stage, by which of the sub-messages it fills, and its reason if it has one. */
void stage_line(char ret[STAGE_LINE_BYTES], const Hearth__State *state, uint64_t now_ns);

/* "11.8 MB", "16.3 GiB"-like: three digits and a binary unit. */
void stage_bytes(char ret[16], uint64_t bytes);

double stage_seconds(uint64_t from_ns, uint64_t to_ns); /* 0 if either has not been yet */

/* GB/s of what was really read; 0 while nothing has been. */
double stage_read_rate(const Hearth__Reader *reader, uint64_t now_ns);

/* Seconds a GiB inside registration calls; 0 while nothing is registered. */
double stage_register_rate(const Hearth__Pinning *pinning);

#endif
