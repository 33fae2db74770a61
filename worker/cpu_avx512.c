/* Vectors of 16 floats.  Quants of 4 and 5 bits are looked up in a table of the sub-block's 16 or
 * 32 values (scale * quant - minimum), whose index instruction ignores the bits above: no masking
 * and no conversion.  All values equal those of common/types.c. */
#include "worker/cpu_kernels.h"

#include <immintrin.h>

#define VEC __m512
#define LANES 16
#define FUSED_COLUMNS 4

#define vec_zero _mm512_setzero_ps
#define vec_all _mm512_set1_ps
#define vec_load _mm512_loadu_ps
#define vec_store _mm512_storeu_ps
#define vec_fma _mm512_fmadd_ps
#define vec_add _mm512_add_ps
#define vec_sum _mm512_reduce_add_ps

#include "worker/cpu_rows.h"

/* The 32-bit lane numbers, 0 to 15. */
#define IOTA _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

INLINE float
load_half(const uint8_t *at)
{
	return _cvtsh_ss((uint16_t)(at[0] | at[1] << 8));
}

/* 16 bytes, each in a lane of its own. */
INLINE __m512i
load_bytes(const uint8_t *at)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)at));
}

INLINE VEC
lookup(__m512i index, VEC table)
{
	return _mm512_permutexvar_ps(index, table);
}

INLINE void
f16_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += UNIT * 2) {
		const __m256i *at = (const void *)row;

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		take(lanes, mode, _mm512_cvtph_ps(_mm256_loadu_si256(at)),
		     _mm512_cvtph_ps(_mm256_loadu_si256(at + 1)),
		     _mm512_cvtph_ps(_mm256_loadu_si256(at + 2)),
		     _mm512_cvtph_ps(_mm256_loadu_si256(at + 3)));
	}
}

INLINE VEC
load_bf16(const uint8_t *at)
{
	__m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)at));

	return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

INLINE void
bf16_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += UNIT * 2) {
		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		take(lanes, mode, load_bf16(row), load_bf16(row + 32), load_bf16(row + 64),
		     load_bf16(row + 96));
	}
}

INLINE VEC
load_signed(const void *at)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at)));
}

/* The scales of two blocks, one behind the other. */
INLINE void
load_scales(const uint8_t *first, const uint8_t *second, float *ret)
{
	uint32_t both = first[0] | first[1] << 8 | second[0] << 16 | (uint32_t)second[1] << 24;

	_mm_storeu_ps(ret, _mm_cvtph_ps(_mm_cvtsi32_si128((int)both)));
}

INLINE void
q8_0_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += 68) { /* two blocks */
		float scales[4];

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		load_scales(row, row + 34, scales);
		take(lanes, mode, _mm512_mul_ps(load_signed(row + 2), vec_all(scales[0])),
		     _mm512_mul_ps(load_signed(row + 18), vec_all(scales[0])),
		     _mm512_mul_ps(load_signed(row + 36), vec_all(scales[1])),
		     _mm512_mul_ps(load_signed(row + 52), vec_all(scales[1])));
	}
}

INLINE void
q4_0_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	const VEC values = _mm512_sub_ps(IOTA, vec_all(8));

	for (; n_units > 0; n_units--, row += 36) { /* two blocks */
		__m512i q0 = load_bytes(row + 2), q1 = load_bytes(row + 20);
		float scales[4];
		VEC table0, table1;

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		load_scales(row, row + 18, scales);
		table0 = _mm512_mul_ps(values, vec_all(scales[0]));
		table1 = _mm512_mul_ps(values, vec_all(scales[1]));
		take(lanes, mode, lookup(q0, table0), lookup(_mm512_srli_epi32(q0, 4), table0),
		     lookup(q1, table1), lookup(_mm512_srli_epi32(q1, 4), table1));
	}
}

/* Of a Q4_K or Q5_K block: 8 scales, then 8 minimums, both times the block's halves.  The 6-bit
 * pairs are packed as common/types.c says, four to a word. */
INLINE void
k_scales_load(const uint8_t *block, float *ret)
{
	const __m512i spread = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
	VEC halves = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_loadl_epi64((const void *)block)));
	uint32_t a, b, c;
	uint64_t scale, minimum;

	memcpy(&a, block + 4, 4);
	memcpy(&b, block + 8, 4);
	memcpy(&c, block + 12, 4);
	scale = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)) << 32;
	minimum = (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030))
					 << 32;
	vec_store(ret, _mm512_mul_ps(_mm512_permutexvar_ps(spread, halves),
				     _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(
					 _mm_set_epi64x((long long)minimum, (long long)scale)))));
}

/* What 16 quants of sub-block j stand for. */
INLINE VEC
k_table(const float *scales, int j, VEC quants)
{
	return _mm512_fmsub_ps(quants, vec_all(scales[j]), vec_all(scales[8 + j]));
}

INLINE void
q4_k_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	const VEC quants = IOTA;

	for (; n_units > 0; n_units -= 4, row += 144) {
		float scales[16];

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		_mm_prefetch(row + PREFETCH_BYTES + 64, _MM_HINT_T0);
		k_scales_load(row, scales);
		for (int j = 0; j < 8; j += 2) {
			VEC table0 = k_table(scales, j, quants);
			VEC table1 = k_table(scales, j + 1, quants);
			__m512i q0 = load_bytes(row + 16 + 16 * j);
			__m512i q1 = load_bytes(row + 32 + 16 * j);

			take(lanes, mode, lookup(q0, table0), lookup(q1, table0),
			     lookup(_mm512_srli_epi32(q0, 4), table1),
			     lookup(_mm512_srli_epi32(q1, 4), table1));
		}
	}
}

/* Four low bits from `low`, the fifth from bit 4 of `high`. */
INLINE VEC
lookup_5(__m512i low, __m512i high, VEC table_low, VEC table_high)
{
	const __m512i nibble = _mm512_set1_epi32(15);
	__m512i index =
	    _mm512_ternarylogic_epi32(nibble, low, high, 0xca); /* nibble ? low : high */

	return _mm512_permutex2var_ps(table_low, index, table_high);
}

INLINE void
q5_k_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	const VEC quants = IOTA, quants16 = _mm512_add_ps(quants, vec_all(16));

	for (; n_units > 0; n_units -= 4, row += 176) {
		__m512i high0 = _mm512_slli_epi32(load_bytes(row + 16), 4);
		__m512i high1 = _mm512_slli_epi32(load_bytes(row + 32), 4);
		float scales[16];

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		_mm_prefetch(row + PREFETCH_BYTES + 64, _MM_HINT_T0);
		k_scales_load(row, scales);
		for (int j = 0; j < 8; j += 2) {
			VEC table0 = k_table(scales, j, quants);
			VEC table0h = k_table(scales, j, quants16);
			VEC table1 = k_table(scales, j + 1, quants);
			VEC table1h = k_table(scales, j + 1, quants16);
			__m512i q0 = load_bytes(row + 48 + 16 * j);
			__m512i q1 = load_bytes(row + 64 + 16 * j);
			VEC w0 = lookup_5(q0, high0, table0, table0h);
			VEC w1 = lookup_5(q1, high1, table0, table0h);
			VEC w2 = lookup_5(_mm512_srli_epi32(q0, 4), _mm512_srli_epi32(high0, 1),
					  table1, table1h);
			VEC w3 = lookup_5(_mm512_srli_epi32(q1, 4), _mm512_srli_epi32(high1, 1),
					  table1, table1h);

			take(lanes, mode, w0, w1, w2, w3);
			high0 = _mm512_srli_epi32(high0, 2);
			high1 = _mm512_srli_epi32(high1, 2);
		}
	}
}

/* 64 quants of 6 bits: nibbles of `low`, bit pairs at bits 4 and 5 of `high`. */
INLINE void
q6_k_merge(__m512i low, __m512i high, uint8_t *ret)
{
	const __m512i nibble = _mm512_set1_epi8(15), all = _mm512_set1_epi8(63);
	__m512i quants = _mm512_ternarylogic_epi32(nibble, low, high, 0xca);

	_mm512_storeu_si512(ret, _mm512_and_si512(quants, all));
}

/* scale * (quant - 32) as one fused step: exact up to its one rounding, as the product is.
 * scales: 16, then each times -32. */
INLINE VEC
q6_k_values(const uint8_t *quants, const float *scales)
{
	return _mm512_fmadd_ps(_mm512_cvtepi32_ps(load_bytes(quants)), vec_all(scales[0]),
			       vec_all(scales[16]));
}

INLINE void
q6_k_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units -= 4, row += 210) {
		uint8_t quants[128];
		float scales[32];
		VEC scale = vec_all(load_half(row + 208));

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		_mm_prefetch(row + PREFETCH_BYTES + 64, _MM_HINT_T0);
		_mm_prefetch(row + PREFETCH_BYTES + 128, _MM_HINT_T0);
		scale = _mm512_mul_ps(scale, load_signed(row + 192));
		vec_store(scales, scale);
		vec_store(scales + 16, _mm512_mul_ps(scale, vec_all(-32)));
		for (int half = 0; half < 2; half++) {
			__m512i low = _mm512_loadu_si512(row + 64 * half);
			__m256i pairs = _mm256_loadu_si256((const void *)(row + 128 + 32 * half));
			__m512i high01 =
			    _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_slli_epi16(pairs, 4)),
					       _mm256_slli_epi16(pairs, 2), 1);
			__m512i high23 = _mm512_inserti64x4(_mm512_castsi256_si512(pairs),
							    _mm256_srli_epi16(pairs, 2), 1);

			q6_k_merge(low, high01, quants);
			q6_k_merge(_mm512_srli_epi16(low, 4), high23, quants + 64);
			for (int j = 0; j < 8; j += 4)
				take(lanes, mode,
				     q6_k_values(quants + 16 * j, scales + 8 * half + j),
				     q6_k_values(quants + 16 * j + 16, scales + 8 * half + j + 1),
				     q6_k_values(quants + 16 * j + 32, scales + 8 * half + j + 2),
				     q6_k_values(quants + 16 * j + 48, scales + 8 * half + j + 3));
		}
	}
}

DOT_FUNCTION(f16, TYPE_F16, UNIT * 2)
DOT_FUNCTION(bf16, TYPE_BF16, UNIT * 2)
DOT_FUNCTION(q8_0, TYPE_Q8_0, 68)
DOT_FUNCTION(q4_0, TYPE_Q4_0, 36)
DOT_FUNCTION(q4_k, TYPE_Q4_K, 36)
DOT_FUNCTION(q5_k, TYPE_Q5_K, 44)
DOT_FUNCTION(q6_k, TYPE_Q6_K, 0) /* never a rest: a block is whole units */

const struct cpu_kernels cpu_kernels_avx512 = {
	.name = "avx512",
	.types = { { TYPE_F32, dot_f32 },
		   { TYPE_F16, dot_f16 },
		   { TYPE_BF16, dot_bf16 },
		   { TYPE_Q8_0, dot_q8_0 },
		   { TYPE_Q4_0, dot_q4_0 },
		   { TYPE_Q4_K, dot_q4_k },
		   { TYPE_Q5_K, dot_q5_k },
		   { TYPE_Q6_K, dot_q6_k } },
	.mix = mix,
};
