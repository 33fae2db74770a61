/* The CPU's inner loops, in sets by instruction set; one is chosen at start.
 *
 * Quantized rows are multiplied with fixed-point columns (worker/fixed.h) and have the same bits in
 * every set.  Rows of floats have one order of operations in each set, whatever the number of rows
 * and columns of a call: the elements go to 4 * lanes partial sums in turn, which are then added in
 * a fixed tree.  So a token computed alone and one computed in a batch get the same bits. */
#ifndef HEARTH_WORKER_CPU_KERNELS_H
#define HEARTH_WORKER_CPU_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/fixed.h"

#define CPU_SCRATCH_ROWS 4u

/* y[c][r] = row r . column c */
struct cpu_dot {
	const uint8_t *rows; /* (n_rows, row_bytes), any alignment */
	uint64_t row_bytes;
	const uint8_t *next; /* what the thread reads after these rows; NULL: what follows them */
	uint32_t n_rows;
	uint32_t n; /* elements of a row: whole blocks */
	uint32_t n_columns;
	const float *const *x; /* (n_columns) pointers to n floats; rows of floats */
	const struct fixed_block *const *fixed; /* (n_columns) the same; quantized rows */
	float *const *y;                        /* (n_columns) pointers to n_rows floats */
	float *scratch; /* CPU_SCRATCH_ROWS * n floats of the calling thread's own; only for F16 and
			 * BF16 */
};

typedef void cpu_dot_fn(const struct cpu_dot *dot);

/* y[i] = sum over p of weights[p] * v[p * n + i], in the order of p; i < n */
typedef void cpu_mix_fn(const float *v, const float *weights, uint32_t n_positions, uint32_t n,
			float *y);

/* As fixed_set. */
typedef void cpu_fix_fn(const float *x, uint32_t first, uint32_t n, float top,
			struct fixed_block *ret);

struct cpu_type_dot {
	uint32_t type;
	cpu_dot_fn *dot;
};

#define CPU_FLOAT_TYPES 3
#define CPU_FIXED_TYPES 5

struct cpu_kernels {
	const char *name;                  /* "avx512vnni", "avx512", "avxvnni", "avx2", "c" */
	const struct cpu_type_dot *floats; /* (CPU_FLOAT_TYPES) */
	const struct cpu_type_dot *fixed;  /* (CPU_FIXED_TYPES) */
	cpu_mix_fn *mix;
	cpu_fix_fn *fix;
	uint32_t needs; /* of the CPU: bits of cpu_kernels.c */
};

/* The fastest that this CPU can run. */
const struct cpu_kernels *cpu_kernels_best(void);

/* From the fastest to plain C; NULL: there are no more.  This CPU may not be able to run it. */
const struct cpu_kernels *cpu_kernels_get(uint32_t index);
bool cpu_kernels_usable(const struct cpu_kernels *kernels);

/* NULL: no such set, or this CPU cannot run it. */
const struct cpu_kernels *cpu_kernels_find(const char *name);

/* NULL: not a type of common/types.h. */
cpu_dot_fn *cpu_kernels_dot(const struct cpu_kernels *kernels, uint32_t type);

/* What the sets are made of. */
extern const struct cpu_type_dot cpu_floats_avx512[], cpu_floats_avx2[], cpu_floats_c[];
extern const struct cpu_type_dot cpu_fixed_vnni[], cpu_fixed_avx512[], cpu_fixed_avxvnni[],
    cpu_fixed_avx2[], cpu_fixed_c[];
cpu_mix_fn cpu_mix_avx512, cpu_mix_avx2, cpu_mix_c;
cpu_fix_fn cpu_fix_avx2;

#endif
