/* Where the tokenizer comes from: the arena that a stage names on its board, looked at once. */
#ifndef HEARTH_SCHEDULER_SOURCE_H
#define HEARTH_SCHEDULER_SOURCE_H

#include <stdint.h>

#include "common/error.h"
#include "proto/state.pb-c.h"
#include "scheduler/tokenizer.h"

/* Attaches the arena, copies what is needed and lets go of it.  0: *ret is the tokenizer, or NULL
 * and `note` says why this model has none here.  -errno: the arena could not be read (its loader
 * has just gone: another will name it). */
int source_read(const Hearth__State *from, struct tokenizer **ret, struct error *note,
		struct error *err);

#endif
