/* Whether there is memory for an arena, and what would fit where there is not. */
#ifndef HEARTH_LOADER_ROOM_H
#define HEARTH_LOADER_ROOM_H

#include <stdint.h>

#include "common/error.h"
#include "loader/available.h"

struct room_need {
	const char *model; /* for the message */
	uint64_t bytes;    /* of the whole arena */
	uint64_t floor;    /* of them: what is needed with no expert resident at all; 0: unknown */
	uint64_t window;   /* of the floor: what a budget must cover */
};

/* -EOVERFLOW, with need, room and the option that fits, when the arena does not. */
int room_check(const struct room_need *need, const struct available *available, struct error *err);

#endif
