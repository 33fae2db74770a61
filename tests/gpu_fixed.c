#include "tests/gpu_fixed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GROUP 16u
#define HIGH 256u   /* where a block's parts begin */
#define GROUPS 512u /* 4 bytes unit, 4 bytes sum each */

static void
column_check(const uint8_t *block, uint32_t column, float x, int32_t *sum)
{
	uint32_t place = column ^ (column & 128 ? 112 : 0);
	int32_t v = (int8_t)block[place] + 256 * (int8_t)block[HIGH + place];
	float unit;

	memcpy(&unit, block + GROUPS + column / GROUP * 8, sizeof(unit));
	*sum += v;
	if (fabsf((float)v * unit - x) <= unit * 0.51f)
		return;
	fprintf(stderr, "column %u is %g, in fixed point %d of %g\n", column, (double)x, v,
		(double)unit);
	abort();
}

void
gpu_fixed_check(const struct cuda_vectors *vectors, uint64_t n, uint32_t columns)
{
	const float *row = vectors->rows.at + n * vectors->rows.stride;
	const uint8_t *blocks = vectors->fixed.at + n * vectors->fixed.stride;
	int32_t sum = 0, want;

	for (uint32_t i = 0; i < columns / GROUP * GROUP; i++) {
		const uint8_t *block = blocks + i / CUDA_FIXED_BLOCK * CUDA_FIXED_BLOCK_BYTES;
		uint32_t column = i % CUDA_FIXED_BLOCK;

		column_check(block, column, row[i], &sum);
		if (i % GROUP < GROUP - 1)
			continue;
		memcpy(&want, block + GROUPS + column / GROUP * 8 + 4, sizeof(want));
		if (sum != want) {
			fprintf(stderr, "columns up to %u add up to %d, their sum is %d\n", i, sum,
				want);
			abort();
		}
		sum = 0;
	}
}
