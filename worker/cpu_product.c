/* Matrices of the trunk times a batch, and the norms before them. */
#include <math.h>
#include <string.h>

#include "common/types.h"
#include "worker/cpu_compute.h"

struct multiplication {
	const struct compute *compute;
	const struct cpu_product *products;
	uint32_t rows_a_part[CPU_MAX_PRODUCTS];
	uint32_t n_parts[CPU_MAX_PRODUCTS];
};

static void
multiply_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct multiplication *job = arg;
	const struct cpu_product *product = job->products;
	const struct matrix *matrix;
	const float *x[COMPUTE_BATCH];
	const struct fixed_block *fixed[COMPUTE_BATCH];
	float *y[COMPUTE_BATCH];
	uint32_t which = 0, first, left;
	struct cpu_dot dot = { .x = x, .fixed = fixed, .y = y };

	while (part >= job->n_parts[which])
		part -= job->n_parts[which++];
	product += which;
	matrix = product->matrix;
	first = part * job->rows_a_part[which];
	left = matrix->rows - first;
	for (uint32_t c = 0; c < product->n_columns; c++) {
		x[c] = product->x->x + c * product->x->stride;
		fixed[c] = product->x->fixed + c * product->x->blocks;
		y[c] = product->y + c * product->y_stride + first;
	}
	dot.row_bytes = matrix->bytes / matrix->rows;
	dot.rows = cpu_trunk_at(job->compute, matrix) + first * dot.row_bytes;
	dot.n_rows = left < job->rows_a_part[which] ? left : job->rows_a_part[which];
	dot.n = matrix->columns;
	dot.n_columns = product->n_columns;
	cpu_dot_rows(&job->compute->crew, matrix->type, &dot, thread);
}

void
cpu_multiply(struct compute *compute, const struct cpu_product *products, uint32_t n_products)
{
	struct multiplication job = { .compute = compute, .products = products };
	uint32_t n_parts = 0;

	for (uint32_t i = 0; i < n_products; i++) {
		const struct matrix *matrix = products[i].matrix;
		uint64_t work = matrix->bytes / matrix->rows * products[i].n_columns;
		uint32_t rows = cpu_rows_a_part(&compute->crew, matrix->rows, work);

		job.rows_a_part[i] = rows;
		job.n_parts[i] = (matrix->rows - 1) / rows + 1;
		n_parts += job.n_parts[i];
	}
	cpu_pool_run(compute->crew.pool, multiply_part, &job, n_parts);
}

void
cpu_norm(const struct compute *compute, const struct matrix *weight, const float *x, float *y)
{
	const uint8_t *weights = cpu_trunk_at(compute, weight);
	uint32_t n = weight->columns;
	float squares = 0, *to = &squares;
	struct cpu_dot dot = {
		.rows = (const void *)x, .n_rows = 1, .n = n, .n_columns = 1, .x = &x, .y = &to
	};
	float scale;

	cpu_kernels_dot(compute->crew.kernels, TYPE_F32)(&dot);
	scale = 1 / sqrtf(squares / (float)n + compute->config.model->norm_epsilon);
	for (uint32_t i = 0; i < n; i++) {
		float w; /* at any alignment */

		memcpy(&w, weights + i * sizeof(w), sizeof(w));
		y[i] = x[i] * scale * w;
	}
}

struct norming {
	struct compute *compute;
	const struct matrix *weight;
};

static void
norm_part(void *arg, uint32_t token, uint32_t thread)
{
	const struct norming *job = arg;
	struct compute *compute = job->compute;
	const struct cpu_vectors *normed = &compute->normed;

	(void)thread;
	cpu_norm(compute, job->weight, compute->x + token * compute->hidden_stride,
		 normed->x + token * normed->stride);
	cpu_fix(&compute->crew, normed, token, 0, normed->width);
}

void
cpu_norm_all(struct compute *compute, const struct matrix *weight)
{
	struct norming job = { compute, weight };

	cpu_pool_run(compute->crew.pool, norm_part, &job, compute->n);
}
