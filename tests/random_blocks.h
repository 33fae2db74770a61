/* Random weights as GGUF stores them: a seeded stream of blocks of one type. */
#ifndef HEARTH_TESTS_RANDOM_BLOCKS_H
#define HEARTH_TESTS_RANDOM_BLOCKS_H

#include <stdint.h>

/* Fills `n` bytes, whole blocks of `type` (F32, Q4_K or Q6_K), with weights around `middle` (0 for
 * the K types) of that standard deviation.  Equal streams give equal bytes. */
void random_blocks(uint8_t *to, uint64_t n, uint32_t type, float middle, float deviation,
		   uint64_t stream);

#endif
