#include "loader/room.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* A budget that fits, in whole GiB; 0: none does. */
static uint64_t
fitting_budget(const struct room_need *need, uint64_t available)
{
	uint64_t budget;

	if (need->floor == 0 || need->floor > available)
		return 0;
	budget = (available - (need->floor - need->window)) / GIB;
	return budget * GIB < need->window ? 0 : budget;
}

int
room_check(const struct room_need *need, const struct available *available, struct error *err)
{
	uint64_t budget;
	char fits[64] = "a smaller model or quant would fit";

	if (need->bytes <= available->bytes)
		return 0;
	budget = fitting_budget(need, available->bytes);
	if (budget)
		snprintf(fits, sizeof(fits), "--resident-gib %" PRIu64 " would fit", budget);
	return error_set(err, -EOVERFLOW,
			 "%s: needs %" PRIu64 " MiB of memory, %" PRIu64
			 " MiB are available (%s): %s",
			 need->model, (need->bytes + MIB - 1) / MIB, available->bytes / MIB,
			 available->limit, fits);
}
