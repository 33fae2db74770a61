/* Fixed-point products with vectors of 32 bytes; included by a set that may have defined VNNI. */
#ifndef HEARTH_WORKER_CPU_FIXED_256_H
#define HEARTH_WORKER_CPU_FIXED_256_H

#include <immintrin.h>

struct weights {
	__m256i quant[8]; /* bytes */
	__m256 scale[2];  /* 16, or 8 and 8 minima */
};

struct sums {
	__m256 first, second;
};

#include "worker/cpu_fixed_rows.h"

INLINE void
sums_begin(struct sums *sums)
{
	sums->first = sums->second = _mm256_setzero_ps();
}

INLINE float
sums_total(const struct sums *sums)
{
	__m256 eight = _mm256_add_ps(sums->first, sums->second);
	__m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));

	four = _mm_add_ps(four, _mm_movehl_ps(four, four));
	return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

/* Sums of quant * v of each 4 of 32 columns. */
INLINE __m256i
fours(__m256i quants, const struct fixed_block *x, int group)
{
	__m256i high = _mm256_loadu_si256((const void *)(x->high + 32L * group));
	__m256i middle = _mm256_loadu_si256((const void *)(x->middle + 32L * group));
	__m256i low = _mm256_loadu_si256((const void *)(x->low + 32L * group));
#ifdef VNNI
	__m256i sums = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), quants, high);

	sums = _mm256_dpbusd_avx_epi32(_mm256_slli_epi32(sums, 7), quants, middle);
	return _mm256_dpbusd_avx_epi32(_mm256_slli_epi32(sums, 7), quants, low);
#else
	high = _mm256_madd_epi16(_mm256_maddubs_epi16(quants, high), _mm256_set1_epi16(16384));
	middle = _mm256_madd_epi16(_mm256_maddubs_epi16(quants, middle), _mm256_set1_epi16(128));
	low = _mm256_madd_epi16(_mm256_maddubs_epi16(quants, low), _mm256_set1_epi16(1));
	return _mm256_add_epi32(_mm256_add_epi32(high, middle), low);
#endif
}

/* Sums of each 16 columns of 4 groups: those of their first halves, then of their second ones. */
INLINE __m256i
sixteens(const struct weights *weights, const struct fixed_block *x, int first)
{
	__m256i a = fours(weights->quant[first], x, first);
	__m256i b = fours(weights->quant[first + 1], x, first + 1);
	__m256i c = fours(weights->quant[first + 2], x, first + 2);
	__m256i d = fours(weights->quant[first + 3], x, first + 3);

	return _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
}

/* Of 8 halves from `first` on. */
INLINE __m256
halves_terms(__m256 scale, const struct fixed_block *x, __m256i sums, int first, int bits)
{
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
	__m256i centres = _mm256_loadu_si256((const void *)(x->halves + first));
	__m256 unit = _mm256_castps128_ps256(_mm_loadu_ps(x->unit + first / 2));

	sums = _mm256_permutevar8x32_epi32(sums, order);
	sums = _mm256_sub_epi32(sums, _mm256_slli_epi32(centres, bits));
	scale = _mm256_mul_ps(scale, _mm256_permutevar8x32_ps(unit, twice));
	return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(sums));
}

INLINE void
take(const struct weights *weights, const struct fixed_block *x, struct sums *sums, struct cut cut)
{
	const __m256i shifts = _mm256_set1_epi64x((long long)cut.odd_bits << 32);
	__m256i a = sixteens(weights, x, 0), b = sixteens(weights, x, 4), s, centres;
	__m256 scale;

	if (cut.kind == FIXED_HALVES) {
		sums->first = _mm256_add_ps(
		    sums->first, halves_terms(weights->scale[0], x, a, 0, cut.centre_bits));
		sums->second = _mm256_add_ps(
		    sums->second, halves_terms(weights->scale[1], x, b, 8, cut.centre_bits));
		return;
	}
	if (cut.odd_bits) { /* a sum of 32 columns might not fit */
		a = _mm256_srav_epi32(a, shifts);
		b = _mm256_srav_epi32(b, shifts);
	}
	s = _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
			     _mm256_permute2x128_si256(a, b, 0x31));
	if (cut.kind == FIXED_CENTRED) {
		centres = _mm256_loadu_si256((const void *)x->sum);
		s = _mm256_sub_epi32(s, _mm256_slli_epi32(centres, cut.centre_bits));
	} else {
		sums->second = _mm256_add_ps(
		    sums->second, _mm256_mul_ps(weights->scale[1], _mm256_loadu_ps(x->base)));
	}
	scale = _mm256_mul_ps(weights->scale[0], _mm256_loadu_ps(x->unit));
	sums->first = _mm256_add_ps(sums->first, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(s)));
}

INLINE __m256i
load_32(const uint8_t *at)
{
	return _mm256_loadu_si256((const void *)at);
}

INLINE __m256i
low_nibbles(__m256i bytes)
{
	return _mm256_and_si256(bytes, _mm256_set1_epi8(15));
}

INLINE void
k_scales(const uint8_t *block, struct weights *ret)
{
	__m128i pairs = k_pairs(block);
	__m256i scales = _mm256_cvtepu8_epi32(pairs);
	__m256i minima = _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(pairs, pairs));

	ret->scale[0] = _mm256_mul_ps(_mm256_set1_ps(half_at(block)), _mm256_cvtepi32_ps(scales));
	ret->scale[1] =
	    _mm256_mul_ps(_mm256_set1_ps(half_at(block + 2)), _mm256_cvtepi32_ps(minima));
}

INLINE void
q4_k_unpack(const uint8_t *row, struct weights *ret)
{
	k_scales(row, ret);
#pragma GCC unroll 8
	for (int i = 0; i < 4; i++) {
		__m256i bytes = load_32(row + 16 + 32L * i);

		ret->quant[2 * i] = low_nibbles(bytes);
		ret->quant[2 * i + 1] = _mm256_andnot_si256(_mm256_set1_epi8(15), bytes);
	}
}

/* The fifth bit of group g at its place beside a nibble. */
INLINE __m256i
with_fifth(__m256i nibble, __m256i fifths, int g)
{
	__m256i bit = _mm256_set1_epi8((char)(1 << g));
	__m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(fifths, bit), bit);

	return _mm256_or_si256(nibble, _mm256_and_si256(set, _mm256_set1_epi8(16)));
}

INLINE void
q5_k_unpack(const uint8_t *row, struct weights *ret)
{
	__m256i fifths = load_32(row + 16);

	k_scales(row, ret);
#pragma GCC unroll 8
	for (int i = 0; i < 4; i++) {
		__m256i bytes = load_32(row + 48 + 32L * i);
		__m256i high = low_nibbles(_mm256_srli_epi16(bytes, 4));

		ret->quant[2 * i] = with_fifth(low_nibbles(bytes), fifths, 2 * i);
		ret->quant[2 * i + 1] = with_fifth(high, fifths, 2 * i + 1);
	}
}

/* A nibble and, at bits 4 and 5, its bit pair; what is around them is dropped. */
INLINE __m256i
q6_k_merge(__m256i nibbles, __m256i pairs)
{
	pairs = _mm256_and_si256(pairs, _mm256_set1_epi8(0x30));
	return _mm256_or_si256(low_nibbles(nibbles), pairs);
}

INLINE __m256
load_signed(const uint8_t *at)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)at)));
}

INLINE void
q6_k_unpack(const uint8_t *row, struct weights *ret)
{
	__m256 scale = _mm256_set1_ps(half_at(row + 208));

	ret->scale[0] = _mm256_mul_ps(scale, load_signed(row + 192));
	ret->scale[1] = _mm256_mul_ps(scale, load_signed(row + 200));
#pragma GCC unroll 8
	for (int i = 0; i < 2; i++) {
		__m256i a = load_32(row + 64L * i), b = load_32(row + 64L * i + 32);
		__m256i pairs = load_32(row + 128 + 32L * i);
		__m256i *to = ret->quant + 4L * i;

		to[0] = q6_k_merge(a, _mm256_slli_epi16(pairs, 4));
		to[1] = q6_k_merge(b, _mm256_slli_epi16(pairs, 2));
		to[2] = q6_k_merge(_mm256_srli_epi16(a, 4), pairs);
		to[3] = q6_k_merge(_mm256_srli_epi16(b, 4), _mm256_srli_epi16(pairs, 2));
	}
}

INLINE void
q8_0_unpack(const uint8_t *row, struct weights *ret)
{
	ret->scale[0] = block_scales(row, 34);
#pragma GCC unroll 8
	for (int g = 0; g < 8; g++)
		ret->quant[g] =
		    _mm256_xor_si256(load_32(row + 34L * g + 2), _mm256_set1_epi8((char)128));
}

INLINE void
q4_0_unpack(const uint8_t *row, struct weights *ret)
{
	ret->scale[0] = block_scales(row, 18);
#pragma GCC unroll 8
	for (int g = 0; g < 8; g++) {
		__m128i bytes = _mm_loadu_si128((const void *)(row + 18L * g + 2));
		__m256i both = _mm256_castsi128_si256(bytes);

		both = _mm256_inserti128_si256(both, _mm_srli_epi16(bytes, 4), 1);
		ret->quant[g] = low_nibbles(both);
	}
}

#endif
