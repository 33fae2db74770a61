/* Plain reads of memory, as fast as one core does them: what kernels are measured beside. */
#ifndef HEARTH_TESTS_RAM_READ_H
#define HEARTH_TESTS_RAM_READ_H

#include <stdint.h>

/* Returns a mixture of the bytes, so that none of the reads can be left out.  bytes: a multiple of
 * 256; at: of 64. */
uint64_t ram_read(const void *at, uint64_t bytes);

#endif
