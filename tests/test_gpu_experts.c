/* The chosen experts of a token on the GPU against sums in double on the CPU: any types and widths,
 * any number of them, wherever they lie. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "common/checked.h"
#include "tests/gpu.h"
#include "tests/gpu_vectors.h"
#include "worker/cuda_kernels.h"

#define N_EXPERTS 5u
#define EPSILON 1e-6f

static struct device *device;
static uint64_t seed = 1;

struct shape {
	uint32_t hidden, width, top_k;
	uint32_t type[N_ROLES];
};

static const struct shape shapes[] = {
	{ 512, 256, 3, { TYPE_Q4_K, TYPE_Q4_K, TYPE_Q4_K } },
	{ 256, 768, 4, { TYPE_Q4_K, TYPE_Q4_K, TYPE_Q6_K } },
	{ 512, 256, 2, { TYPE_Q6_K, TYPE_Q6_K, TYPE_Q5_K } },
	{ 256, 512, 1, { TYPE_Q5_K, TYPE_Q4_K, TYPE_Q6_K } },
	{ 96, 160, 5, { TYPE_Q8_0, TYPE_Q8_0, TYPE_Q4_0 } },
	{ 160, 96, 2, { TYPE_Q4_0, TYPE_F16, TYPE_Q8_0 } },
	{ 160, 33, 3, { TYPE_Q4_0, TYPE_Q4_0, TYPE_BF16 } },
	{ 4096, 32, 2, { TYPE_Q8_0, TYPE_Q8_0, TYPE_Q4_0 } },
	{ 75, 41, 2, { TYPE_BF16, TYPE_BF16, TYPE_F16 } },
	{ 2052, 1030, 5, { TYPE_F32, TYPE_F32, TYPE_F32 } },
	{ 1, 1, 1, { TYPE_F32, TYPE_F16, TYPE_F32 } },
};

#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

struct layer {
	const struct shape *shape;
	uint32_t tokens;
	struct cuda_moe moe;
	struct expert_place *places;
	uint64_t bytes; /* of a matrix, and room to lie oddly */
	float *norm;
};

static uint32_t
rows_of(const struct shape *shape, enum role role)
{
	return role == ROLE_DOWN ? shape->hidden : shape->width;
}

static uint32_t
columns_of(const struct shape *shape, enum role role)
{
	return role == ROLE_DOWN ? shape->width : shape->hidden;
}

static void
experts_open(struct layer *l)
{
	const struct shape *shape = l->shape;

	l->bytes = 4ull * shape->hidden * shape->width + 4096;
	l->places = gpu_shared(device, N_EXPERTS * sizeof(*l->places));
	for (enum role role = ROLE_GATE; role < N_ROLES; role++) {
		const struct type_info *info = type_find(shape->type[role]);
		uint64_t row_bytes = 0;

		assert_true(type_row_bytes(info, columns_of(shape, role), &row_bytes));
		l->moe.type[role] = info->type;
		l->moe.row_bytes[role] = row_bytes;
		for (uint32_t e = 0; e < N_EXPERTS; e++) {
			/* F32 wants a multiple of 4, others one of 2. */
			uint8_t *at = gpu_shared(device, l->bytes);
			uint8_t *first = at + (e % 2 ? 4 * e + (info->type ? 2 : 0) : 0);

			for (uint32_t r = 0; r < rows_of(shape, role); r++)
				gpu_random_row(info, first + r * row_bytes, columns_of(shape, role),
					       &seed);
			l->places[e].role[role] = first;
		}
	}
}

static void
layer_open(struct layer *l, const struct shape *shape, uint32_t tokens)
{
	uint64_t slots = (uint64_t)tokens * shape->top_k;

	*l = (struct layer){ .shape = shape, .tokens = tokens };
	experts_open(l);
	l->norm = gpu_shared(device, shape->hidden * sizeof(float));
	l->moe.places = l->places;
	l->moe.hidden = shape->hidden;
	l->moe.width = shape->width;
	l->moe.experts = N_EXPERTS;
	l->moe.top_k = shape->top_k;
	l->moe.x = gpu_vectors_open(device, tokens, shape->hidden);
	l->moe.h.stride = l->moe.x.rows.stride;
	l->moe.h.at = gpu_shared(device, tokens * l->moe.h.stride * sizeof(float));
	l->moe.act = gpu_vectors_open(device, slots, shape->width);
	l->moe.chosen = gpu_shared(device, slots * sizeof(uint32_t));
	l->moe.weights = gpu_shared(device, slots * sizeof(float));
	l->moe.groups = gpu_shared(device, N_EXPERTS * sizeof(*l->moe.groups));
	l->moe.members = gpu_shared(device, slots * sizeof(uint32_t));
	l->moe.products.stride = l->moe.x.rows.stride;
	l->moe.products.at = gpu_shared(device, slots * l->moe.products.stride * sizeof(float));
	for (uint64_t i = 0; i < slots; i++) {
		l->moe.chosen[i] = (uint32_t)(i * 3 + i / shape->top_k) % N_EXPERTS;
		l->moe.weights[i] = 0.6f + 0.5f * gpu_random(&seed);
	}
	for (uint32_t i = 0; i < shape->hidden; i++)
		l->norm[i] = 0.1f * gpu_random(&seed) + 0.3f;
	for (uint64_t i = 0; i < (uint64_t)tokens * l->moe.h.stride; i++)
		l->moe.h.at[i] = gpu_random(&seed);
}

static void
layer_close(struct layer *l)
{
	const struct shape *shape = l->shape;
	uint64_t slots = (uint64_t)l->tokens * shape->top_k;

	for (enum role role = ROLE_GATE; role < N_ROLES; role++)
		for (uint32_t e = 0; e < N_EXPERTS; e++)
			gpu_shared_free(
			    device, (uint8_t *)round_down((uintptr_t)l->places[e].role[role], 4096),
			    l->bytes);
	gpu_shared_free(device, l->places, N_EXPERTS * sizeof(*l->places));
	gpu_shared_free(device, l->norm, shape->hidden * sizeof(float));
	gpu_shared_free(device, l->moe.h.at, l->tokens * l->moe.h.stride * sizeof(float));
	gpu_shared_free(device, l->moe.chosen, slots * sizeof(uint32_t));
	gpu_shared_free(device, l->moe.groups, N_EXPERTS * sizeof(*l->moe.groups));
	gpu_shared_free(device, l->moe.members, slots * sizeof(uint32_t));
	gpu_shared_free(device, l->moe.products.at, slots * l->moe.products.stride * sizeof(float));
	gpu_shared_free(device, l->moe.weights, slots * sizeof(float));
	gpu_vectors_close(device, &l->moe.x, l->tokens, shape->hidden);
	gpu_vectors_close(device, &l->moe.act, slots, shape->width);
}

/* Tokens from `first` on, `tokens` at once. */
static void
layer_run(const struct layer *l, uint32_t first, uint32_t tokens)
{
	const struct cuda_norm norm = { l->norm, EPSILON };
	struct cuda_moe moe = l->moe;
	struct error err = { "" };
	int r;

	moe.h.at += (uint64_t)first * moe.h.stride;
	moe.chosen += (uint64_t)first * moe.top_k;
	moe.weights += (uint64_t)first * moe.top_k;
	moe.x.rows.at += (uint64_t)first * moe.x.rows.stride;
	moe.x.fixed.at += (uint64_t)first * moe.x.fixed.stride;
	moe.act.rows.at += (uint64_t)first * moe.top_k * moe.act.rows.stride;
	moe.act.fixed.at += (uint64_t)first * moe.top_k * moe.act.fixed.stride;
	r = cuda_normed(NULL, moe.h, &norm, moe.hidden, moe.x, tokens, &err);
	if (!r)
		r = cuda_experts_in(NULL, &moe, tokens, &err);
	if (!r)
		r = cuda_experts_out(NULL, &moe, tokens, &err);
	if (!r)
		r = cuda_finish(NULL, &err);
	if (r)
		print_error("%s\n", err.text);
	assert_int_equal(r, 0);
}

/* Row r of an expert's matrix times x, and how far a product may be from it. */
static double
row_times(const struct layer *l, uint32_t expert, enum role role, uint32_t r, const double *x,
	  double *off)
{
	const struct type_info *info = type_find(l->shape->type[role]);
	uint32_t columns = columns_of(l->shape, role);
	float *row = calloc(columns, sizeof(*row));
	double ret;

	info->unpack((const uint8_t *)l->places[expert].role[role] + r * l->moe.row_bytes[role],
		     row, columns / info->block_elements);
	ret = gpu_product(row, x, columns);
	*off = gpu_product_error(info->type, row, x, columns);
	free(row);
	return ret;
}

static double *
in_double(const float *from, uint32_t n)
{
	double *ret = calloc(n, sizeof(*ret));

	for (uint32_t i = 0; i < n; i++)
		ret[i] = from[i];
	return ret;
}

/* The largest error of act, as a part of what is allowed. */
static double
act_error(const struct layer *l, uint64_t slot)
{
	const struct cuda_moe *moe = &l->moe;
	double *x = in_double(moe->x.rows.at + slot / moe->top_k * moe->x.rows.stride, moe->hidden);
	double worst = 0;

	for (uint32_t r = 0; r < moe->width; r++) {
		double gate_off, up_off, off;
		double gate = row_times(l, moe->chosen[slot], ROLE_GATE, r, x, &gate_off);
		double up = row_times(l, moe->chosen[slot], ROLE_UP, r, x, &up_off);
		double silu = gate / (1 + exp(-gate)), weight = moe->weights[slot];
		double got = moe->act.rows.at[slot * moe->act.rows.stride + r];

		/* silu's slope is at most 1.1. */
		off = weight * (1.1 * gate_off * (fabs(up) + up_off) + up_off * fabs(silu)) +
		      1e-6 * fabs(weight * silu * up);
		worst = fmax(worst, fabs(got - weight * silu * up) / off);
	}
	free(x);
	return worst;
}

/* The same of what was added to h, from act as it is. */
static double
out_error(const struct layer *l, uint32_t token, const float *before)
{
	const struct cuda_moe *moe = &l->moe;
	double worst = 0;

	for (uint32_t r = 0; r < moe->hidden; r++) {
		double want = before[(uint64_t)token * moe->h.stride + r], off = 1e-6 * fabs(want);

		for (uint32_t k = 0; k < moe->top_k; k++) {
			uint64_t slot = (uint64_t)token * moe->top_k + k;
			double *act =
			    in_double(moe->act.rows.at + slot * moe->act.rows.stride, moe->width);
			double one;

			want += row_times(l, moe->chosen[slot], ROLE_DOWN, r, act, &one);
			off += one;
			free(act);
		}
		worst =
		    fmax(worst, fabs(moe->h.at[(uint64_t)token * moe->h.stride + r] - want) / off);
	}
	return worst;
}

static void
experts_of_any_types_and_widths_agree_with_double(void **state)
{
	(void)state;
	for (size_t s = 0; s < N_SHAPES; s++) {
		double in = 0, out = 0;
		struct layer l;
		uint64_t bytes;
		float *before;

		layer_open(&l, &shapes[s], 2);
		bytes = 2 * l.moe.h.stride * sizeof(float);
		before = malloc(bytes);
		memcpy(before, l.moe.h.at, bytes);
		layer_run(&l, 0, 2);
		for (uint32_t slot = 0; slot < 2 * l.moe.top_k; slot += l.moe.top_k + 1)
			in = fmax(in, act_error(&l, slot));
		for (uint32_t token = 0; token < 2; token++)
			out = fmax(out, out_error(&l, token, before));
		printf("%u of width %u over %u: errors %.2f, %.2f of what is allowed\n",
		       shapes[s].top_k, shapes[s].width, shapes[s].hidden, in, out);
		assert_true(in <= 1 && out <= 1);
		free(before);
		layer_close(&l);
	}
}

static void
bits_of_experts_do_not_depend_on_the_batch(void **state)
{
	static const uint32_t batches[] = { 64, 7, 2, 1 };

	(void)state;
	for (size_t s = 0; s < N_SHAPES; s++) {
		float *before, *first;
		struct layer l;
		uint64_t bytes;

		if (shapes[s].hidden * shapes[s].width > 1000000)
			continue;
		layer_open(&l, &shapes[s], 64);
		bytes = 64 * l.moe.h.stride * sizeof(float);
		before = malloc(bytes);
		first = malloc(bytes);
		memcpy(before, l.moe.h.at, bytes);
		for (int b = 0; b < 4; b++) {
			uint32_t tokens = b == 0 ? 64 : 2 * batches[b];

			memcpy(l.moe.h.at, before, bytes);
			for (uint32_t token = 0; token < tokens; token += batches[b])
				layer_run(&l, token, batches[b]);
			if (b == 0)
				memcpy(first, l.moe.h.at, bytes);
			assert_memory_equal(first, l.moe.h.at,
					    tokens * l.moe.h.stride * sizeof(float));
		}
		assert_memory_not_equal(before, first, bytes);
		free(before);
		free(first);
		layer_close(&l);
	}
}

/* h[token] += down act of the experts slot..slot + n - 1 of those chosen. */
static void
out_run(const struct layer *l, uint32_t token, uint32_t slot, uint32_t n)
{
	struct cuda_moe moe = l->moe;
	struct error err = { "" };

	moe.h.at += (uint64_t)token * moe.h.stride;
	moe.chosen += slot;
	moe.act.rows.at += (uint64_t)slot * moe.act.rows.stride;
	moe.act.fixed.at += (uint64_t)slot * moe.act.fixed.stride;
	moe.top_k = n;
	assert_int_equal(cuda_experts_out(NULL, &moe, 1, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
}

static void
each_experts_product_is_a_sum_of_its_own_added_in_order(void **state)
{
	(void)state;
	for (size_t s = 0; s < N_SHAPES; s++) {
		uint32_t hidden = shapes[s].hidden, top_k = shapes[s].top_k;
		float *want = calloc(hidden, sizeof(*want));
		struct layer l;

		layer_open(&l, &shapes[s], 1);
		layer_run(&l, 0, 1);
		for (uint32_t k = 0; k < top_k; k++) {
			memset(l.moe.h.at, 0, hidden * sizeof(float));
			out_run(&l, 0, k, 1);
			for (uint32_t i = 0; i < hidden; i++)
				want[i] += l.moe.h.at[i];
		}
		memset(l.moe.h.at, 0, hidden * sizeof(float));
		out_run(&l, 0, 0, top_k);
		assert_memory_equal(l.moe.h.at, want, hidden * sizeof(float));
		free(want);
		layer_close(&l);
	}
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(experts_of_any_types_and_widths_agree_with_double),
		cmocka_unit_test(bits_of_experts_do_not_depend_on_the_batch),
		cmocka_unit_test(each_experts_product_is_a_sum_of_its_own_added_in_order),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
