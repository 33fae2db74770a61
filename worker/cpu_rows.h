/* What the vector kernel sets share of rows of floats: a row's units of 4 vectors go either to the
 * partial sums of 1 to 4 columns or, unpacked, to memory.  Included once by each set, after it has
 * defined VEC, LANES         a vector of LANES floats; a unit is 4 of them MIX                the
 * name of the set's cpu_mix_fn FUSED_COLUMNS      columns whose sums fit the registers beside a
 * unit vec_zero vec_all vec_load vec_store vec_fma vec_add vec_sum A type gives one function that
 * walks a row's whole units and calls take() with each.  `mode` is a constant in every expansion: 0
 * stores, else the number of columns. */
#ifndef HEARTH_WORKER_CPU_ROWS_H
#define HEARTH_WORKER_CPU_ROWS_H

#include <string.h>

#include "common/types.h"
#include "worker/cpu_kernels.h"

#define UNIT (4 * LANES)
#define INLINE static inline __attribute__((always_inline))

/* Rows follow one another in memory, so this runs ahead into the next one; one core of a Xeon
 * (Sapphire Rapids) needs about this distance to keep its line buffers full. */
#define PREFETCH_BYTES 1024

struct column {
	const float *x;
	VEC sum0, sum1, sum2, sum3;
};

struct lanes {
	struct column a, b, c, d;
	float *out;
};

typedef void units_fn(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode);

INLINE void
column_take(struct column *column, VEC w0, VEC w1, VEC w2, VEC w3)
{
	column->sum0 = vec_fma(w0, vec_load(column->x), column->sum0);
	column->sum1 = vec_fma(w1, vec_load(column->x + LANES), column->sum1);
	column->sum2 = vec_fma(w2, vec_load(column->x + 2 * LANES), column->sum2);
	column->sum3 = vec_fma(w3, vec_load(column->x + 3 * LANES), column->sum3);
	column->x += UNIT;
}

INLINE void
take(struct lanes *lanes, int mode, VEC w0, VEC w1, VEC w2, VEC w3)
{
	if (mode == 0) {
		vec_store(lanes->out, w0);
		vec_store(lanes->out + LANES, w1);
		vec_store(lanes->out + 2 * LANES, w2);
		vec_store(lanes->out + 3 * LANES, w3);
		lanes->out += UNIT;
	}
	if (mode >= 1)
		column_take(&lanes->a, w0, w1, w2, w3);
	if (mode >= 2)
		column_take(&lanes->b, w0, w1, w2, w3);
	if (mode >= 3)
		column_take(&lanes->c, w0, w1, w2, w3);
	if (mode >= 4)
		column_take(&lanes->d, w0, w1, w2, w3);
}

/* The last elements of a row that fill no unit: zeros stand in for the missing ones. */
static __attribute__((noinline)) void
column_take_rest(struct column *column, const float *padded, uint32_t rest)
{
	float x[UNIT] = { 0 };

	memcpy(x, column->x, rest * sizeof(float));
	column->x = x;
	column_take(column, vec_load(padded), vec_load(padded + LANES),
		    vec_load(padded + 2 * LANES), vec_load(padded + 3 * LANES));
	column->x = NULL;
}

static __attribute__((noinline)) void
take_rest(struct lanes *lanes, int mode, uint32_t type, const uint8_t *at, uint32_t rest)
{
	const struct type_info *info = type_find(type);
	float padded[UNIT] = { 0 };

	info->unpack(at, padded, rest / info->block_elements);
	if (mode == 0)
		memcpy(lanes->out, padded, rest * sizeof(float));
	if (mode >= 1)
		column_take_rest(&lanes->a, padded, rest);
	if (mode >= 2)
		column_take_rest(&lanes->b, padded, rest);
	if (mode >= 3)
		column_take_rest(&lanes->c, padded, rest);
	if (mode >= 4)
		column_take_rest(&lanes->d, padded, rest);
}

INLINE void
column_begin(struct column *column, const float *x)
{
	column->x = x;
	column->sum0 = column->sum1 = column->sum2 = column->sum3 = vec_zero();
}

INLINE float
column_end(const struct column *column)
{
	return vec_sum(
	    vec_add(vec_add(column->sum0, column->sum1), vec_add(column->sum2, column->sum3)));
}

INLINE void
walk(units_fn *units, uint32_t type, uint32_t unit_bytes, const uint8_t *row, uint32_t n,
     struct lanes *lanes, int mode)
{
	units(row, n / UNIT, lanes, mode);
	if (__builtin_expect(n % UNIT, 0)) {
		struct lanes copy = *lanes; /* so that the sums above stay in registers */

		take_rest(&copy, mode, type, row + (uint64_t)(n / UNIT) * unit_bytes, n % UNIT);
		*lanes = copy;
	}
}

/* Rows against `mode` columns, x[0..mode-1] to y[0..mode-1][r]. */
INLINE void
rows_dot(units_fn *units, uint32_t type, uint32_t unit_bytes, const struct cpu_dot *dot, int mode)
{
	const uint8_t *row = dot->rows;

	for (uint32_t r = 0; r < dot->n_rows; r++, row += dot->row_bytes) {
		struct lanes lanes;

		column_begin(&lanes.a, dot->x[0]);
		if (mode >= 2)
			column_begin(&lanes.b, dot->x[1]);
		if (mode >= 3)
			column_begin(&lanes.c, dot->x[2]);
		if (mode >= 4)
			column_begin(&lanes.d, dot->x[3]);
		walk(units, type, unit_bytes, row, dot->n, &lanes, mode);
		dot->y[0][r] = column_end(&lanes.a);
		if (mode >= 2)
			dot->y[1][r] = column_end(&lanes.b);
		if (mode >= 3)
			dot->y[2][r] = column_end(&lanes.c);
		if (mode >= 4)
			dot->y[3][r] = column_end(&lanes.d);
	}
}

/* At most FUSED_COLUMNS columns. */
INLINE void
rows_dot_few(units_fn *units, uint32_t type, uint32_t unit_bytes, const struct cpu_dot *dot)
{
	switch (dot->n_columns) {
	case 1:
		rows_dot(units, type, unit_bytes, dot, 1);
		break;
	case 2:
		rows_dot(units, type, unit_bytes, dot, 2);
		break;
#if FUSED_COLUMNS >= 4
	case 3:
		rows_dot(units, type, unit_bytes, dot, 3);
		break;
	case 4:
		rows_dot(units, type, unit_bytes, dot, 4);
		break;
#endif
	}
}

INLINE void
f32_units(const uint8_t *row, uint32_t n_units, struct lanes *lanes, int mode)
{
	for (; n_units > 0; n_units--, row += UNIT * sizeof(float)) {
		const float *w = (const void *)row; /* loads of any alignment */

		__builtin_prefetch(row + PREFETCH_BYTES);
		take(lanes, mode, vec_load(w), vec_load(w + LANES), vec_load(w + 2 * LANES),
		     vec_load(w + 3 * LANES));
	}
}

static __attribute__((noinline)) void
dot_few_f32(const struct cpu_dot *dot)
{
	rows_dot_few(f32_units, TYPE_F32, UNIT * sizeof(float), dot);
}

/* Many columns: FUSED_COLUMNS rows are unpacked, then rows and columns change places, so that each
 * column is read once for all of them.  A product has the same bits either way round. */
INLINE void
rows_dot_many(units_fn *units, uint32_t type, uint32_t unit_bytes, const struct cpu_dot *dot)
{
	for (uint32_t r = 0; r < dot->n_rows; r += FUSED_COLUMNS) {
		uint32_t left = dot->n_rows - r;
		const float *x[FUSED_COLUMNS];
		float *y[FUSED_COLUMNS];
		struct cpu_dot turned = { .n_rows = 1, .n = dot->n, .x = x, .y = y };

		turned.n_columns = left < FUSED_COLUMNS ? left : FUSED_COLUMNS;
		for (uint32_t i = 0; i < turned.n_columns; i++) {
			struct lanes lanes;

			lanes.out = dot->scratch + (uint64_t)i * dot->n;
			x[i] = lanes.out;
			walk(units, type, unit_bytes, dot->rows + (r + i) * dot->row_bytes, dot->n,
			     &lanes, 0);
		}
		for (uint32_t c = 0; c < dot->n_columns; c++) {
			turned.rows = (const void *)dot->x[c];
			for (uint32_t i = 0; i < turned.n_columns; i++)
				y[i] = dot->y[c] + r + i;
			dot_few_f32(&turned);
		}
	}
}

#define DOT_FUNCTION(name, type, unit_bytes)                                \
	static void dot_##name(const struct cpu_dot *dot)                   \
	{                                                                   \
		if (dot->n_columns <= FUSED_COLUMNS)                        \
			rows_dot_few(name##_units, type, unit_bytes, dot);  \
		else                                                        \
			rows_dot_many(name##_units, type, unit_bytes, dot); \
	}

DOT_FUNCTION(f32, TYPE_F32, UNIT * sizeof(float))

void
MIX(const float *v, const float *weights, uint32_t n_positions, uint32_t n, float *y)
{
	uint32_t i = 0;

	for (; i + UNIT <= n; i += UNIT) {
		struct column sums;

		column_begin(&sums, v + i);
		for (uint32_t p = 0; p < n_positions; p++) {
			VEC weight = vec_all(weights[p]);

			column_take(&sums, weight, weight, weight, weight);
			sums.x += (size_t)n - UNIT;
		}
		vec_store(y + i, sums.sum0);
		vec_store(y + i + LANES, sums.sum1);
		vec_store(y + i + 2 * LANES, sums.sum2);
		vec_store(y + i + 3 * LANES, sums.sum3);
	}
	for (; i + LANES <= n; i += LANES) {
		VEC sum = vec_zero();

		for (uint32_t p = 0; p < n_positions; p++)
			sum = vec_fma(vec_all(weights[p]), vec_load(v + (size_t)p * n + i), sum);
		vec_store(y + i, sum);
	}
	for (; i < n; i++) {
		y[i] = 0;
		for (uint32_t p = 0; p < n_positions; p++)
			y[i] += weights[p] * v[(size_t)p * n + i];
	}
}

#endif
