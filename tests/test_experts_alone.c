/* The CPU's share of a layer's experts against sums in double, and against itself. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/types.h"
#include "tests/experts_alone.h"
#include "tests/golden.h"
#include "tests/random_rows.h"

static struct golden_model golden; /* all block types, rows that fill no vector */
static float *x, *out, *other;     /* (hidden) */
static float weights[64];
static const struct expert_place *places[64];

static int
setup(void **state)
{
	uint32_t hidden;

	(void)state;
	golden_model_open(&golden, "tests/data/odd-shapes.gguf");
	hidden = golden.model.hidden;
	assert_in_range(golden.model.top_k, 2, 64);
	x = calloc(hidden, sizeof(*x));
	out = calloc(hidden, sizeof(*out));
	other = calloc(hidden, sizeof(*other));
	random_begin(3);
	for (uint32_t i = 0; i < hidden; i++)
		x[i] = random_float();
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	free(x);
	free(out);
	free(other);
	golden_model_close(&golden);
	return 0;
}

/* n experts of a layer, with weights of both signs. */
static void
choose(uint32_t layer, uint32_t n)
{
	const struct model *model = &golden.model;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t expert = (i * 3 + layer) % model->n_experts;

		places[i] = &golden.places[(size_t)layer * model->n_experts + expert];
		weights[i] = random_float();
	}
}

static void
run(uint32_t threads, uint32_t layer, uint32_t n, float *to)
{
	struct experts_alone *alone;
	struct error err = { "" };

	if (experts_alone_open(&alone, &golden.model, threads, &err) < 0)
		fail_msg("%s", err.text);
	memset(to, 0x7f, golden.model.hidden * sizeof(*to));
	experts_alone_run(alone, layer, x, places, weights, n, to);
	experts_alone_close(alone);
}

/* y[r] = row r . x, in double. */
static void
multiply(const struct experts *experts, const void *at, const double *from, double *y)
{
	const struct type_info *info = type_find(experts->type);
	float *row = calloc(experts->columns, sizeof(*row));
	uint64_t row_bytes = experts->bytes / experts->rows;

	for (uint32_t r = 0; r < experts->rows; r++) {
		info->unpack((const uint8_t *)at + r * row_bytes, row,
			     experts->columns / info->block_elements);
		y[r] = 0;
		for (uint32_t i = 0; i < experts->columns; i++)
			y[r] += row[i] * from[i];
	}
	free(row);
}

/* What `out` should be, as the relative norm of the difference. */
static double
relative_error(uint32_t layer, uint32_t n)
{
	const struct model *model = &golden.model;
	const struct experts *role = model->layers[layer].role;
	double *in = calloc(model->hidden, sizeof(*in)), *sum = calloc(model->hidden, sizeof(*in));
	double *gate = calloc(model->expert_width, sizeof(*in));
	double *up = calloc(model->expert_width, sizeof(*in));
	double *down = calloc(model->hidden, sizeof(*in)), error = 0, size = 0;

	for (uint32_t i = 0; i < model->hidden; i++)
		in[i] = x[i];
	for (uint32_t e = 0; e < n; e++) {
		multiply(&role[ROLE_GATE], places[e]->role[ROLE_GATE], in, gate);
		multiply(&role[ROLE_UP], places[e]->role[ROLE_UP], in, up);
		for (uint32_t i = 0; i < model->expert_width; i++)
			gate[i] *= up[i] / (1 + exp(-gate[i]));
		multiply(&role[ROLE_DOWN], places[e]->role[ROLE_DOWN], gate, down);
		for (uint32_t i = 0; i < model->hidden; i++)
			sum[i] += weights[e] * down[i];
	}
	for (uint32_t i = 0; i < model->hidden; i++) {
		error += (out[i] - sum[i]) * (out[i] - sum[i]);
		size += sum[i] * sum[i];
	}
	free(in);
	free(sum);
	free(gate);
	free(up);
	free(down);
	return sqrt(error / size);
}

/* x and what is between an expert's halves are each rounded to 2^-20 of a group's greatest. */
static void
is_the_weighted_sum_of_the_experts(void **state)
{
	(void)state;
	for (uint32_t layer = 0; layer < golden.model.n_layers; layer++)
		for (uint32_t n = 1; n <= golden.model.top_k; n++) {
			choose(layer, n);
			run(2, layer, n, out);
			assert_true(relative_error(layer, n) < 8 * 0x1p-20);
		}
}

static void
threads_and_places_change_no_bit(void **state)
{
	const struct model *model = &golden.model;
	size_t bytes = model->hidden * sizeof(*out);

	(void)state;
	for (uint32_t layer = 0; layer < model->n_layers; layer++) {
		const struct experts *role = model->layers[layer].role;
		struct expert_place moved;
		uint8_t *copies[N_ROLES];

		choose(layer, model->top_k);
		run(1, layer, model->top_k, out);
		run(5, layer, model->top_k, other);
		assert_memory_equal(out, other, bytes);
		for (int r = 0; r < N_ROLES; r++) { /* exactly as long, at an odd address */
			copies[r] = malloc(role[r].bytes + 1);
			memcpy(copies[r] + 1, places[1]->role[r], role[r].bytes);
			moved.role[r] = copies[r] + 1;
		}
		places[1] = &moved;
		run(3, layer, model->top_k, other);
		assert_memory_equal(out, other, bytes);
		for (int r = 0; r < N_ROLES; r++)
			free(copies[r]);
	}
}

static void
refuses_no_threads(void **state)
{
	struct experts_alone *alone;
	struct error err = { "" };

	(void)state;
	assert_int_equal(experts_alone_open(&alone, &golden.model, 0, &err), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(is_the_weighted_sum_of_the_experts),
		cmocka_unit_test(threads_and_places_change_no_bit),
		cmocka_unit_test(refuses_no_threads),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
