/* Rows and floats from one seeded stream, for tests of kernels.  Not for several threads. */
#ifndef HEARTH_TESTS_RANDOM_ROWS_H
#define HEARTH_TESTS_RANDOM_ROWS_H

#include "common/types.h"

void random_begin(uint64_t seed);
uint32_t random_u32(void);
float random_float(void); /* in [-1, 1) */

/* Random quants with scales and minima of -1 to 1. */
void random_row(const struct type_info *info, uint8_t *row, uint32_t n);

/* The same from a stream of the caller's, a number that they change. */
float random_float_of(uint64_t *stream);
void random_row_of(uint64_t *stream, const struct type_info *info, uint8_t *row, uint32_t n);

#endif
