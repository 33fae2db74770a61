/* A stack's view as JSON, for programs. */
#ifndef HEARTH_SCHEDULER_STACK_JSON_H
#define HEARTH_SCHEDULER_STACK_JSON_H

#include <jansson.h>

#include "scheduler/stack_view.h"

/* name, model, stages (by name: state, pid, since, reason, and the stage's own figures) and slices
 * (name, state, bytes, checksum).  The caller drops it with json_decref; NULL: no memory. */
json_t *stack_json(const struct stack_view *view);

/* 64 bits as 16 hexadecimal digits (a JSON number holds 53). */
json_t *stack_json_hex(uint64_t value);

#endif
