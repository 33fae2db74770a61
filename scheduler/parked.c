#include "scheduler/parked.h"

#include <assert.h>
#include <string.h>

void
parked_add(struct parked *parked, struct parked_read read)
{
	assert(parked->n < MAX_PARKED);
	parked->reads[parked->n++] = read;
}

struct parked_read
parked_take(struct parked *parked, uint32_t i)
{
	struct parked_read taken = parked->reads[i];

	parked->n--;
	memmove(&parked->reads[i], &parked->reads[i + 1], (parked->n - i) * sizeof(taken));
	return taken;
}

uint64_t
parked_deadline(const struct parked *parked)
{
	uint64_t first = 0;

	for (uint32_t i = 0; i < parked->n; i++) {
		if (!first || parked->reads[i].deadline_ns < first)
			first = parked->reads[i].deadline_ns;
	}
	return first;
}
