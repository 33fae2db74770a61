/* How fast the machine's RAM can be read: the limit of whatever computes from it.  Threads of one's
 * own read pieces of one range by turns and do nothing with them.  GB are 1e9 bytes. */
#ifndef HEARTH_TESTS_BENCH_RAM_H
#define HEARTH_TESTS_BENCH_RAM_H

#include <stdint.h>

#include "common/error.h"

/* Read by bench_ram_limit: more than any cache holds. */
#define BENCH_RAM_BYTES (2ull << 30)

/* Touched and backed by huge pages where the kernel gives them; NULL: there is no such room. */
void *bench_ram_map(uint64_t bytes);
void *bench_ram_map_small(uint64_t bytes); /* the same by pages of 4 KiB */
void bench_ram_unmap(void *at, uint64_t bytes);

/* Reads the range over and over until it is told to end: beside something else that reads. */
struct bench_ram;
int bench_ram_begin(struct bench_ram **ret, const void *at, uint64_t bytes, uint32_t threads,
		    struct error *err);
double bench_ram_end(struct bench_ram *ram); /* GB/s since its begin */

/* GB/s of reading the range once; the best of 3.  Negative: the threads cannot be had. */
double bench_ram_rate(const void *at, uint64_t bytes, uint32_t threads);

/* The same of BENCH_RAM_BYTES of its own, less where the machine has less to give. */
double bench_ram_limit(uint32_t threads);

#endif
