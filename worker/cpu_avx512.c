/* Vectors of 16 floats: a unit is 64 elements.  Types that are floats; cpu_fixed_avx512.c has the
 * others. */
#include "worker/cpu_kernels.h"

#include <immintrin.h>

#define VEC __m512
#define LANES 16
#define FUSED_COLUMNS 4

#define MIX cpu_mix_avx512

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

DOT_FUNCTION(f16, TYPE_F16, UNIT * 2)
DOT_FUNCTION(bf16, TYPE_BF16, UNIT * 2)

const struct cpu_type_dot cpu_floats_avx512[CPU_FLOAT_TYPES] = {
	{ TYPE_F32, dot_f32 },
	{ TYPE_F16, dot_f16 },
	{ TYPE_BF16, dot_bf16 },
};
