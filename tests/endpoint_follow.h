/* Who publishes and who follows, in the tests of common/endpoint.h. */
#ifndef HEARTH_TESTS_ENDPOINT_FOLLOW_H
#define HEARTH_TESTS_ENDPOINT_FOLLOW_H

#include <stddef.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

struct endpoint_heard {
	struct gate messages, losses;
	char last[16];
};

/* A follower's fn; arg is the struct endpoint_heard. */
void endpoint_hear(void *arg, const uint8_t *bytes, size_t n);

struct endpoint_speaker {
	struct publisher *publisher;
	struct gate joined;
};

/* A publisher's; arg is the struct endpoint_speaker. */
void endpoint_joined(void *speaker);

#endif
