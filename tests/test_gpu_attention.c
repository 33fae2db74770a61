/* Attention on the GPU against sums in double on the CPU, at any length and shape of heads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/gpu_attend.h"
#include "tests/gpu_fixed.h"

/* Relative.  Queries and weights are rounded to 2^-16 of the largest of a group; up to 5.3e-5 was
 * seen, at any length. */
#define TOLERANCE 1e-4

static struct device *device;
static uint64_t seed = 1;

/* -- in double -- */

static void
head_want(const struct cuda_attention *a, const float *x, const float *weight, uint32_t pos,
	  double *out)
{
	uint32_t half = a->head_dim / 2;
	double squares = 0, scale;

	for (uint32_t i = 0; i < a->head_dim; i++)
		squares += (double)x[i] * x[i];
	scale = 1 / sqrt(squares / a->head_dim + GPU_ATTEND_EPSILON);
	for (uint32_t i = 0; i < half; i++) {
		double angle = (float)pos * a->frequency[i];
		double low = x[i] * scale * weight[i],
		       high = x[half + i] * scale * weight[half + i];

		out[i] = low * cos(angle) - high * sin(angle);
		out[half + i] = high * cos(angle) + low * sin(angle);
	}
}

/* The rows of a position of the batch from `pos` on. */
static void
row_want(const struct gpu_attend *t, size_t kv_head, uint32_t p, uint32_t pos, double *key,
	 double *value)
{
	const struct cuda_attention *a = &t->a;
	size_t dim = a->head_dim;
	const float *x = a->qkv.at + (p - pos) * (size_t)a->qkv.stride + (a->heads + kv_head) * dim;

	head_want(a, x, a->k_norm, p, key);
	x += a->kv_heads * dim;
	for (size_t d = 0; d < dim; d++)
		value[d] = x[d];
}

/* Of what the cache holds now, which cache_check looks at. */
static void
attend_want(const struct gpu_attend *t, size_t token, size_t head, uint32_t pos, double *out)
{
	const struct cuda_attention *a = &t->a;
	size_t dim = a->head_dim;
	uint32_t kv_head = (uint32_t)head / (a->heads / a->kv_heads);
	double *q = calloc(3 * dim, sizeof(*q)), *key = q + dim, *value = key + dim;
	double top = -INFINITY, sum = 0;

	head_want(a, a->qkv.at + token * a->qkv.stride + head * dim, a->q_norm,
		  pos + (uint32_t)token, q);
	memset(out, 0, dim * sizeof(*out));
	for (uint32_t p = 0; p <= pos + token; p++) {
		double score = 0, before = top, weight;

		for (uint32_t d = 0; d < dim; d++) {
			key[d] = gpu_kv_get(&t->now[0], kv_head, p, d);
			value[d] = gpu_kv_get(&t->now[1], kv_head, p, d);
			score += q[d] * key[d];
		}
		score /= sqrt((double)dim);
		top = fmax(top, score);
		weight = exp(score - top);
		sum = sum * exp(before - top) + weight;
		for (size_t d = 0; d < dim; d++)
			out[d] = out[d] * exp(before - top) + weight * value[d];
	}
	for (size_t d = 0; d < dim; d++)
		out[d] /= sum;
	free(q);
}

/* ||got - want|| / ||want|| over all heads of a token. */
static double
attend_error(const struct gpu_attend *t, size_t token, uint32_t pos)
{
	size_t dim = t->a.head_dim;
	double want[GPU_ATTEND_DIM], off = 0, size = 0;

	for (size_t h = 0; h < t->a.heads; h++) {
		const float *got = t->a.out.rows.at + token * t->a.out.rows.stride + h * dim;

		attend_want(t, token, h, pos, want);
		for (size_t d = 0; d < dim; d++) {
			off += (got[d] - want[d]) * (got[d] - want[d]);
			size += want[d] * want[d];
		}
	}
	return sqrt(off / size);
}

/* A row of the batch is in the cache to half a unit, 2^-16 of a group's largest column. */
static void
row_check(const struct gpu_kv *kv, uint32_t head, uint32_t pos, const double *want)
{
	for (uint32_t first = 0; first < kv->head_dim; first += CUDA_KV_TILE) {
		float unit = gpu_kv_unit(kv, head, pos, first);
		double largest = 0;

		for (uint32_t i = first; i < first + CUDA_KV_TILE; i++) {
			double x = i < kv->head_dim ? want[i] : 0;

			largest = fmax(largest, fabs(x));
			/* The row itself is computed in float32. */
			assert_true(fabs(gpu_kv_get(kv, head, pos, i) - x) <= unit * 0.51 + 1e-5);
		}
		assert_true(fabs(unit - largest / 32512) <= 1e-5 / 32512);
	}
}

/* What a batch left in the cache; what is before it is as it was. */
static void
cache_check(const struct gpu_attend *t, uint32_t pos, uint32_t tokens)
{
	double key[GPU_ATTEND_DIM] = { 0 }, value[GPU_ATTEND_DIM] = { 0 };

	for (uint32_t h = 0; h < t->a.kv_heads; h++) {
		for (uint32_t p = 0; p < pos; p++)
			for (int i = 0; i < 2; i++)
				assert_true(gpu_kv_same(&t->now[i], &t->earlier[i], h, p));
		for (uint32_t p = pos; p < pos + tokens; p++) {
			row_want(t, h, p, pos, key, value);
			row_check(&t->now[0], h, p, key);
			row_check(&t->now[1], h, p, value);
		}
	}
}

/* -- the tests -- */

static void
check_lengths(const uint32_t shape[3], const uint32_t *positions, size_t n, uint32_t context)
{
	struct gpu_attend t;
	double worst = 0;

	gpu_attend_open(&t, device, shape, context, 4, &seed);
	for (size_t p = 0; p < n; p++) {
		uint32_t tokens = p % 2 ? 1 : 4;

		gpu_attend_reset(&t, positions[p]);
		memset(t.a.out.rows.at, 0xff, 4 * t.a.out.rows.stride * sizeof(float));
		gpu_attend_run(&t, positions[p], 0, tokens);
		cache_check(&t, positions[p], tokens);
		for (uint32_t i = 0; i < tokens; i += 3) {
			double error = attend_error(&t, i, positions[p]);

			assert_true(error < TOLERANCE);
			worst = fmax(worst, error);
			if (shape[0] * shape[2] % 32 == 0)
				gpu_fixed_check(&t.a.out, i, shape[0] * shape[2]);
		}
	}
	printf("heads %u/%u of %u: relative error up to %u positions %.1e\n", shape[0], shape[1],
	       shape[2], positions[n - 1] + 1, worst);
	gpu_attend_close(&t);
}

static void
attention_agrees_with_double_at_any_length(void **state)
{
	static const uint32_t shapes[][3] = { { 32, 4, 128 }, { 4, 4, 64 },  { 4, 2, 80 },
					      { 6, 2, 96 },   { 9, 1, 128 }, { 10, 2, 256 },
					      { 2, 1, 300 },  { 3, 3, 40 },  { 4, 2, 18 },
					      { 2, 1, 1024 }, { 14, 2, 64 }, { 16, 1, 32 },
					      { 64, 64, 16 } };
	static const uint32_t positions[] = { 0, 0, 30, 255, 254, 256 };
	static const uint32_t long_shape[3] = { 8, 2, 128 }, long_positions[] = { 0, 4095 };
	static const uint32_t many_shape[3] = { 130, 130, 128 }, many_positions[] = { 0, 200 };
	static const uint32_t longest_shape[3] = { 2, 1, 8 }, longest_positions[] = { 0, 20000 };

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
		check_lengths(shapes[s], positions, sizeof(positions) / sizeof(positions[0]), 258);
	check_lengths(long_shape, long_positions, 2, 4096);
	check_lengths(many_shape, many_positions, 2, 201);
	check_lengths(longest_shape, longest_positions, 2, 20001);
}

static void
attention_bits_do_not_depend_on_the_batch(void **state)
{
	static const uint32_t shapes[][3] = { { 8, 1, 64 }, { 3, 3, 40 }, { 2, 1, 256 } };
	static const uint32_t positions[] = { 30, 230 }, batches[] = { 1, 2, 7, 64 };

	(void)state;
	for (size_t i = 0; i < 3 * 2; i++) {
		uint32_t pos = positions[i % 2];
		struct gpu_attend t;
		uint64_t rows, cache;
		uint8_t *want;

		gpu_attend_open(&t, device, shapes[i / 2], pos + 64, 64, &seed);
		rows = 64 * t.a.out.rows.stride * sizeof(float);
		cache = t.cache;
		want = malloc(rows + 2 * cache);
		for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
			uint32_t n = batches[b];

			gpu_attend_reset(&t, pos);
			memset(t.a.out.rows.at, 0, rows);
			for (uint32_t first = 0; first < 64; first += n)
				gpu_attend_run(&t, pos, first, 64 - first < n ? 64 - first : n);
			if (b == 0) {
				memcpy(want, t.a.out.rows.at, rows);
				memcpy(want + rows, t.a.keys, cache);
				memcpy(want + rows + cache, t.a.values, cache);
			}
			assert_memory_equal(t.a.out.rows.at, want, rows);
			assert_memory_equal(t.a.keys, want + rows, cache);
			assert_memory_equal(t.a.values, want + rows + cache, cache);
		}
		free(want);
		gpu_attend_close(&t);
	}
}

static void
attention_bits_do_not_depend_on_the_room_for_a_context(void **state)
{
	static const uint32_t shape[3] = { 8, 1, 64 }, contexts[] = { 651, 40000 };
	float want[8 * 64] = { 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct gpu_attend t;

		gpu_attend_open(&t, device, shape, contexts[i], 1, &seed);
		seed = 7;
		gpu_attend_earlier(&t, 650, &seed);
		for (uint32_t n = 0; n < t.columns; n++)
			t.a.qkv.at[n] = gpu_random(&seed);
		for (uint32_t n = 0; n < 2 * shape[2]; n++)
			t.norms[n] = 1;
		gpu_attend_reset(&t, 650);
		gpu_attend_run(&t, 650, 0, 1);
		if (i == 0)
			memcpy(want, t.a.out.rows.at, sizeof(want));
		assert_memory_equal(t.a.out.rows.at, want, sizeof(want));
		gpu_attend_close(&t);
	}
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_agrees_with_double_at_any_length),
		cmocka_unit_test(attention_bits_do_not_depend_on_the_batch),
		cmocka_unit_test(attention_bits_do_not_depend_on_the_room_for_a_context),
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
