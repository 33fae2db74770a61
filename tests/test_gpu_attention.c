/* Attention on the GPU against sums in double on the CPU, at any length and shape of heads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/gpu.h"
#include "tests/gpu_fixed.h"
#include "tests/gpu_vectors.h"
#include "worker/cuda_kernels.h"

#define AT_ONCE 3u /* fewer than a batch */
#define EPSILON 1e-6f
#define HEAD_DIM_MAX 1024u

static struct device *device;
static uint64_t seed = 1;

struct attend {
	struct cuda_attention a;
	struct cuda_input *input;
	uint32_t columns, tokens; /* of qkv; room for */
	uint64_t cache;           /* floats of keys, and of values */
	float *norms;             /* q's, k's, then frequencies */
	float *earlier;           /* (2, cache): what lies in the cache before a run */
};

static float *
random_floats(uint64_t n, float scale, float shift)
{
	float *ret = gpu_shared(device, n * sizeof(*ret));

	for (uint64_t i = 0; i < n; i++)
		ret[i] = scale * gpu_random(&seed) + shift;
	return ret;
}

static uint64_t
partial_bytes(const struct cuda_attention *a)
{
	return sizeof(float) * cuda_partial_floats(a->heads, a->kv_heads, a->head_dim, a->at_once);
}

static void
make_cache(struct attend *t)
{
	uint32_t row = CUDA_KV_ROW(t->a.head_dim);

	t->a.keys = gpu_shared(device, t->cache * sizeof(float));
	t->a.values = gpu_shared(device, t->cache * sizeof(float));
	t->earlier = calloc(2 * t->cache, sizeof(float));
	for (uint64_t i = 0; i < 2 * t->cache; i++)
		if (i % row < t->a.head_dim)
			t->earlier[i] = 2 * gpu_random(&seed);
}

/* `tokens`: of the largest batch. */
static void
attend_open(struct attend *t, const uint32_t shape[3], uint32_t context, uint32_t tokens)
{
	uint32_t heads = shape[0], kv_heads = shape[1], head_dim = shape[2];
	struct cuda_attention *a = &t->a;

	t->columns = (heads + 2 * kv_heads) * head_dim;
	t->tokens = tokens;
	t->cache = (uint64_t)kv_heads * context * CUDA_KV_ROW(head_dim);
	t->input = gpu_shared(device, sizeof(*t->input));
	t->norms = random_floats(2 * head_dim + head_dim / 2, 0.5f, 1);
	*a = (struct cuda_attention){
		.heads = heads,
		.kv_heads = kv_heads,
		.head_dim = head_dim,
		.context = context,
		.epsilon = EPSILON,
		.q_norm = t->norms,
		.k_norm = t->norms + head_dim,
		.frequency = t->norms + 2 * (size_t)head_dim,
		.qkv = { random_floats((uint64_t)tokens * t->columns, 2, 0), t->columns },
		.out = gpu_vectors_open(device, tokens, heads * head_dim),
		.at_once = AT_ONCE,
	};
	for (uint32_t i = 0; i < head_dim / 2; i++)
		t->norms[2 * head_dim + i] = powf(10000, -2.0f * (float)i / (float)head_dim);
	a->partial = gpu_shared(device, partial_bytes(a));
	a->arrived = gpu_shared(device, cuda_arrived_counts(a->heads, AT_ONCE) * sizeof(uint32_t));
	make_cache(t);
}

static void
attend_close(struct attend *t)
{
	struct cuda_attention *a = &t->a;

	gpu_shared_free(device, a->keys, t->cache * sizeof(float));
	gpu_shared_free(device, a->values, t->cache * sizeof(float));
	gpu_shared_free(device, a->qkv.at, (uint64_t)t->tokens * t->columns * sizeof(float));
	gpu_shared_free(device, t->norms, (2 * a->head_dim + a->head_dim / 2) * sizeof(float));
	gpu_shared_free(device, a->partial, partial_bytes(a));
	gpu_shared_free(device, a->arrived,
			cuda_arrived_counts(a->heads, AT_ONCE) * sizeof(uint32_t));
	gpu_shared_free(device, t->input, sizeof(*t->input));
	gpu_vectors_close(device, &a->out, t->tokens, a->heads * a->head_dim);
	free(t->earlier);
}

/* The cache as it is before `pos`: what is to come is no number. */
static void
cache_reset(struct attend *t, uint32_t pos)
{
	size_t row = CUDA_KV_ROW(t->a.head_dim);

	memset(t->a.keys, 0xff, t->cache * sizeof(float));
	memset(t->a.values, 0xff, t->cache * sizeof(float));
	for (size_t h = 0; h < t->a.kv_heads; h++) {
		size_t at = h * t->a.context * row;

		memcpy(t->a.keys + at, t->earlier + at, pos * row * sizeof(float));
		memcpy(t->a.values + at, t->earlier + t->cache + at, pos * row * sizeof(float));
	}
}

/* Tokens `first`.. of the batch that begins at `pos`.  None is left waiting for the others. */
static void
attend_run(const struct attend *t, uint32_t pos, uint32_t first, uint32_t tokens)
{
	struct cuda_attention a = t->a;
	struct error err;

	a.qkv.at += (uint64_t)first * a.qkv.stride;
	a.out.rows.at += (uint64_t)first * a.out.rows.stride;
	a.out.fixed.at += (uint64_t)first * a.out.fixed.stride;
	t->input->pos = pos + first;
	if (cuda_attend(NULL, &a, t->input, tokens, &err) || cuda_finish(NULL, &err))
		fail_msg("%s", err.text);
	for (uint64_t i = 0; i < cuda_arrived_counts(a.heads, a.at_once); i++)
		assert_int_equal(a.arrived[i], 0);
}

/* -- in double -- */

static void
head_want(const struct cuda_attention *a, const float *x, const float *weight, uint32_t pos,
	  double *out)
{
	uint32_t half = a->head_dim / 2;
	double squares = 0, scale;

	for (uint32_t i = 0; i < a->head_dim; i++)
		squares += (double)x[i] * x[i];
	scale = 1 / sqrt(squares / a->head_dim + EPSILON);
	for (uint32_t i = 0; i < half; i++) {
		double angle = (float)pos * a->frequency[i];
		double low = x[i] * scale * weight[i],
		       high = x[half + i] * scale * weight[half + i];

		out[i] = low * cos(angle) - high * sin(angle);
		out[half + i] = high * cos(angle) + low * sin(angle);
	}
}

/* What the cache holds of a position, once the batch from `pos` on is there. */
static void
row_want(const struct attend *t, size_t kv_head, uint32_t p, uint32_t pos, double *key,
	 double *value)
{
	const struct cuda_attention *a = &t->a;
	size_t dim = a->head_dim, at = (kv_head * a->context + p) * CUDA_KV_ROW(dim);
	const float *x = a->qkv.at + (p - pos) * (size_t)a->qkv.stride + (a->heads + kv_head) * dim;

	if (p >= pos) {
		head_want(a, x, a->k_norm, p, key);
		x += a->kv_heads * dim;
	}
	for (size_t d = 0; d < dim; d++) {
		key[d] = p < pos ? t->earlier[at + d] : key[d];
		value[d] = p < pos ? t->earlier[t->cache + at + d] : x[d];
	}
}

static void
attend_want(const struct attend *t, size_t token, size_t head, uint32_t pos, double *out)
{
	const struct cuda_attention *a = &t->a;
	size_t dim = a->head_dim, kv_head = head / (a->heads / a->kv_heads);
	double *q = calloc(3 * dim, sizeof(*q)), *key = q + dim, *value = key + dim;
	double top = -INFINITY, sum = 0;

	head_want(a, a->qkv.at + token * a->qkv.stride + head * dim, a->q_norm,
		  pos + (uint32_t)token, q);
	memset(out, 0, dim * sizeof(*out));
	for (uint32_t p = 0; p <= pos + token; p++) {
		double score = 0, before = top, weight;

		row_want(t, kv_head, p, pos, key, value);
		for (size_t d = 0; d < dim; d++)
			score += q[d] * key[d];
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
attend_error(const struct attend *t, size_t token, uint32_t pos)
{
	size_t dim = t->a.head_dim;
	double want[HEAD_DIM_MAX], off = 0, size = 0;

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

/* The largest difference of what a batch left in the cache; what is before it is as it was. */
static double
cache_error(const struct attend *t, uint32_t pos, uint32_t tokens)
{
	const struct cuda_attention *a = &t->a;
	size_t dim = a->head_dim, row = CUDA_KV_ROW(dim);
	double *key = calloc(2 * dim, sizeof(*key)), *value = key + dim, worst = 0;

	for (size_t h = 0; h < a->kv_heads; h++) {
		size_t at = h * a->context * row;

		assert_memory_equal(a->keys + at, t->earlier + at, pos * row * sizeof(float));
		assert_memory_equal(a->values + at, t->earlier + t->cache + at,
				    pos * row * sizeof(float));
		for (uint32_t p = pos; p < pos + tokens; p++) {
			row_want(t, h, p, pos, key, value);
			for (size_t d = 0; d < row; d++) {
				double k = d < dim ? key[d] : 0, v = d < dim ? value[d] : 0;

				worst = fmax(worst, fabs(a->keys[at + p * row + d] - k));
				worst = fmax(worst, fabs(a->values[at + p * row + d] - v));
			}
		}
	}
	free(key);
	return worst;
}

/* -- the tests -- */

static void
check_lengths(const uint32_t shape[3], const uint32_t *positions, size_t n, uint32_t context)
{
	struct attend t;
	double worst = 0;

	attend_open(&t, shape, context, 4);
	for (size_t p = 0; p < n; p++) {
		uint32_t tokens = p % 2 ? 1 : 4;

		cache_reset(&t, positions[p]);
		memset(t.a.out.rows.at, 0xff, 4 * t.a.out.rows.stride * sizeof(float));
		attend_run(&t, positions[p], 0, tokens);
		assert_true(cache_error(&t, positions[p], tokens) < 2e-5);
		for (uint32_t i = 0; i < tokens; i += 3) {
			double error = attend_error(&t, i, positions[p]);

			assert_true(error < 1e-5);
			worst = fmax(worst, error);
			if (shape[0] * shape[2] % 32 == 0)
				gpu_fixed_check(&t.a.out, i, shape[0] * shape[2]);
		}
	}
	printf("heads %u/%u of %u: relative error up to %u positions %.1e\n", shape[0], shape[1],
	       shape[2], positions[n - 1] + 1, worst);
	attend_close(&t);
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
		struct attend t;
		uint64_t rows, cache;
		uint8_t *want;

		attend_open(&t, shapes[i / 2], pos + 64, 64);
		rows = 64 * t.a.out.rows.stride * sizeof(float);
		cache = t.cache * sizeof(float);
		want = malloc(rows + 2 * cache);
		for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
			uint32_t n = batches[b];

			cache_reset(&t, pos);
			memset(t.a.out.rows.at, 0, rows);
			for (uint32_t first = 0; first < 64; first += n)
				attend_run(&t, pos, first, 64 - first < n ? 64 - first : n);
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
		attend_close(&t);
	}
}

static void
attention_bits_do_not_depend_on_the_room_for_a_context(void **state)
{
	static const uint32_t shape[3] = { 8, 1, 64 }, contexts[] = { 651, 40000 };
	float want[8 * 64] = { 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct attend t;
		size_t rows = 650 * (size_t)shape[2];

		attend_open(&t, shape, contexts[i], 1);
		seed = 7;
		for (uint64_t n = 0; n < rows; n++) {
			t.earlier[n] = 2 * gpu_random(&seed);
			t.earlier[t.cache + n] = gpu_random(&seed);
		}
		for (uint32_t n = 0; n < t.columns; n++)
			t.a.qkv.at[n] = gpu_random(&seed);
		for (uint32_t n = 0; n < 2 * shape[2]; n++)
			t.norms[n] = 1;
		cache_reset(&t, 650);
		attend_run(&t, 650, 0, 1);
		if (i == 0)
			memcpy(want, t.a.out.rows.at, sizeof(want));
		assert_memory_equal(t.a.out.rows.at, want, sizeof(want));
		attend_close(&t);
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
