#include "tests/endpoint_follow.h"

#include <string.h>

void
endpoint_hear(void *arg, const uint8_t *bytes, size_t n)
{
	struct endpoint_heard *heard = arg;

	if (!bytes) {
		gate_pass(&heard->losses);
		return;
	}
	memcpy(heard->last, bytes, n);
	heard->last[n] = '\0';
	gate_pass(&heard->messages);
}

void
endpoint_joined(void *arg)
{
	gate_pass(&((struct endpoint_speaker *)arg)->joined);
}
