/* Matrices of the trunk times a batch, and the norms before them. */
#include <math.h>
#include <string.h>

#include "common/checked.h"
#include "common/types.h"
#include "worker/cpu_compute.h"

#define PARTS_A_THREAD 4u
#define MIN_PART_WORK (16u << 10) /* bytes: a few microseconds, several times what a part costs */

uint32_t
cpu_items_a_part(const struct compute *compute, uint64_t n_items, uint64_t item_work)
{
	uint64_t parts = (uint64_t)compute->config.threads * PARTS_A_THREAD;
	uint64_t fair = (n_items - 1) / parts + 1;
	uint64_t least = (MIN_PART_WORK - 1) / item_work + 1;
	uint64_t items = fair > least ? fair : least;

	return (uint32_t)(items < n_items ? items : n_items);
}

uint32_t
cpu_rows_a_part(const struct compute *compute, uint64_t n_rows, uint64_t row_work)
{
	uint64_t rows = round_up(cpu_items_a_part(compute, n_rows, row_work), CPU_SCRATCH_ROWS);

	return (uint32_t)(rows < n_rows ? rows : n_rows);
}

void
cpu_dot_rows(const struct compute *compute, uint32_t type, struct cpu_dot *dot, uint32_t thread)
{
	dot->scratch = compute->scratch + thread * compute->scratch_stride;
	cpu_kernels_dot(compute->kernels, type)(dot);
}

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
	float *y[COMPUTE_BATCH];
	uint32_t which = 0, first, left;
	struct cpu_dot dot = { .x = x, .y = y };

	while (part >= job->n_parts[which])
		part -= job->n_parts[which++];
	product += which;
	matrix = product->matrix;
	first = part * job->rows_a_part[which];
	left = matrix->rows - first;
	for (uint32_t c = 0; c < product->n_columns; c++) {
		x[c] = product->x + c * product->x_stride;
		y[c] = product->y + c * product->y_stride + first;
	}
	dot.row_bytes = matrix->bytes / matrix->rows;
	dot.rows = cpu_trunk_at(job->compute, matrix) + first * dot.row_bytes;
	dot.n_rows = left < job->rows_a_part[which] ? left : job->rows_a_part[which];
	dot.n = matrix->columns;
	dot.n_columns = product->n_columns;
	cpu_dot_rows(job->compute, matrix->type, &dot, thread);
}

void
cpu_multiply(struct compute *compute, const struct cpu_product *products, uint32_t n_products)
{
	struct multiplication job = { .compute = compute, .products = products };
	uint32_t n_parts = 0;

	for (uint32_t i = 0; i < n_products; i++) {
		const struct matrix *matrix = products[i].matrix;
		uint64_t work = matrix->bytes / matrix->rows * products[i].n_columns;
		uint32_t rows = cpu_rows_a_part(compute, matrix->rows, work);

		job.rows_a_part[i] = rows;
		job.n_parts[i] = (matrix->rows - 1) / rows + 1;
		n_parts += job.n_parts[i];
	}
	cpu_pool_run(compute->pool, multiply_part, &job, n_parts);
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

	cpu_kernels_dot(compute->kernels, TYPE_F32)(&dot);
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
	uint64_t at = token * job->compute->hidden_stride;

	(void)thread;
	cpu_norm(job->compute, job->weight, job->compute->x + at, job->compute->normed + at);
}

void
cpu_norm_all(struct compute *compute, const struct matrix *weight)
{
	struct norming job = { compute, weight };

	cpu_pool_run(compute->pool, norm_part, &job, compute->n);
}
