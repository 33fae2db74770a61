/* Whether a stage stays away without which no request can be served, as the boards tell it. */
#ifndef HEARTH_SCHEDULER_AWAY_H
#define HEARTH_SCHEDULER_AWAY_H

#include <stdbool.h>

#include "common/error.h"
#include "scheduler/stack_view.h"

/* The line for a client about a stage that stays away. */
void away_explain(const Hearth__State *state, struct error *ret);

/* `states` of loader, pinner and worker as last heard, NULL: not heard now, which is no reason to
 * give up.  True: *ret says which stage, why, and what would help. */
bool away_find(Hearth__State *const states[N_STAGES], struct error *ret);

#endif
