/* How much memory there is for an arena: the tightest of what the machine can give without swapping
 * and what every control group up the tree still allows. */
#ifndef HEARTH_LOADER_ROOM_H
#define HEARTH_LOADER_ROOM_H

#include <stdint.h>

#include "common/error.h"

/* `proc` and `cgroup` are where those file systems are mounted.  UINT64_MAX: nothing says. */
uint64_t room_available(const char *proc, const char *cgroup);

/* -EOVERFLOW, with need and room, when an arena of `need` bytes does not fit. */
int room_check(uint64_t need, uint64_t available, const char *model, struct error *err);

#endif
