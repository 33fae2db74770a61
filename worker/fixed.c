#include "worker/fixed.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/types.h"

static float
load_half(const uint8_t *at)
{
	return type_half_to_float((uint16_t)(at[0] | at[1] << 8));
}

/* half scale; int8 quant[32] */
static void
unpack_q8_0(const uint8_t *row, uint32_t n_groups, struct fixed_weights *ret)
{
	for (uint32_t g = 0; g < n_groups; g++, row += 34) {
		ret->scale[g] = load_half(row);
		for (uint32_t i = 0; i < 32; i++)
			ret->quant[32 * g + i] = row[2 + i] ^ 128; /* plus 128 */
	}
}

/* half scale; 4 bits quant[32], low nibbles the first 16 */
static void
unpack_q4_0(const uint8_t *row, uint32_t n_groups, struct fixed_weights *ret)
{
	for (uint32_t g = 0; g < n_groups; g++, row += 18) {
		ret->scale[g] = load_half(row);
		for (uint32_t i = 0; i < 16; i++) {
			ret->quant[32 * g + i] = row[2 + i] & 15;
			ret->quant[32 * g + 16 + i] = row[2 + i] >> 4;
		}
	}
}

/* Of Q4_K and Q5_K: half scale, half minimum, then eight pairs of 6 bits in 12 bytes. */
static void
unpack_k_scales(const uint8_t *block, struct fixed_weights *ret)
{
	const uint8_t *packed = block + 4;

	for (int g = 0; g < 8; g++) {
		int scale = packed[g % 4] & 63, minimum = packed[g % 4 + 4] & 63;

		if (g >= 4) {
			scale = (packed[g + 4] & 15) | packed[g - 4] >> 6 << 4;
			minimum = packed[g + 4] >> 4 | packed[g] >> 6 << 4;
		}
		ret->scale[g] = load_half(block) * (float)scale;
		ret->minimum[g] = load_half(block + 2) * (float)minimum;
	}
}

/* 4 bits quant[256]: of each 32 bytes the low nibbles are one group, the high nibbles the next */
static void
unpack_q4_k(const uint8_t *row, uint32_t n_groups, struct fixed_weights *ret)
{
	unpack_k_scales(row, ret);
	for (uint32_t g = 0; g < n_groups; g++)
		for (uint32_t i = 0; i < 32; i++)
			ret->quant[32 * g + i] = row[16 + g / 2 * 32 + i] >> g % 2 * 4 & 15;
}

/* as Q4_K, with a fifth bit: 32 bytes whose bit g belongs to group g, before the nibbles */
static void
unpack_q5_k(const uint8_t *row, uint32_t n_groups, struct fixed_weights *ret)
{
	unpack_k_scales(row, ret);
	for (uint32_t g = 0; g < n_groups; g++)
		for (uint32_t i = 0; i < 32; i++) {
			int quant = row[48 + g / 2 * 32 + i] >> g % 2 * 4 & 15;

			ret->quant[32 * g + i] = (uint8_t)(quant | (row[16 + i] >> g & 1) << 4);
		}
}

/* 128 bytes of low nibbles, 64 of high bit pairs, int8 sub-scale[16], half scale; common/types.c
 * says which nibble and which pair are an element's */
static void
unpack_q6_k(const uint8_t *row, uint32_t n_groups, struct fixed_weights *ret)
{
	float scale = load_half(row + 208);

	for (uint32_t g = 0; g < n_groups; g++) {
		const uint8_t *low = row + g / 4 * 64 + g % 2 * 32, *high = row + 128 + g / 4 * 32;

		for (uint32_t i = 0; i < 32; i++) {
			int quant = low[i] >> g % 4 / 2 * 4 & 15;

			ret->quant[32 * g + i] = (uint8_t)(quant | (high[i] >> g % 4 * 2 & 3) << 4);
		}
	}
	for (uint32_t h = 0; h < 2 * n_groups; h++)
		ret->scale[h] = scale * (float)(int8_t)row[192 + h];
}

static const struct fixed_type types[] = {
	{ TYPE_Q8_0, FIXED_CENTRED, 128, unpack_q8_0 },
	{ TYPE_Q4_0, FIXED_CENTRED, 8, unpack_q4_0 },
	{ TYPE_Q4_K, FIXED_MINIMUM, 0, unpack_q4_k },
	{ TYPE_Q5_K, FIXED_MINIMUM, 0, unpack_q5_k },
	{ TYPE_Q6_K, FIXED_HALVES, 32, unpack_q6_k },
};

const struct fixed_type *
fixed_type_find(uint32_t type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].type == type)
			return &types[i];
	return NULL;
}

uint32_t
fixed_blocks(uint32_t n)
{
	return n / FIXED_COLUMNS + (n % FIXED_COLUMNS > 0);
}

/* The greatest |x| of a group; an infinity or a NaN if there is one. */
static float
greatest(const float *x)
{
	uint32_t most = 0;
	float ret;

	for (uint32_t i = 0; i < FIXED_GROUP; i++) {
		uint32_t bits;

		memcpy(&bits, x + i, sizeof(bits));
		bits &= 0x7fffffff;
		most = bits > most ? bits : most;
	}
	memcpy(&ret, &most, sizeof(ret));
	return ret;
}

/* The lowest digit of v: -64 to 63. */
static int32_t
digit(int32_t v)
{
	return ((v + 64) & 127) - 64;
}

static void
set_group(const float *x, float top, struct fixed_block *block, uint32_t g)
{
	float most = greatest(x);
	bool usable = isfinite(most) && most >= FIXED_LEAST;
	int32_t sums[2] = { 0, 0 };

	for (uint32_t i = 0; i < FIXED_GROUP; i++) {
		int32_t v = usable ? (int32_t)rintf(x[i] * (top / most)) : 0;
		int32_t low = digit(v), rest = (v - low) / 128, middle = digit(rest);

		block->low[32 * g + i] = (int8_t)low;
		block->middle[32 * g + i] = (int8_t)middle;
		block->high[32 * g + i] = (int8_t)((rest - middle) / 128);
		sums[i / 16] += v;
	}
	block->unit[g] = isfinite(most) ? 0 : NAN;
	if (usable)
		block->unit[g] = most / top;
	block->sum[g] = sums[0] + sums[1];
	block->base[g] = -block->unit[g] * (float)block->sum[g];
	block->halves[2 * g] = sums[0];
	block->halves[2 * g + 1] = sums[1];
}

void
fixed_set(const float *x, uint32_t first, uint32_t n, float top, struct fixed_block *ret)
{
	for (uint32_t i = 0; i < n; i += FIXED_GROUP) {
		uint32_t g = (first + i) / FIXED_GROUP;

		set_group(x + i, top, ret + g / 8, g % 8);
	}
}

/* The sum of (quant - centre) * v over 16 columns. */
static int32_t
half_sum(const struct fixed_weights *weights, int32_t centre, const struct fixed_block *x,
	 uint32_t half)
{
	int32_t sum = 0;

	for (uint32_t i = 16 * half; i < 16 * half + 16; i++)
		sum += (weights->quant[i] - centre) *
		       (x->high[i] * 16384 + x->middle[i] * 128 + x->low[i]);
	return sum;
}

/* Adds a block's groups to the 16 partial sums. */
static void
add_block(const struct fixed_type *type, const struct fixed_weights *weights, uint32_t n_groups,
	  const struct fixed_block *x, float *sums)
{
	for (uint32_t g = 0; g < n_groups; g++) {
		int32_t a = half_sum(weights, type->centre, x, 2 * g);
		int32_t b = half_sum(weights, type->centre, x, 2 * g + 1);

		if (type->kind == FIXED_HALVES) {
			sums[2 * g] += weights->scale[2 * g] * x->unit[g] * (float)a;
			sums[2 * g + 1] += weights->scale[2 * g + 1] * x->unit[g] * (float)b;
			continue;
		}
		sums[g] += weights->scale[g] * x->unit[g] * (float)(a + b);
		if (type->kind == FIXED_MINIMUM)
			sums[8 + g] += weights->minimum[g] * x->base[g];
	}
}

float
fixed_dot(const struct fixed_type *type, const uint8_t *row, uint32_t n,
	  const struct fixed_block *x)
{
	const struct type_info *info = type_find(type->type);
	float sums[16] = { 0 };

	for (uint32_t i = 0; i < n; i += FIXED_COLUMNS, x++) {
		uint32_t columns = n - i < FIXED_COLUMNS ? n - i : FIXED_COLUMNS;
		struct fixed_weights weights;

		type->unpack(row, columns / FIXED_GROUP, &weights);
		add_block(type, &weights, columns / FIXED_GROUP, x, sums);
		row += columns / info->block_elements * info->block_bytes;
	}
	for (uint32_t half = 8; half > 0; half /= 2)
		for (uint32_t i = 0; i < half; i++)
			sums[i] += sums[i + half];
	return sums[0];
}
