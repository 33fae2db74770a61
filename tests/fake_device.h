/* A device that is not there: memory of this process, registration that is recorded and can be
 * refused, copies that are checked against what is registered.  Behind device.h as any other. */
#ifndef HEARTH_TESTS_FAKE_DEVICE_H
#define HEARTH_TESTS_FAKE_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/device_ops.h"

#define FAKE_CALLS 64

struct fake_call {
	const uint8_t *at;
	uint64_t bytes;
};

struct fake_device {
	struct device device; /* the one to hand out */
	uint32_t n;           /* registrations asked for, refused ones too */
	struct fake_call calls[FAKE_CALLS];
	uint32_t refuse;     /* the call of this number, from 1, and all after it; 0: none */
	const char *arena;   /* path: whether its flock was held is looked at (NULL: not) */
	uint32_t unlocked;   /* calls without it */
	uint32_t straddling; /* copies that no driver would take */
	uint64_t copied;
};

/* As a GPU: computes from its own memory, registers by itself. */
void fake_device_open(struct fake_device *fake);

#endif
