/* A vector as fixed-point numbers, for products with quantized rows that are exact in integers.
 *
 * Of each group of 32 columns: unit = max |x| / top, v = x * (top / max |x|) rounded to the nearest
 * even integer, both divisions in float32; x is then about unit * v.  A group that holds an
 * infinity or a NaN has unit NaN and v 0; one whose max |x| is below FIXED_LEAST has unit 0 and
 * v 0.  With |v| <= FIXED_TOP a row's sums S = sum of quant * v over a group fit 32 bits for every
 * type, quants centred.
 *
 * Here v is kept in three signed digits of base 128: products of 8-bit quants with two digits fit
 * the 16 bits of the older vector instructions.  The product of a row with x is, of each group,
 *     (scale * unit) * (float)S - minimum * (unit * (float)sum of v)
 * without fused steps, group g to partial sum g % 8 (fixed.c has the whole order), so that every
 * instruction set gives the same bits.  Owns no memory. */
#ifndef HEARTH_WORKER_FIXED_H
#define HEARTH_WORKER_FIXED_H

#include <stdint.h>

#define FIXED_GROUP 32u
#define FIXED_COLUMNS 256u /* of a block */
#define FIXED_TOP 524287.0f
#define FIXED_LEAST 0x1p-100f

struct fixed_block {
	int8_t high[FIXED_COLUMNS], middle[FIXED_COLUMNS], low[FIXED_COLUMNS];
	float unit[8];
	float base[8];      /* -unit * (float)sum */
	int32_t sum[8];     /* of v, of each group */
	int32_t halves[16]; /* of v, of each 16 columns */
	uint8_t to_line[32];
};

/* Columns of a row with a scale of their own. */
enum fixed_kind {
	FIXED_MINIMUM, /* 32, and a minimum */
	FIXED_CENTRED, /* 32 */
	FIXED_HALVES,  /* 16 */
};

/* What 256 columns of a row hold: value = scale * (quant - centre) - minimum. */
struct fixed_weights {
	uint8_t quant[FIXED_COLUMNS];
	float scale[16]; /* of each 16 columns (FIXED_HALVES), else of each 32: the first 8 */
	float minimum[8];
};

struct fixed_type {
	uint32_t type;
	enum fixed_kind kind;
	int32_t centre;
	/* n_groups groups of 32 columns, whole blocks of the type, at most 8. */
	void (*unpack)(const uint8_t *row, uint32_t n_groups, struct fixed_weights *ret);
};

/* NULL: the type's rows are multiplied with floats. */
const struct fixed_type *fixed_type_find(uint32_t type);

/* How many blocks n columns take. */
uint32_t fixed_blocks(uint32_t n);

/* Columns first .. first + n - 1 of a vector from x[0..n-1]; first and n: whole groups.  The last
 * block's groups behind the vector's end must be all zero bits. */
void fixed_set(const float *x, uint32_t first, uint32_t n, float top, struct fixed_block *ret);

/* A row of n columns times x: the definition of what every set computes. */
float fixed_dot(const struct fixed_type *type, const uint8_t *row, uint32_t n,
		const struct fixed_block *x);

#endif
