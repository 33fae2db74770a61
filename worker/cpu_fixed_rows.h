/* What the vector sets share of products with fixed-point columns (worker/fixed.h): rows in blocks
 * of 256 columns, each unpacked once for up to 4 vectors.  Included once by each set, after it has
 * defined
 *   struct weights     256 columns of a row, unpacked
 *   struct sums        16 partial sums of floats
 * and which defines after it sums_begin, sums_total (adds them up) and take (adds weights times a
 * block of a vector).  A type gives one function that unpacks 256 columns.  `n` is a constant in
 * every expansion. */
#ifndef HEARTH_WORKER_CPU_FIXED_ROWS_H
#define HEARTH_WORKER_CPU_FIXED_ROWS_H

#include <immintrin.h>
#include <string.h>

#include "common/types.h"
#include "worker/cpu_kernels.h"
#include "worker/fixed.h"

#define INLINE static inline __attribute__((always_inline))

/* Of 512 to 8192 the best on a Xeon (Sapphire Rapids), where without it half the speed is lost. */
#define PREFETCH_BYTES 4096

/* Columns that a row is unpacked once for: their vectors fit the first cache. */
#define MAX_FUSED 4u

/* How a type's rows are cut: `bytes` of 256 columns, and its kind and centre of worker/fixed.h. */
struct cut {
	uint32_t bytes;
	enum fixed_kind kind;
	int centre_bits; /* centre = 1 << centre_bits; no matter where there is a minimum */
	int odd_bits;    /* quants of odd groups are unpacked shifted left by so many */
};

typedef void unpack_fn(const uint8_t *row, struct weights *ret);

INLINE void take(const struct weights *weights, const struct fixed_block *x, struct sums *sums,
		 struct cut cut);
INLINE void sums_begin(struct sums *sums);
INLINE float sums_total(const struct sums *sums);

INLINE float
half_at(const uint8_t *at)
{
	return _cvtsh_ss((uint16_t)(at[0] | at[1] << 8));
}

/* Asks for what is read PREFETCH_BYTES later: further on in the rows, or behind their end where
 * `dot` goes on. */
INLINE void
prefetch(const struct cpu_dot *dot, const uint8_t *row, uint32_t bytes)
{
	uintptr_t end = (uintptr_t)dot->rows + dot->n_rows * dot->row_bytes;
	uintptr_t ahead = (uintptr_t)row + PREFETCH_BYTES;

	if (ahead >= end && dot->next)
		ahead += (uintptr_t)dot->next - end;
	for (uint32_t i = 0; i < bytes; i += 64)
		_mm_prefetch((const char *)(ahead + i), _MM_HINT_T0);
}

/* The six-bit pairs of a Q4_K or Q5_K block, as common/types.c says: 8 scales, 8 minima.  In whole
 * words, since the vector ports are what is short. */
INLINE __m128i
k_pairs(const uint8_t *block)
{
	uint64_t first, second, six; /* scales 0 to 3, minima 0 to 3; the others */
	uint32_t nibbles;

	memcpy(&six, block + 4, 8);
	memcpy(&nibbles, block + 12, 4);
	first = six & 0x3f3f3f3f3f3f3f3f;
	second = (nibbles & 0x0f0f0f0f) | (uint64_t)(nibbles >> 4 & 0x0f0f0f0f) << 32;
	second |= six >> 2 & 0x3030303030303030;
	return _mm_unpacklo_epi32(_mm_cvtsi64_si128((long long)first),
				  _mm_cvtsi64_si128((long long)second));
}

/* The scales of eight blocks that are `bytes` apart. */
INLINE __m256
block_scales(const uint8_t *row, int bytes)
{
	uint16_t halves[8];

#pragma GCC unroll 8
	for (int g = 0; g < 8; g++)
		memcpy(&halves[g], row + (size_t)g * (size_t)bytes, 2);
	return _mm256_cvtph_ps(_mm_loadu_si128((const void *)halves));
}

/* Rows against n columns from `first` on.  One alone keeps its sums in registers. */
INLINE void
rows_dot(unpack_fn *unpack, struct cut cut, const struct cpu_dot *dot, uint32_t first, uint32_t n)
{
	uint32_t whole = dot->n / FIXED_COLUMNS, n_blocks = fixed_blocks(dot->n);
	uint8_t padded[8 * 34] = { 0 }; /* zeros stand in for groups that fill no block */

	for (uint32_t r = 0; r < dot->n_rows; r++) {
		const uint8_t *row = dot->rows + r * dot->row_bytes;
		struct sums sums[MAX_FUSED];
		struct weights weights;

		for (uint32_t c = 0; c < n; c++)
			sums_begin(&sums[c]);
		for (uint32_t b = 0; b < n_blocks; b++, row += cut.bytes) {
			const uint8_t *at = row;

			if (__builtin_expect(b == whole, 0))
				at = memcpy(padded, row, dot->row_bytes - b * (size_t)cut.bytes);
			prefetch(dot, row, cut.bytes);
			unpack(at, &weights);
			for (uint32_t c = 0; c < n; c++)
				take(&weights, dot->fixed[first + c] + b, &sums[c], cut);
		}
		for (uint32_t c = 0; c < n; c++)
			dot->y[first + c][r] = sums_total(&sums[c]);
	}
}

INLINE void
dot_fixed(unpack_fn *unpack, struct cut cut, const struct cpu_dot *dot)
{
	if (dot->n_columns == 1) {
		rows_dot(unpack, cut, dot, 0, 1);
		return;
	}
	for (uint32_t c = 0; c < dot->n_columns; c += MAX_FUSED) {
		uint32_t left = dot->n_columns - c;

		rows_dot(unpack, cut, dot, c, left < MAX_FUSED ? left : MAX_FUSED);
	}
}

#define FIXED_FUNCTION(type, ...)                                           \
	static void dot_##type(const struct cpu_dot *dot)                   \
	{                                                                   \
		dot_fixed(type##_unpack, (struct cut){ __VA_ARGS__ }, dot); \
	}

/* All of a set's types, and its table. */
#define FIXED_FUNCTIONS(set)                                                               \
	FIXED_FUNCTION(q8_0, 8 * 34, FIXED_CENTRED, 7, 0)                                  \
	FIXED_FUNCTION(q4_0, 8 * 18, FIXED_CENTRED, 3, 0)                                  \
	FIXED_FUNCTION(q4_k, 144, FIXED_MINIMUM, 0, 4)                                     \
	FIXED_FUNCTION(q5_k, 176, FIXED_MINIMUM, 0, 0)                                     \
	FIXED_FUNCTION(q6_k, 210, FIXED_HALVES, 5, 0)                                      \
	const struct cpu_type_dot set[CPU_FIXED_TYPES] = {                                 \
		{ TYPE_Q8_0, dot_q8_0 }, { TYPE_Q4_0, dot_q4_0 }, { TYPE_Q4_K, dot_q4_k }, \
		{ TYPE_Q5_K, dot_q5_k }, { TYPE_Q6_K, dot_q6_k },                          \
	};

#endif
