#include "tests/random_rows.h"

#include <string.h>

static uint64_t seed;

void
random_begin(uint64_t value)
{
	seed = value;
}

uint32_t
random_u32(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 32);
}

float
random_float(void)
{
	return (float)random_u32() / 0x1p31f - 1;
}

static void
put_half(uint8_t *at, float value)
{
	uint16_t half = type_float_to_half(value);

	memcpy(at, &half, 2);
}

void
random_row(const struct type_info *info, uint8_t *row, uint32_t n)
{
	for (uint32_t b = 0; b < n / info->block_elements; b++, row += info->block_bytes) {
		float value = random_float();

		for (uint32_t i = 0; i < info->block_bytes; i++)
			row[i] = (uint8_t)random_u32();
		if (info->type == TYPE_F32)
			memcpy(row, &value, 4);
		else if (info->type == TYPE_BF16)
			memcpy(row, (uint8_t *)&value + 2, 2);
		else if (info->type == TYPE_Q6_K)
			put_half(row + 208, value);
		else
			put_half(row, value);
		if (info->type == TYPE_Q4_K || info->type == TYPE_Q5_K)
			put_half(row + 2, random_float());
	}
}
