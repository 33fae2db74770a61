/* Who computes on the CPU: a kernel set, a pool of threads and each thread's scratch; and the
 * vectors that they multiply with.  The memory is the owner's. */
#ifndef HEARTH_WORKER_CPU_CREW_H
#define HEARTH_WORKER_CPU_CREW_H

#include "worker/cpu_kernels.h"
#include "worker/cpu_pool.h"

struct cpu_crew {
	const struct cpu_kernels *kernels;
	struct cpu_pool *pool;
	uint32_t threads;
	uint64_t scratch_stride;
	float *scratch; /* (threads, CPU_SCRATCH_ROWS * the longest row) */
};

/* A vector for each token or slot. */
struct cpu_vectors {
	uint32_t width;
	uint64_t stride;           /* floats: rows begin at multiples of a cache line */
	float *x;                  /* (n, stride) */
	uint64_t blocks;           /* fixed_blocks(width) */
	struct fixed_block *fixed; /* (n, blocks) x again, once cpu_fix has been called; zeroed by
				    * the owner before that */
};

/* Gives the next piece of `base` (NULL: only counts), and moves on to the next cache line. */
void *cpu_carve(uint8_t *base, uint64_t *used, uint64_t count, uint64_t bytes);
float *cpu_carve_floats(uint8_t *base, uint64_t *used, uint64_t rows, uint64_t stride);
struct cpu_vectors cpu_carve_vectors(uint8_t *base, uint64_t *used, uint64_t n, uint32_t width);
/* Floats of a row that ends with a cache line. */
uint64_t cpu_stride(uint64_t floats);

/* Columns first .. first + n - 1 of vector i as fixed-point numbers too; first: whole groups. Where
 * the width is no whole number of groups no quantized row fits it, and there is nothing to do. */
void cpu_fix(const struct cpu_crew *crew, const struct cpu_vectors *vectors, uint32_t i,
	     uint32_t first, uint32_t n);

/* How many of n items a part has, so that the threads have a few parts each and no part is tiny;
 * item_work: bytes read from memory, times columns.  Rows: in whole groups. */
uint32_t cpu_items_a_part(const struct cpu_crew *crew, uint64_t n_items, uint64_t item_work);
uint32_t cpu_rows_a_part(const struct cpu_crew *crew, uint64_t n_rows, uint64_t row_work);

/* All but `scratch` of `dot` is set. */
void cpu_dot_rows(const struct cpu_crew *crew, uint32_t type, struct cpu_dot *dot, uint32_t thread);

#endif
