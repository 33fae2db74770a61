#include "loader/room.h"

#include <errno.h>
#include <inttypes.h>

int
room_check(uint64_t need, uint64_t available, const char *model, struct error *err)
{
	if (need <= available)
		return 0;
	return error_set(err, -EOVERFLOW,
			 "%s: needs %" PRIu64 " MiB of memory, %" PRIu64
			 " MiB are available: a smaller model or quant would fit",
			 model, (need + (1u << 20) - 1) >> 20, available >> 20);
}
