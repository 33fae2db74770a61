/* Plain C: for a CPU without the vector sets, and what they are compared with.  A row of
 * floats goes through 16 partial sums. */
#include "worker/cpu_kernels.h"

#include <string.h>

#include "common/types.h"

#define LANES 16

/* w: floats at any alignment */
static float
dot_floats(const uint8_t *w, const float *x, uint32_t n)
{
	float sums[LANES] = { 0 }, some[LANES] = { 0 };
	uint32_t i = 0;

	for (; i + LANES <= n; i += LANES) {
		memcpy(some, w + i * sizeof(float), sizeof(some));
		for (uint32_t j = 0; j < LANES; j++)
			sums[j] += some[j] * x[i + j];
	}
	memcpy(some, w + i * sizeof(float), (n - i) * sizeof(float));
	for (uint32_t j = 0; i + j < n; j++)
		sums[j] += some[j] * x[i + j];
	for (uint32_t half = LANES / 2; half > 0; half /= 2)
		for (uint32_t j = 0; j < half; j++)
			sums[j] += sums[j + half];
	return sums[0];
}

static void
rows_dot(const struct cpu_dot *dot, const struct type_info *info)
{
	for (uint32_t r = 0; r < dot->n_rows; r++) {
		const uint8_t *row = dot->rows + r * dot->row_bytes;

		if (info->type != TYPE_F32) {
			info->unpack(row, dot->scratch, dot->n / info->block_elements);
			row = (const void *)dot->scratch;
		}
		for (uint32_t c = 0; c < dot->n_columns; c++)
			dot->y[c][r] = dot_floats(row, dot->x[c], dot->n);
	}
}

#define FLOATS_FUNCTION(type)                             \
	static void dot_##type(const struct cpu_dot *dot) \
	{                                                 \
		rows_dot(dot, type_find(type));           \
	}

FLOATS_FUNCTION(TYPE_F32)
FLOATS_FUNCTION(TYPE_F16)
FLOATS_FUNCTION(TYPE_BF16)

static void
rows_dot_fixed(const struct cpu_dot *dot, const struct fixed_type *type)
{
	for (uint32_t r = 0; r < dot->n_rows; r++)
		for (uint32_t c = 0; c < dot->n_columns; c++)
			dot->y[c][r] =
			    fixed_dot(type, dot->rows + r * dot->row_bytes, dot->n, dot->fixed[c]);
}

#define FIXED_FUNCTION(type)                                \
	static void dot_##type(const struct cpu_dot *dot)   \
	{                                                   \
		rows_dot_fixed(dot, fixed_type_find(type)); \
	}

FIXED_FUNCTION(TYPE_Q8_0)
FIXED_FUNCTION(TYPE_Q4_0)
FIXED_FUNCTION(TYPE_Q4_K)
FIXED_FUNCTION(TYPE_Q5_K)
FIXED_FUNCTION(TYPE_Q6_K)

void
cpu_mix_c(const float *v, const float *weights, uint32_t n_positions, uint32_t n, float *y)
{
	for (uint32_t i = 0; i < n; i++)
		y[i] = 0;
	for (uint32_t p = 0; p < n_positions; p++, v += n)
		for (uint32_t i = 0; i < n; i++)
			y[i] += weights[p] * v[i];
}

const struct cpu_type_dot cpu_floats_c[CPU_FLOAT_TYPES] = {
	{ TYPE_F32, dot_TYPE_F32 },
	{ TYPE_F16, dot_TYPE_F16 },
	{ TYPE_BF16, dot_TYPE_BF16 },
};

const struct cpu_type_dot cpu_fixed_c[CPU_FIXED_TYPES] = {
	{ TYPE_Q8_0, dot_TYPE_Q8_0 }, { TYPE_Q4_0, dot_TYPE_Q4_0 }, { TYPE_Q4_K, dot_TYPE_Q4_K },
	{ TYPE_Q5_K, dot_TYPE_Q5_K }, { TYPE_Q6_K, dot_TYPE_Q6_K },
};
