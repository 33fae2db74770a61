/* Vectors of 8 floats: a unit is 32 elements.  Types that are floats; cpu_fixed_avx2.c has the
 * others. */
#include "worker/cpu_kernels.h"

#include <immintrin.h>

#define VEC __m256
#define LANES 8
#define FUSED_COLUMNS 2 /* 16 registers: 8 sums, 4 of weights */

#define MIX cpu_mix_avx2

#define vec_zero _mm256_setzero_ps
#define vec_all _mm256_set1_ps
#define vec_load _mm256_loadu_ps
#define vec_store _mm256_storeu_ps
#define vec_fma _mm256_fmadd_ps
#define vec_add _mm256_add_ps
#define vec_sum sum_of_8

static inline float
sum_of_8(__m256 v)
{
	__m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));

	sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
	return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

#include "worker/cpu_rows.h"

INLINE float
load_half(const uint8_t *at)
{
	return _cvtsh_ss((uint16_t)(at[0] | at[1] << 8));
}

INLINE __m256i
load_bytes(const uint8_t *at)
{
	return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)at));
}

INLINE void
f16_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += UNIT * 2) {
		const __m128i *at = (const void *)row;

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		take(lanes, mode, _mm256_cvtph_ps(_mm_loadu_si128(at)),
		     _mm256_cvtph_ps(_mm_loadu_si128(at + 1)),
		     _mm256_cvtph_ps(_mm_loadu_si128(at + 2)),
		     _mm256_cvtph_ps(_mm_loadu_si128(at + 3)));
	}
}

INLINE VEC
load_bf16(const uint8_t *at)
{
	__m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)at));

	return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

INLINE void
bf16_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += UNIT * 2) {
		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		take(lanes, mode, load_bf16(row), load_bf16(row + 16), load_bf16(row + 32),
		     load_bf16(row + 48));
	}
}

DOT_FUNCTION(f16, TYPE_F16, UNIT * 2)
DOT_FUNCTION(bf16, TYPE_BF16, UNIT * 2)

const struct cpu_type_dot cpu_floats_avx2[CPU_FLOAT_TYPES] = {
	{ TYPE_F32, dot_f32 },
	{ TYPE_F16, dot_f16 },
	{ TYPE_BF16, dot_bf16 },
};
