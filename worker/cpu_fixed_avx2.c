/* AVX2: products of bytes with fixed-point columns. */
#include "worker/cpu_fixed_256.h"

#include <float.h>
#include <math.h>

FIXED_FUNCTIONS(cpu_fixed_avx2)

/* The greatest |x| of a group of 4 vectors; an infinity or a NaN if there is one. */
static float
greatest(const __m256 *x)
{
	__m256i size = _mm256_set1_epi32(0x7fffffff), most = _mm256_setzero_si256();
	__m128i four;

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		most = _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(x[i]), size));
	four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
	four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
	return _mm_cvtss_f32(_mm_castsi128_ps(four));
}

/* 32 numbers below 128, in 4 vectors, as bytes. */
static __m256i
to_bytes(const __m256i *v)
{
	const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
	__m256i first = _mm256_packs_epi32(v[0], v[1]), second = _mm256_packs_epi32(v[2], v[3]);

	return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(first, second), order);
}

/* Takes the lowest digit of base 128 off each. */
static __m256i
take_digit(__m256i *v)
{
	const __m256i half = _mm256_set1_epi32(64);
	__m256i digits[4];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		__m256i above = _mm256_add_epi32(v[i], half);

		digits[i] = _mm256_sub_epi32(_mm256_and_si256(above, _mm256_set1_epi32(127)), half);
		v[i] = _mm256_srai_epi32(above, 7);
	}
	return to_bytes(digits);
}

static int32_t
sum_of_16(__m256i a, __m256i b)
{
	__m256i eight = _mm256_add_epi32(a, b);
	__m128i four =
	    _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));

	four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
	four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
	return _mm_cvtsi128_si32(four);
}

static void
fix_group(const float *x, float top, struct fixed_block *block, uint32_t g)
{
	__m256 values[4];
	__m256i v[4];
	float most;
	bool finite, usable;

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		values[i] = _mm256_loadu_ps(x + 8L * i);
	most = greatest(values);
	finite = most <= FLT_MAX;
	usable = finite && most >= FIXED_LEAST;
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++)
		v[i] =
		    usable
			? _mm256_cvtps_epi32(_mm256_mul_ps(values[i], _mm256_set1_ps(top / most)))
			: _mm256_setzero_si256();
	block->halves[2 * g] = sum_of_16(v[0], v[1]);
	block->halves[2 * g + 1] = sum_of_16(v[2], v[3]);
	block->sum[g] = block->halves[2 * g] + block->halves[2 * g + 1];
	block->unit[g] = usable ? most / top : finite ? 0 : NAN;
	block->base[g] = -block->unit[g] * (float)block->sum[g];
	_mm256_storeu_si256((void *)(block->low + 32L * g), take_digit(v));
	_mm256_storeu_si256((void *)(block->middle + 32L * g), take_digit(v));
	_mm256_storeu_si256((void *)(block->high + 32L * g), to_bytes(v));
}

void
cpu_fix_avx2(const float *x, uint32_t first, uint32_t n, float top, struct fixed_block *ret)
{
	for (uint32_t i = 0; i < n; i += FIXED_GROUP) {
		uint32_t g = (first + i) / FIXED_GROUP;

		fix_group(x + i, top, ret + g / 8, g % 8);
	}
}
