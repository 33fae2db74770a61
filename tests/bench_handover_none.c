/* A build without CUDA has no GPU to hand anything over. */
#include "tests/bench_handover.h"

#include <errno.h>
#include <stddef.h>

static int
none(struct error *err)
{
	return error_set(err, -ENODEV, "built without CUDA: there is no GPU to measure");
}

int
handover_open(struct handover **ret, void *memory, uint64_t bytes, char ret_name[128],
	      struct error *err)
{
	(void)ret;
	(void)memory;
	(void)bytes;
	(void)ret_name;
	return none(err);
}

void
handover_close(struct handover *handover)
{
	(void)handover;
}

struct handover_lines *
handover_lines_of(struct handover *handover)
{
	(void)handover;
	return NULL;
}

const char *
handover_way(uint32_t way)
{
	(void)way;
	return NULL;
}

int
handover_round(struct handover *handover, uint32_t way, uint64_t round, uint64_t read_bytes,
	       struct handover_times *ret, struct error *err)
{
	(void)handover;
	(void)way;
	(void)round;
	(void)read_bytes;
	(void)ret;
	return none(err);
}
