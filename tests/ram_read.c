#include "tests/ram_read.h"

#include <immintrin.h>

#define AHEAD 2048 /* bytes: beyond what the CPU fetches by itself */

__attribute__((target("avx2"))) uint64_t
ram_read(const void *from, uint64_t bytes)
{
	const uint8_t *at = from;
	__m256i sums[4] = { _mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
			    _mm256_setzero_si256() };

	for (uint64_t i = 0; i < bytes; i += 256, at += 256)
#pragma GCC unroll 4
		for (int j = 0; j < 4; j++) {
			const __m256i *line = (const void *)(at + 64L * j);

			_mm_prefetch((const char *)line + AHEAD, _MM_HINT_T0);
			sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(line));
			sums[j] = _mm256_xor_si256(sums[j], _mm256_loadu_si256(line + 1));
		}
	sums[0] = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]),
				   _mm256_xor_si256(sums[2], sums[3]));
	return (uint64_t)_mm256_extract_epi64(sums[0], 0) ^
	       (uint64_t)_mm256_extract_epi64(sums[0], 2);
}
