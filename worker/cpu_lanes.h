/* Rows times vectors with the very bits of the GPU's kernels (cuda_rows.cuh): 32 lanes of a warp
 * are four vectors of eight, in the same order of the same additions.  For what a CPU computes in a
 * GPU's place.  Owns no memory. */
#ifndef HEARTH_WORKER_CPU_LANES_H
#define HEARTH_WORKER_CPU_LANES_H

#include <stdbool.h>
#include <stdint.h>

#define LANES_COLUMNS 256u /* of a block */
#define LANES_GROUP 16u    /* columns with one unit */
#define LANES_ACT 32u      /* rows of act at once */

/* 256 columns of a vector as the GPU has them: cuda_fixed.cuh.  `low` and `high`: runs of 16
 * columns, those of the second half in the order 7, 6, .. 0. */
struct lanes_fixed {
	int8_t low[LANES_COLUMNS], high[LANES_COLUMNS];
	struct {
		float unit;
		int32_t sum;
	} group[LANES_COLUMNS / LANES_GROUP];
	uint8_t behind[16];
};

/* The same as a type's rows want it: of the eight parts of a length of 256 elements the first and
 * the second run; what belongs to a part in the order of parts 0, 2, 4, 6, 1, 3, 5, 7. */
struct lanes_block {
	_Alignas(32) int8_t low[2][LANES_COLUMNS / 2];
	int8_t high[2][LANES_COLUMNS / 2];
	float unit[2][8], sum[2][8];
	int32_t start[2][8];
};

static inline uint32_t
lanes_blocks(uint32_t columns)
{
	return (columns + LANES_COLUMNS - 1) / LANES_COLUMNS;
}

/* Whether the type's rows have integers to multiply. */
bool lanes_type_known(uint32_t type);

/* lanes_blocks(columns) blocks of a vector for rows of a type. */
void lanes_set(uint32_t type, const struct lanes_fixed *from, uint32_t columns,
	       struct lanes_block *ret);

struct lanes_rows {
	uint32_t type, columns;
	const uint8_t *rows; /* (n_rows, row_bytes), any alignment */
	uint64_t row_bytes;
	uint32_t n_rows;
	const struct lanes_block *x; /* as lanes_set made it for this type */
	float *y;                    /* (n_rows) */
};

/* What lies between an expert's halves: silu(gate) * up * weight of n <= LANES_ACT rows, a multiple
 * of LANES_GROUP, as columns first .. of a block. */
struct lanes_act {
	const float *gate, *up;
	float weight;
	uint32_t n, first;
};

struct lanes_kernels {
	const char *name;
	void (*rows)(const struct lanes_rows *rows);
	void (*act)(const struct lanes_act *act, struct lanes_fixed *ret);
};

/* NULL: this CPU can run none. */
const struct lanes_kernels *lanes_kernels_best(void);
/* From the fastest on; NULL: there are no more.  This CPU may not be able to run it. */
const struct lanes_kernels *lanes_kernels_get(uint32_t index);
bool lanes_kernels_usable(const struct lanes_kernels *kernels);

/* What the sets are made of. */
extern const struct lanes_kernels lanes_vnni, lanes_avxvnni, lanes_avx2;

#endif
