#include "tests/random_rows.h"

#include <string.h>

static uint64_t seed;

void
random_begin(uint64_t value)
{
	seed = value;
}

static uint32_t
u32_of(uint64_t *stream)
{
	*stream = *stream * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*stream >> 32);
}

uint32_t
random_u32(void)
{
	return u32_of(&seed);
}

float
random_float_of(uint64_t *stream)
{
	return (float)(u32_of(stream) >> 8) / 0x1p23f - 1;
}

float
random_float(void)
{
	return random_float_of(&seed);
}

static void
put_half(uint8_t *at, float value)
{
	uint16_t half = type_float_to_half(value);

	memcpy(at, &half, 2);
}

void
random_row_of(uint64_t *stream, const struct type_info *info, uint8_t *row, uint32_t n)
{
	for (uint32_t b = 0; b < n / info->block_elements; b++, row += info->block_bytes) {
		float value = random_float_of(stream);

		for (uint32_t i = 0; i < info->block_bytes; i++)
			row[i] = (uint8_t)u32_of(stream);
		if (info->type == TYPE_F32)
			memcpy(row, &value, 4);
		else if (info->type == TYPE_BF16)
			memcpy(row, (uint8_t *)&value + 2, 2);
		else if (info->type == TYPE_Q6_K)
			put_half(row + 208, value);
		else
			put_half(row, value);
		if (info->type == TYPE_Q4_K || info->type == TYPE_Q5_K)
			put_half(row + 2, random_float_of(stream));
	}
}

void
random_row(const struct type_info *info, uint8_t *row, uint32_t n)
{
	random_row_of(&seed, info, row, n);
}
