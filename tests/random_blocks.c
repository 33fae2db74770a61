#include "tests/random_blocks.h"

#include <assert.h>
#include <string.h>

#include "common/types.h"

static uint64_t
random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static void
random_fill(uint64_t *state, uint8_t *to, size_t n)
{
	uint64_t value;

	for (size_t i = 0; i < n; i += sizeof(value)) {
		value = random_next(state);
		memcpy(to + i, &value, n - i < sizeof(value) ? n - i : sizeof(value));
	}
}

/* d, dmin, 12 bytes of scales, 128 of quants.  Scale and minimum of a sub-block are the same number
 * and dmin is 7.5 d, so that a weight is d * scale * (quant - 7.5): around 0. */
static void
random_q4_k(uint64_t *state, uint8_t *block, float deviation)
{
	uint16_t d = type_float_to_half(deviation / 169), dmin;
	uint8_t scales[8];

	dmin = type_float_to_half(7.5f * type_half_to_float(d));
	random_fill(state, block, 144);
	random_fill(state, scales, sizeof(scales));
	memcpy(block, &d, 2);
	memcpy(block + 2, &dmin, 2);
	for (int i = 0; i < 4; i++) {
		block[4 + i] = block[8 + i] = scales[i];
		block[12 + i] = (uint8_t)((scales[4 + i] & 15) * 17);
	}
}

/* 128 low and 64 high bytes of quants, 16 signed scales, d. */
static void
random_q6_k(uint64_t *state, uint8_t *block, float deviation)
{
	uint16_t d = type_float_to_half(deviation / 1366);

	random_fill(state, block, 208);
	memcpy(block + 208, &d, 2);
}

static void
random_f32(uint64_t *state, uint8_t *to, float middle, float deviation)
{
	float value = (float)(random_next(state) >> 40) * 0x1p-24f;

	value = middle + deviation * 1.732f * (2 * value - 1);
	memcpy(to, &value, sizeof(value));
}

void
random_blocks(uint8_t *to, uint64_t n, uint32_t type, float middle, float deviation,
	      uint64_t stream)
{
	uint64_t step = type_find(type)->block_bytes;

	assert(type == TYPE_F32 || type == TYPE_Q4_K || type == TYPE_Q6_K);
	for (uint64_t i = 0; i < n; i += step) {
		if (type == TYPE_Q4_K)
			random_q4_k(&stream, to + i, deviation);
		else if (type == TYPE_Q6_K)
			random_q6_k(&stream, to + i, deviation);
		else
			random_f32(&stream, to + i, middle, deviation);
	}
}
