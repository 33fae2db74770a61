/* Whether there is memory for an arena. */
#ifndef HEARTH_LOADER_ROOM_H
#define HEARTH_LOADER_ROOM_H

#include <stdint.h>

#include "common/error.h"

/* -EOVERFLOW, with need and room, when an arena of `need` bytes does not fit into what
 * available_read found. */
int room_check(uint64_t need, uint64_t available, const char *model, struct error *err);

#endif
