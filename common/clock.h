/* Nanoseconds of CLOCK_MONOTONIC: one clock for all processes of a machine. */
#ifndef HEARTH_COMMON_CLOCK_H
#define HEARTH_COMMON_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_SECOND 1000000000ull
#define NS_PER_MS 1000000ull

static inline uint64_t
clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_SECOND + (uint64_t)now.tv_nsec;
}

#endif
