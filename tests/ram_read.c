#include "tests/ram_read.h"

#define AHEAD 2048 /* bytes: beyond what the CPU fetches by itself */

/* A cache line. */
#define LINE uint64_t __attribute__((vector_size(64)))

uint64_t
ram_read(const void *at, uint64_t bytes)
{
	const LINE *from = at, *end = from + bytes / 64;
	LINE sum[4] = { { 0 } };
	uint64_t all = 0;

	for (; from < end; from += 4)
#pragma GCC unroll 4
		for (int i = 0; i < 4; i++) {
			__builtin_prefetch((const uint8_t *)(from + i) + AHEAD);
			sum[i] += from[i];
		}
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 8; k++)
			all += sum[i][k];
	return all;
}
