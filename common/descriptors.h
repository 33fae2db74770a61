/* How many descriptors this process may have: looked at before the first socket, where too few are
 * a hang and no error. */
#ifndef HEARTH_COMMON_DESCRIPTORS_H
#define HEARTH_COMMON_DESCRIPTORS_H

#include <stdint.h>

#include "common/error.h"

/* Of a stage: about twenty of its own, and one for each that asks it.  run.sh knows it too. */
#define STAGE_DESCRIPTORS 64u
/* Of the hearth command: ten, and six a stage that it asks. */
#define COMMAND_DESCRIPTORS 40u

/* Raises the soft limit where that is what is in the way.  -EMFILE: the line says how many `who`
 * needs. */
int descriptors_want(const char *who, uint32_t n, struct error *err);

#endif
