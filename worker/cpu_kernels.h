/* The CPU's inner loops, in sets by instruction set; one is chosen at start.
 *
 * Each product has one order of operations, whatever the number of rows and columns of a call: the
 * elements of a row go to 4 * lanes partial sums in turn, which are then added in a fixed tree.  So
 * a token computed alone and one computed in a batch get the same bits. */
#ifndef HEARTH_WORKER_CPU_KERNELS_H
#define HEARTH_WORKER_CPU_KERNELS_H

#include <stdint.h>

#define CPU_SCRATCH_ROWS 4u

/* y[c][r] = row r . column c */
struct cpu_dot {
	const uint8_t *rows; /* (n_rows, row_bytes), any alignment */
	uint64_t row_bytes;
	uint32_t n_rows;
	uint32_t n; /* elements of a row: whole blocks */
	uint32_t n_columns;
	const float *const *x; /* (n_columns) pointers to n floats */
	float *const *y;       /* (n_columns) pointers to n_rows floats */
	float *scratch; /* CPU_SCRATCH_ROWS * n floats of the calling thread's own; not used for F32
			 * and one column */
};

typedef void cpu_dot_fn(const struct cpu_dot *dot);

struct cpu_type_dot {
	uint32_t type;
	cpu_dot_fn *dot;
};

struct cpu_kernels {
	const char *name; /* "avx512", "avx2", "c" */
	struct cpu_type_dot types[8];
	/* y[i] = sum over p of weights[p] * v[p * n + i], in the order of p; i < n */
	void (*mix)(const float *v, const float *weights, uint32_t n_positions, uint32_t n,
		    float *y);
};

/* The fastest that this CPU can run. */
const struct cpu_kernels *cpu_kernels_best(void);

/* NULL: no such set, or this CPU cannot run it. */
const struct cpu_kernels *cpu_kernels_find(const char *name);

/* NULL: not a type of common/types.h. */
cpu_dot_fn *cpu_kernels_dot(const struct cpu_kernels *kernels, uint32_t type);

extern const struct cpu_kernels cpu_kernels_avx512, cpu_kernels_avx2, cpu_kernels_c;

#endif
