/* Fixed-point products with vectors of 64 bytes; included by a set that may have defined VNNI. */
#ifndef HEARTH_WORKER_CPU_FIXED_512_H
#define HEARTH_WORKER_CPU_FIXED_512_H

#include <immintrin.h>

struct weights {
	__m512i quant[4]; /* bytes */
	__m512 scale;     /* 16, or 8 and 8 minima */
};

struct sums {
	__m512 all;
};

#include "worker/cpu_fixed_rows.h"

INLINE void
sums_begin(struct sums *sums)
{
	sums->all = _mm512_setzero_ps();
}

INLINE float
sums_total(const struct sums *sums)
{
	__m256 eight =
	    _mm256_add_ps(_mm512_castps512_ps256(sums->all), _mm512_extractf32x8_ps(sums->all, 1));
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));

	four = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

/* Sums of quant * v of each 4 of 64 columns. */
INLINE __m512i
fours(__m512i quants, const struct fixed_block *x, int at)
{
	__m512i high = _mm512_loadu_si512(x->high + at);
	__m512i middle = _mm512_loadu_si512(x->middle + at);
	__m512i low = _mm512_loadu_si512(x->low + at);
#ifdef VNNI
	__m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), quants, high);

	sums = _mm512_dpbusd_epi32(_mm512_slli_epi32(sums, 7), quants, middle);
	return _mm512_dpbusd_epi32(_mm512_slli_epi32(sums, 7), quants, low);
#else
	high = _mm512_madd_epi16(_mm512_maddubs_epi16(quants, high), _mm512_set1_epi16(16384));
	middle = _mm512_madd_epi16(_mm512_maddubs_epi16(quants, middle), _mm512_set1_epi16(128));
	low = _mm512_madd_epi16(_mm512_maddubs_epi16(quants, low), _mm512_set1_epi16(1));
	return _mm512_add_epi32(_mm512_add_epi32(high, middle), low);
#endif
}

/* Sums of each 16 columns: number h at lane h % 4 * 4 + h / 4. */
INLINE __m512i
sixteens(const struct weights *weights, const struct fixed_block *x)
{
	__m512i a = fours(weights->quant[0], x, 0), b = fours(weights->quant[1], x, 64);
	__m512i c = fours(weights->quant[2], x, 128), d = fours(weights->quant[3], x, 192);
	__m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
	__m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));

	return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* Sums of each 32 columns, in the first 8 lanes. */
INLINE __m512i
groups(__m512i sums, int odd_bits)
{
	const __m512i shifts =
	    _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(odd_bits), 1);
	const __m512i even = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0);
	const __m512i odd = _mm512_setr_epi32(4, 12, 5, 13, 6, 14, 7, 15, 0, 0, 0, 0, 0, 0, 0, 0);

	if (odd_bits) /* a sum of 32 columns might not fit */
		sums = _mm512_srav_epi32(sums, shifts);
	return _mm512_add_epi32(_mm512_permutexvar_epi32(even, sums),
				_mm512_permutexvar_epi32(odd, sums));
}

INLINE __m512
halves_terms(const struct weights *weights, const struct fixed_block *x, __m512i sums, int bits)
{
	const __m512i order =
	    _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
	__m512i centres = _mm512_slli_epi32(_mm512_loadu_si512(x->halves), bits);
	__m512 unit = _mm512_permutexvar_ps(twice, _mm512_loadu_ps(x->unit));

	sums = _mm512_sub_epi32(_mm512_permutexvar_epi32(order, sums), centres);
	return _mm512_mul_ps(_mm512_mul_ps(weights->scale, unit), _mm512_cvtepi32_ps(sums));
}

INLINE __m512
centred_terms(const struct weights *weights, const struct fixed_block *x, __m512i sums, int bits)
{
	__m256i centres = _mm256_slli_epi32(_mm256_loadu_si256((const void *)x->sum), bits);
	__m256 scale =
	    _mm256_mul_ps(_mm512_castps512_ps256(weights->scale), _mm256_loadu_ps(x->unit));
	__m256i s = _mm256_sub_epi32(_mm512_castsi512_si256(groups(sums, 0)), centres);

	return _mm512_zextps256_ps512(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(s)));
}

INLINE void
take(const struct weights *weights, const struct fixed_block *x, struct sums *sums, struct cut cut)
{
	__m512i s = sixteens(weights, x);
	__m512 terms;

	if (cut.kind == FIXED_HALVES) {
		terms = halves_terms(weights, x, s, cut.centre_bits);
	} else if (cut.kind == FIXED_CENTRED) {
		terms = centred_terms(weights, x, s, cut.centre_bits);
	} else { /* units, then the bases behind them */
		terms = _mm512_mul_ps(weights->scale, _mm512_loadu_ps(x->unit));
		terms = _mm512_mask_mul_ps(terms, 0xff, terms,
					   _mm512_cvtepi32_ps(groups(s, cut.odd_bits)));
	}
	sums->all = _mm512_add_ps(sums->all, terms);
}

/* 32 bytes' low nibbles, then their high ones. */
INLINE __m512i
nibbles(__m512i twice)
{
	const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);

	return _mm512_and_si512(_mm512_srlv_epi16(twice, shifts), _mm512_set1_epi8(15));
}

INLINE __m512i
load_twice(const uint8_t *at)
{
	return _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)at));
}

INLINE void
k_scales(const uint8_t *block, struct weights *ret)
{
	const __m256i spread =
	    _mm256_inserti128_si256(_mm256_set1_epi16(0x0100), _mm_set1_epi16(0x0302), 1);
	__m512 pairs = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(k_pairs(block)));
	int both;

	memcpy(&both, block, 4);
	ret->scale = _mm512_mul_ps(
	    _mm512_cvtph_ps(_mm256_shuffle_epi8(_mm256_set1_epi32(both), spread)), pairs);
}

INLINE void
q4_k_unpack(const uint8_t *row, struct weights *ret)
{
	const __m512i masks =
	    _mm512_inserti64x4(_mm512_set1_epi8(0x0f), _mm256_set1_epi8((char)0xf0), 1);

	k_scales(row, ret);
#pragma GCC unroll 8
	for (int i = 0; i < 4; i++)
		ret->quant[i] = _mm512_and_si512(load_twice(row + 16 + 32L * i), masks);
}

INLINE void
q5_k_unpack(const uint8_t *row, struct weights *ret)
{
	__m512i fifths = load_twice(row + 16);

	k_scales(row, ret);
#pragma GCC unroll 8
	for (int i = 0; i < 4; i++) {
		__m512i quants = nibbles(load_twice(row + 48 + 32L * i));
		__m512i bits = _mm512_inserti64x4(_mm512_set1_epi8((char)(1 << 2 * i)),
						  _mm256_set1_epi8((char)(2 << 2 * i)), 1);
		__mmask64 set = _mm512_test_epi8_mask(fifths, bits);

		ret->quant[i] = _mm512_mask_add_epi8(quants, set, quants, _mm512_set1_epi8(16));
	}
}

/* 64 quants of 6 bits: nibbles of `low`, bit pairs at bits 4 and 5 of `high`. */
INLINE __m512i
q6_k_merge(__m512i low, __m512i high)
{
	__m512i quants = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), low, high, 0xca);

	return _mm512_and_si512(quants, _mm512_set1_epi8(63));
}

INLINE void
q6_k_unpack(const uint8_t *row, struct weights *ret)
{
	const __m512i left = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
	const __m512i right = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
	__m512i scales = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(row + 192)));

	ret->scale = _mm512_mul_ps(_mm512_set1_ps(half_at(row + 208)), _mm512_cvtepi32_ps(scales));
#pragma GCC unroll 8
	for (int i = 0; i < 2; i++) {
		__m512i low = _mm512_loadu_si512(row + 64L * i);
		__m512i pairs = load_twice(row + 128 + 32L * i);

		ret->quant[2 * i] = q6_k_merge(low, _mm512_sllv_epi16(pairs, left));
		ret->quant[2 * i + 1] =
		    q6_k_merge(_mm512_srli_epi16(low, 4), _mm512_srlv_epi16(pairs, right));
	}
}

INLINE void
q8_0_unpack(const uint8_t *row, struct weights *ret)
{
	ret->scale = _mm512_zextps256_ps512(block_scales(row, 34));
#pragma GCC unroll 8
	for (int i = 0; i < 4; i++, row += 68) {
		__m256i first = _mm256_loadu_si256((const void *)(row + 2));
		__m256i second = _mm256_loadu_si256((const void *)(row + 36));
		__m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);

		ret->quant[i] = _mm512_xor_si512(both, _mm512_set1_epi8((char)128));
	}
}

INLINE void
q4_0_unpack(const uint8_t *row, struct weights *ret)
{
	const __m512i shifts =
	    _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4); /* of 64 bits: the mask drops the rest */

	ret->scale = _mm512_zextps256_ps512(block_scales(row, 18));
#pragma GCC unroll 8
	for (int i = 0; i < 4; i++, row += 36) {
		__m256i first =
		    _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(row + 2)));
		__m256i second =
		    _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(row + 20)));
		__m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);

		ret->quant[i] =
		    _mm512_and_si512(_mm512_srlv_epi64(both, shifts), _mm512_set1_epi8(15));
	}
}

#endif
