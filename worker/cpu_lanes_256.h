/* cpu_lanes.h with vectors of 32 bytes; included by a set, which may have defined dot_bytes. */
#ifndef HEARTH_WORKER_CPU_LANES_256_H
#define HEARTH_WORKER_CPU_LANES_256_H

#include <immintrin.h>
#include <string.h>

#include "common/types.h"
#include "worker/cpu_lanes.h"
#include "worker/silu.h"

#define INLINE static inline __attribute__((always_inline))
#define AHEAD 4096 /* bytes fetched ahead */

/* sum + the products of four unsigned bytes with four signed ones. */
#ifndef dot_bytes
INLINE __m256i
dot_bytes(__m256i sum, __m256i quants, __m256i with)
{
	const __m256i zero = _mm256_setzero_si256();
	__m256i a = _mm256_srai_epi16(_mm256_unpacklo_epi8(zero, with), 8);
	__m256i b = _mm256_srai_epi16(_mm256_unpackhi_epi8(zero, with), 8);

	/* A part's 16 bytes stay its own: which four are added does not show. */
	a = _mm256_madd_epi16(_mm256_unpacklo_epi8(quants, zero), a);
	b = _mm256_madd_epi16(_mm256_unpackhi_epi8(quants, zero), b);
	return _mm256_add_epi32(sum, _mm256_add_epi32(a, b));
}
#endif

/* 256 elements of a row.  Quants: runs of parts 0 and 1, 2 and 3, ..; else in the order of parts
 * of struct lanes_block. */
struct length {
	__m256i quants[2][4];
	__m256 d, dmin, scale[2], minimum[2];
};

INLINE __m256i
load_32(const uint8_t *at)
{
	return _mm256_loadu_si256((const void *)at);
}

INLINE float
half_at(const uint8_t *at)
{
	uint16_t bits;

	memcpy(&bits, at, sizeof(bits));
	return _cvtsh_ss(bits);
}

INLINE __m256i
nibbles(__m256i bytes)
{
	return _mm256_and_si256(bytes, _mm256_set1_epi8(0x0f));
}

INLINE __m256i
high_nibbles(__m256i bytes)
{
	return nibbles(_mm256_srli_epi16(bytes, 4));
}

INLINE __m256i
masked(__m256i bytes, int mask)
{
	return _mm256_and_si256(bytes, _mm256_set1_epi8((char)mask));
}

/* Of eight 6-bit numbers in 8 bytes the even and the odd ones, each twice. */
INLINE void
evens_and_odds(uint64_t bytes, __m256 *evens, __m256 *odds)
{
	const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1);
	__m128i sorted = _mm_shuffle_epi8(_mm_cvtsi64_si128((long long)bytes), order);
	__m256 both = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(sorted));

	*evens = _mm256_permute2f128_ps(both, both, 0x00);
	*odds = _mm256_permute2f128_ps(both, both, 0x11);
}

INLINE void
k_scales(const uint8_t *at, struct length *ret)
{
	uint32_t word[3];
	uint64_t scales, minima;

	memcpy(word, at + 4, sizeof(word));
	scales = (word[2] & 0x0f0f0f0fu) | (word[0] >> 2 & 0x30303030u);
	minima = (word[2] >> 4 & 0x0f0f0f0fu) | (word[1] >> 2 & 0x30303030u);
	evens_and_odds(scales << 32 | (word[0] & 0x3f3f3f3fu), &ret->scale[0], &ret->scale[1]);
	evens_and_odds(minima << 32 | (word[1] & 0x3f3f3f3fu), &ret->minimum[0], &ret->minimum[1]);
	ret->d = _mm256_set1_ps(half_at(at));
	ret->dmin = _mm256_set1_ps(half_at(at + 2));
}

INLINE void
q4_k(const uint8_t *at, struct length *ret)
{
	k_scales(at, ret);
#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		__m256i v = load_32(at + 16 + 32L * g);

		ret->quants[0][g] = nibbles(v);
		ret->quants[1][g] = masked(v, 0xf0); /* sixteenfold */
	}
}

INLINE void
q5_k(const uint8_t *at, struct length *ret)
{
	__m256i fifth = load_32(at + 16);

	k_scales(at, ret);
#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		__m256i v = load_32(at + 48 + 32L * g);
		__m256i bits = masked(_mm256_srli_epi16(fifth, 2 * g), 3);

		ret->quants[0][g] =
		    _mm256_or_si256(nibbles(v), _mm256_slli_epi16(masked(bits, 1), 4));
		ret->quants[1][g] =
		    _mm256_or_si256(high_nibbles(v), _mm256_slli_epi16(masked(bits, 2), 3));
	}
}

/* Scales of parts 0..3 and 4..7: four of 16 signed bytes, the first half's runs and the second's.
 */
INLINE void
q6_k_scales(const uint8_t *at, struct length *ret)
{
	const __m128i first =
	    _mm_setr_epi8(0, 2, 8, 10, 1, 3, 9, 11, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i second = _mm_add_epi8(first, _mm_set1_epi8(4));
	__m128i scales = _mm_loadu_si128((const void *)at);

	ret->scale[0] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_shuffle_epi8(scales, first)));
	ret->scale[1] = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_shuffle_epi8(scales, second)));
}

INLINE void
q6_k(const uint8_t *at, struct length *ret)
{
	q6_k_scales(at + 192, ret);
	ret->d = _mm256_set1_ps(half_at(at + 208));
#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		__m256i v = load_32(at + 32L * g);
		__m256i top = load_32(at + 128 + g / 2 * 32L);

		if (g % 2 == 1)
			top = _mm256_srli_epi16(top, 2);
		ret->quants[0][g] =
		    _mm256_or_si256(nibbles(v), _mm256_slli_epi16(masked(top, 0x03), 4));
		ret->quants[1][g] = _mm256_or_si256(high_nibbles(v), masked(top, 0x30));
	}
}

INLINE __m256i
two_of_16(const uint8_t *first, const uint8_t *second)
{
	return _mm256_set_m128i(_mm_loadu_si128((const void *)second),
				_mm_loadu_si128((const void *)first));
}

/* Of eight blocks of `bytes`, each with a scale of its own in front. */
INLINE __m256
block_scales(const uint8_t *at, long bytes)
{
	return _mm256_setr_ps(half_at(at), half_at(at + 2 * bytes), half_at(at + 4 * bytes),
			      half_at(at + 6 * bytes), half_at(at + bytes), half_at(at + 3 * bytes),
			      half_at(at + 5 * bytes), half_at(at + 7 * bytes));
}

INLINE void
q8_0(const uint8_t *at, struct length *ret)
{
	ret->d = block_scales(at, 34);
#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		const uint8_t *quants = at + 68L * g + 2;

		for (int run = 0; run < 2; run++)
			ret->quants[run][g] =
			    _mm256_xor_si256(two_of_16(quants + 16L * run, quants + 34 + 16L * run),
					     _mm256_set1_epi8((char)0x80));
	}
}

INLINE void
q4_0(const uint8_t *at, struct length *ret)
{
	ret->d = block_scales(at, 18);
#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		__m256i v = two_of_16(at + 36L * g + 2, at + 36L * g + 20);

		ret->quants[0][g] = nibbles(v);
		ret->quants[1][g] = high_nibbles(v);
	}
}

INLINE void
unpack(uint32_t type, const uint8_t *at, struct length *ret)
{
	switch (type) {
	case TYPE_Q4_K:
		q4_k(at, ret);
		break;
	case TYPE_Q5_K:
		q5_k(at, ret);
		break;
	case TYPE_Q6_K:
		q6_k(at, ret);
		break;
	case TYPE_Q8_0:
		q8_0(at, ret);
		break;
	default:
		q4_0(at, ret);
	}
}

/* Of each part a run's quants times its columns, exact. */
INLINE __m256
run_times(const __m256i *quants, const struct lanes_block *x, int run)
{
	__m256i sums[4];

#pragma GCC unroll 4
	for (int g = 0; g < 4; g++) {
		__m256i low = _mm256_load_si256((const void *)(x->low[run] + 32L * g));
		__m256i high = _mm256_load_si256((const void *)(x->high[run] + 32L * g));

		sums[g] = dot_bytes(_mm256_setzero_si256(), quants[g], high);
		sums[g] = dot_bytes(_mm256_slli_epi32(sums[g], 8), quants[g], low);
	}
	sums[0] = _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]),
				    _mm256_hadd_epi32(sums[2], sums[3]));
	return _mm256_cvtepi32_ps(
	    _mm256_add_epi32(sums[0], _mm256_load_si256((const void *)x->start[run])));
}

/* What the eight lanes of a length add to their sums: fixed_times of cuda_rows.cuh. */
INLINE __m256
length_times(uint32_t type, const uint8_t *at, const struct lanes_block *x, __m256 sum)
{
	bool k = type == TYPE_Q4_K || type == TYPE_Q5_K;
	__m256 times[2], factor[2];
	struct length q;

	unpack(type, at, &q);
#pragma GCC unroll 2
	for (int run = 0; run < 2; run++) {
		times[run] = run_times(q.quants[run], x, run);
		factor[run] = _mm256_load_ps(x->unit[run]);
		if (k || type == TYPE_Q6_K)
			factor[run] = _mm256_mul_ps(q.scale[run], factor[run]);
	}
	times[0] = _mm256_fmadd_ps(times[1], factor[1], _mm256_mul_ps(times[0], factor[0]));
	sum = _mm256_fmadd_ps(q.d, times[0], sum);
	if (!k)
		return sum;
	times[0] = _mm256_fmadd_ps(q.minimum[1], _mm256_load_ps(x->sum[1]),
				   _mm256_mul_ps(q.minimum[0], _mm256_load_ps(x->sum[0])));
	return _mm256_fnmadd_ps(q.dmin, times[0], sum);
}

/* The sum of a warp's lanes, in the order of its shuffles. */
INLINE float
warp_sum(const __m256 *lanes)
{
	__m256 eight =
	    _mm256_add_ps(_mm256_add_ps(lanes[0], lanes[2]), _mm256_add_ps(lanes[1], lanes[3]));

	eight = _mm256_add_ps(eight, _mm256_permute_ps(eight, 0x4e));
	eight = _mm256_add_ps(eight, _mm256_permute_ps(eight, 0xb1));
	return _mm_cvtss_f32(
	    _mm_add_ss(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)));
}

INLINE void
rows_times(const struct lanes_rows *job, uint32_t type, uint32_t length_bytes)
{
	uint32_t whole = job->columns / LANES_COLUMNS;
	uint8_t rest[8 * 34] = { 0 };

	for (uint32_t r = 0; r < job->n_rows; r++) {
		const uint8_t *at = job->rows + r * job->row_bytes;
		__m256 lanes[4];

		for (int i = 0; i < 4; i++)
			lanes[i] = _mm256_setzero_ps();
		for (uint32_t i = 0; i < whole; i++, at += length_bytes) {
			for (uint32_t line = 0; line < length_bytes; line += 64)
				_mm_prefetch((const char *)at + AHEAD + line, _MM_HINT_T0);
			lanes[i % 4] = length_times(type, at, job->x + i, lanes[i % 4]);
		}
		if (job->columns % LANES_COLUMNS != 0) {
			memcpy(rest, at, job->row_bytes - (size_t)whole * length_bytes);
			lanes[whole % 4] =
			    length_times(type, rest, job->x + whole, lanes[whole % 4]);
		}
		job->y[r] = warp_sum(lanes);
	}
}

static void
lanes_rows_of(const struct lanes_rows *job)
{
	switch (job->type) {
	case TYPE_Q4_K:
		rows_times(job, TYPE_Q4_K, 144);
		break;
	case TYPE_Q5_K:
		rows_times(job, TYPE_Q5_K, 176);
		break;
	case TYPE_Q6_K:
		rows_times(job, TYPE_Q6_K, 210);
		break;
	case TYPE_Q8_0:
		rows_times(job, TYPE_Q8_0, 8 * 34);
		break;
	default:
		rows_times(job, TYPE_Q4_0, 8 * 18);
	}
}

/* A group from `column` on: fixed_store of cuda_fixed.cuh, with an exact division. */
INLINE void
group_set(const float *x, uint32_t column, struct lanes_fixed *ret)
{
	const float whole = 12582912.0f; /* 1.5 * 2^23: a float's last bit is 1 here */
	uint32_t top = 0, base, sum = 0, place = column ^ (column & 128 ? 7 * 16 : 0);
	float largest, inverse;

	memcpy(&base, &whole, sizeof(base));
	for (uint32_t i = 0; i < LANES_GROUP; i++) {
		float size = fabsf(x[i]);
		uint32_t bits;

		memcpy(&bits, &size, sizeof(bits));
		top = bits > top ? bits : top;
	}
	memcpy(&largest, &top, sizeof(largest));
	inverse = largest < 1e-30f ? 0 : 32512.0f / largest;
	for (uint32_t i = 0; i < LANES_GROUP; i++) {
		float turned = fmaf(x[i], inverse, whole);
		uint32_t v;

		memcpy(&v, &turned, sizeof(v));
		v -= base;
		sum += v;
		ret->low[place + i] = (int8_t)(v & 255);
		ret->high[place + i] = (int8_t)((v + 128) >> 8 & 255);
	}
	ret->group[column / LANES_GROUP].unit = largest * (1.0f / 32512.0f);
	ret->group[column / LANES_GROUP].sum = (int32_t)sum;
}

static void
lanes_act_of(const struct lanes_act *act, struct lanes_fixed *ret)
{
	float x[LANES_ACT];

	for (uint32_t i = 0; i < act->n; i++)
		x[i] = silu(act->gate[i]) * act->up[i] * act->weight;
	for (uint32_t i = 0; i < act->n; i += LANES_GROUP)
		group_set(x + i, act->first + i, ret);
}

#define LANES_SET(id, text) const struct lanes_kernels id = { text, lanes_rows_of, lanes_act_of }

#endif
