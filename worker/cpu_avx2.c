/* Vectors of 8 floats: a unit is 32 elements.  Values equal those of common/types.c, but
 * scale * quant - minimum is rounded once and not twice. */
#include "worker/cpu_kernels.h"

#include <immintrin.h>

#define VEC __m256
#define LANES 8
#define FUSED_COLUMNS 2 /* 16 registers: 8 sums, 4 of weights */

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

INLINE VEC
load_signed(const void *at)
{
	return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at)));
}

INLINE void
q8_0_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += 34) {
		VEC scale = vec_all(load_half(row));

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		take(lanes, mode, _mm256_mul_ps(scale, load_signed(row + 2)),
		     _mm256_mul_ps(scale, load_signed(row + 10)),
		     _mm256_mul_ps(scale, load_signed(row + 18)),
		     _mm256_mul_ps(scale, load_signed(row + 26)));
	}
}

INLINE __m256i
nibbles(__m256i bytes)
{
	return _mm256_and_si256(bytes, _mm256_set1_epi32(15));
}

/* scale * (quant - offset) */
INLINE VEC
value_signed(__m256i quants, VEC scale, int offset)
{
	__m256i centred = _mm256_sub_epi32(quants, _mm256_set1_epi32(offset));

	return _mm256_mul_ps(scale, _mm256_cvtepi32_ps(centred));
}

INLINE void
q4_0_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += 18) {
		VEC scale = vec_all(load_half(row));
		__m256i q0 = load_bytes(row + 2), q1 = load_bytes(row + 10);

		_mm_prefetch(row + PREFETCH_BYTES, _MM_HINT_T0);
		take(lanes, mode, value_signed(nibbles(q0), scale, 8),
		     value_signed(nibbles(q1), scale, 8),
		     value_signed(_mm256_srli_epi32(q0, 4), scale, 8),
		     value_signed(_mm256_srli_epi32(q1, 4), scale, 8));
	}
}

struct k_scales {
	float scale[8], minimum[8];
};

/* Of a Q4_K or Q5_K block; the eight 6-bit pairs as in common/types.c, four to a word. */
INLINE void
k_scales_load(const uint8_t *block, struct k_scales *ret)
{
	uint32_t a, b, c;
	uint64_t scale, minimum;

	memcpy(&a, block + 4, 4);
	memcpy(&b, block + 8, 4);
	memcpy(&c, block + 12, 4);
	scale = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)) << 32;
	minimum = (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030))
					 << 32;
	vec_store(ret->scale, _mm256_mul_ps(vec_all(load_half(block)),
					    _mm256_cvtepi32_ps(load_bytes((uint8_t *)&scale))));
	vec_store(ret->minimum, _mm256_mul_ps(vec_all(load_half(block + 2)),
					      _mm256_cvtepi32_ps(load_bytes((uint8_t *)&minimum))));
}

/* Sub-block j, whose quants are in bits 0 to 4 of each lane. */
INLINE void
k_take(struct lanes *lanes, int mode, const struct k_scales *scales, int j, const __m256i *quants)
{
	VEC scale = vec_all(scales->scale[j]), minimum = vec_all(scales->minimum[j]);

	take(lanes, mode, _mm256_fmsub_ps(_mm256_cvtepi32_ps(quants[0]), scale, minimum),
	     _mm256_fmsub_ps(_mm256_cvtepi32_ps(quants[1]), scale, minimum),
	     _mm256_fmsub_ps(_mm256_cvtepi32_ps(quants[2]), scale, minimum),
	     _mm256_fmsub_ps(_mm256_cvtepi32_ps(quants[3]), scale, minimum));
}

INLINE void
q4_k_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units -= 8, row += 144) {
		struct k_scales scales;

		k_scales_load(row, &scales);
		for (int j = 0; j < 8; j += 2) {
			const uint8_t *at = row + 16 + j * 16;
			__m256i q[4] = { load_bytes(at), load_bytes(at + 8), load_bytes(at + 16),
					 load_bytes(at + 24) };
			__m256i low[4] = { nibbles(q[0]), nibbles(q[1]), nibbles(q[2]),
					   nibbles(q[3]) };
			__m256i high[4] = { _mm256_srli_epi32(q[0], 4), _mm256_srli_epi32(q[1], 4),
					    _mm256_srli_epi32(q[2], 4),
					    _mm256_srli_epi32(q[3], 4) };

			_mm_prefetch(row + PREFETCH_BYTES + 36 * j / 2, _MM_HINT_T0);
			k_take(lanes, mode, &scales, j, low);
			k_take(lanes, mode, &scales, j + 1, high);
		}
	}
}

/* The fifth bit of sub-block j beside a nibble. */
INLINE __m256i
with_fifth(__m256i nibble, const uint8_t *high, int j)
{
	__m256i bits = _mm256_and_si256(load_bytes(high), _mm256_set1_epi32(1 << j));

	bits = _mm256_cmpgt_epi32(bits, _mm256_setzero_si256());
	return _mm256_or_si256(nibble, _mm256_and_si256(bits, _mm256_set1_epi32(16)));
}

INLINE void
q5_k_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units -= 8, row += 176) {
		const uint8_t *fifth = row + 16;
		struct k_scales scales;

		k_scales_load(row, &scales);
		for (int j = 0; j < 8; j += 2) {
			const uint8_t *at = row + 48 + j * 16;
			__m256i low[4], high[4];

			_mm_prefetch(row + PREFETCH_BYTES + 22 * j, _MM_HINT_T0);
#pragma GCC unroll 4
			for (int i = 0; i < 4; i++) {
				__m256i q = load_bytes(at + 8 * i);

				low[i] = with_fifth(nibbles(q), fifth + 8 * i, j);
				high[i] = with_fifth(_mm256_srli_epi32(q, 4), fifth + 8 * i, j + 1);
			}
			k_take(lanes, mode, &scales, j, low);
			k_take(lanes, mode, &scales, j + 1, high);
		}
	}
}

/* The 32 quants of group k (0..3) of a half block: bytes of their own. */
INLINE void
q6_k_merge(const uint8_t *low, const uint8_t *high, int k, uint8_t *ret)
{
	__m256i nibble = _mm256_loadu_si256((const void *)(low + k % 2 * 32));
	__m256i pairs = _mm256_loadu_si256((const void *)high);

	nibble = _mm256_srl_epi16(nibble, _mm_cvtsi32_si128(k / 2 * 4));
	pairs =
	    _mm256_slli_epi16(_mm256_and_si256(_mm256_srl_epi16(pairs, _mm_cvtsi32_si128(2 * k)),
					       _mm256_set1_epi8(3)),
			      4);
	nibble = _mm256_and_si256(nibble, _mm256_set1_epi8(15));
	_mm256_storeu_si256((void *)ret, _mm256_or_si256(nibble, pairs));
}

INLINE void
q6_k_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units -= 8, row += 210) {
		VEC all = vec_all(load_half(row + 208));
		float scale[16];

		vec_store(scale, _mm256_mul_ps(all, load_signed(row + 192)));
		vec_store(scale + 8, _mm256_mul_ps(all, load_signed(row + 200)));
		for (int j = 0; j < 8; j++) {
			VEC scale0 = vec_all(scale[2 * j]), scale1 = vec_all(scale[2 * j + 1]);
			uint8_t quants[32];

			_mm_prefetch(row + PREFETCH_BYTES + 26 * j, _MM_HINT_T0);
			q6_k_merge(row + j / 4 * 64, row + 128 + j / 4 * 32, j % 4, quants);
			take(lanes, mode, value_signed(load_bytes(quants), scale0, 32),
			     value_signed(load_bytes(quants + 8), scale0, 32),
			     value_signed(load_bytes(quants + 16), scale1, 32),
			     value_signed(load_bytes(quants + 24), scale1, 32));
		}
	}
}

DOT_FUNCTION(f16, TYPE_F16, UNIT * 2)
DOT_FUNCTION(bf16, TYPE_BF16, UNIT * 2)
DOT_FUNCTION(q8_0, TYPE_Q8_0, 34)
DOT_FUNCTION(q4_0, TYPE_Q4_0, 18)
DOT_FUNCTION(q4_k, TYPE_Q4_K, 18)
DOT_FUNCTION(q5_k, TYPE_Q5_K, 22)
DOT_FUNCTION(q6_k, TYPE_Q6_K, 0) /* never a rest: a block is whole units */

const struct cpu_kernels cpu_kernels_avx2 = {
	.name = "avx2",
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
