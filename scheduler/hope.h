/* Whether a scheduler that does not answer may come back, as the runtime folder tells it. */
#ifndef HEARTH_SCHEDULER_HOPE_H
#define HEARTH_SCHEDULER_HOPE_H

#include <stdbool.h>

#include "common/error.h"

/* Somebody starts what leaves: run.sh's control is there. */
bool hope_supervised(const char *dir);

/* 0: it may.  -ENOTCONN: it will not, and the line says why and what would help.  `supervised` as
 * it was at the begin: a scheduler started by hand may come back any time. */
int hope_look(const char *dir, bool supervised, struct error *err);

#endif
