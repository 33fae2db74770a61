/* Unpacking of tensor types.  Every value is computed in float32 in the order of operations of the
 * reference (scale times sub-scale first, then times the quant, then minus the minimum), so that
 * results are equal to it bit for bit.  Hosts are little-endian, as the files are. */
#include "common/types.h"

#include <string.h>

#include "common/checked.h"

static uint16_t
load_u16(const uint8_t *at)
{
	return (uint16_t)(at[0] | at[1] << 8);
}

static float
bits_to_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static uint32_t
float_to_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static float
load_half(const uint8_t *at)
{
	return type_half_to_float(load_u16(at));
}

float
type_half_to_float(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t exponent = (half >> 10) & 31;
	uint32_t mantissa = half & 1023;

	if (exponent == 31) /* infinity; a NaN becomes quiet and keeps its payload */
		return bits_to_float(sign | 0x7f800000 | mantissa << 13 |
				     (mantissa ? 0x400000 : 0));
	if (exponent == 0) { /* zero or mantissa * 2^-24, which float32 holds exactly */
		float value = (float)mantissa * 0x1p-24f;

		return sign ? -value : value;
	}
	return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t
type_float_to_half(float value)
{
	uint32_t bits = float_to_bits(value);
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t rest = bits & 0x7fffffff;

	if (rest > 0x7f800000) /* NaN: quiet, with what payload fits */
		return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
	if (rest >= 0x477ff000) /* rounds to more than 65504 */
		return sign | 0x7c00;
	if (rest < 0x38800000) { /* subnormal: the addition rounds to multiples of 2^-24 */
		float shifted = bits_to_float(rest) + 0.5f;

		return (uint16_t)(sign | (float_to_bits(shifted) - 0x3f000000));
	}
	rest += 0xfff + (rest >> 13 & 1);
	return (uint16_t)(sign | (rest - 0x38000000) >> 13);
}

static void
unpack_f32(const void *in, float *out, size_t blocks)
{
	memcpy(out, in, blocks * sizeof(float));
}

static void
unpack_f16(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (size_t i = 0; i < blocks; i++)
		out[i] = load_half(at + 2 * i);
}

static void
unpack_bf16(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (size_t i = 0; i < blocks; i++)
		out[i] = bits_to_float((uint32_t)load_u16(at + 2 * i) << 16);
}

/* half scale; int8 quant[32] */
static void
unpack_q8_0(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (; blocks > 0; blocks--, at += 34, out += 32) {
		float scale = load_half(at);

		for (int i = 0; i < 32; i++)
			out[i] = scale * (float)(int8_t)at[2 + i];
	}
}

/* half scale; 4 bits quant[32], low nibbles the first 16 */
static void
unpack_q4_0(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (; blocks > 0; blocks--, at += 18, out += 32) {
		float scale = load_half(at);

		for (int i = 0; i < 16; i++) {
			out[i] = scale * (float)((at[2 + i] & 15) - 8);
			out[i + 16] = scale * (float)((at[2 + i] >> 4) - 8);
		}
	}
}

/* Scale and minimum of sub-block j (0..7): 6 bits each, packed in 12 bytes. */
static void
k_scale_min(const uint8_t *packed, int j, float *ret_scale, float *ret_min)
{
	int scale = packed[j] & 63, minimum = packed[j + 4] & 63;

	if (j >= 4) {
		scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
		minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
	}
	*ret_scale = (float)scale;
	*ret_min = (float)minimum;
}

/* half scale, half minimum; 12 bytes of sub-scales; 4 bits quant[256]: of each 32 bytes the low
 * nibbles are one sub-block of 32, the high nibbles the next */
static void
unpack_q4_k(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (; blocks > 0; blocks--, at += 144) {
		for (int j = 0; j < 8; j++, out += 32) {
			const uint8_t *quants = at + 16 + j / 2 * 32L;
			int shift = j % 2 * 4;
			float scale, minimum;

			k_scale_min(at + 4, j, &scale, &minimum);
			scale *= load_half(at);
			minimum *= load_half(at + 2);
			for (int i = 0; i < 32; i++)
				out[i] = scale * (float)(quants[i] >> shift & 15) - minimum;
		}
	}
}

/* as Q4_K, with a fifth bit: 32 bytes whose bit j belongs to sub-block j, before the nibbles */
static void
unpack_q5_k(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (; blocks > 0; blocks--, at += 176) {
		for (int j = 0; j < 8; j++, out += 32) {
			const uint8_t *high = at + 16;
			const uint8_t *quants = at + 48 + j / 2 * 32L;
			int shift = j % 2 * 4;
			float scale, minimum;

			k_scale_min(at + 4, j, &scale, &minimum);
			scale *= load_half(at);
			minimum *= load_half(at + 2);
			for (int i = 0; i < 32; i++) {
				int quant = (quants[i] >> shift & 15) | (high[i] >> j & 1) << 4;

				out[i] = scale * (float)quant - minimum;
			}
		}
	}
}

/* 128 bytes of low nibbles, 64 of high bit pairs, int8 sub-scale[16], half scale.  Of each half of
 * 128 elements: element 32 k + i has nibble k / 2 of byte 32 (k % 2) + i and bit pair k of byte i
 */
static void
unpack_q6_k(const void *in, float *out, size_t blocks)
{
	const uint8_t *at = in;

	for (; blocks > 0; blocks--, at += 210) {
		float scale = load_half(at + 208);

		for (int j = 0; j < 8; j++, out += 32) {
			int half = j / 4, k = j % 4;
			const uint8_t *low = at + half * 64L + k % 2 * 32L;
			const uint8_t *high = at + 128 + half * 32L;

			for (int i = 0; i < 32; i++) {
				float sub = scale * (float)(int8_t)at[192 + j * 2 + i / 16];
				int quant = low[i] >> k / 2 * 4 & 15;

				quant |= (high[i] >> 2 * k & 3) << 4;
				out[i] = sub * (float)(quant - 32);
			}
		}
	}
}

/* name, elements and bytes of a block, unpacking function */
#define TYPES(X)                       \
	X(F32, 1, 4, unpack_f32)       \
	X(F16, 1, 2, unpack_f16)       \
	X(BF16, 1, 2, unpack_bf16)     \
	X(Q8_0, 32, 34, unpack_q8_0)   \
	X(Q4_0, 32, 18, unpack_q4_0)   \
	X(Q4_K, 256, 144, unpack_q4_k) \
	X(Q5_K, 256, 176, unpack_q5_k) \
	X(Q6_K, 256, 210, unpack_q6_k)

#define TYPE_LINE(name, elements, bytes, unpack) { TYPE_##name, #name, elements, bytes, unpack },
#define TYPE_NAME(name, elements, bytes, unpack) ", " #name

static const struct type_info types[] = { TYPES(TYPE_LINE) };

const struct type_info *
type_find(uint32_t type)
{
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].type == type)
			return &types[i];
	return NULL;
}

const char *
type_supported_names(void)
{
	static const char names[] = TYPES(TYPE_NAME);

	return names + 2; /* after the first ", " */
}

bool
type_row_bytes(const struct type_info *info, uint64_t columns, uint64_t *ret)
{
	uint64_t bytes;

	if (columns % info->block_elements != 0 ||
	    !checked_mul(columns / info->block_elements, info->block_bytes, &bytes))
		return false;
	*ret = bytes;
	return true;
}
