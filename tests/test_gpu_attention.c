/* Attention on the GPU against sums in double on the CPU, at any length and shape of heads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/gpu.h"
#include "worker/cuda_kernels.h"

static struct device *device;
static uint64_t seed = 1;

struct attend {
	struct cuda_attention a;
	struct cuda_input *input;
	uint64_t cache, q_columns;
};

#define ATTEND_TOKENS 5u

static void
attend_open(struct attend *t, uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
	    uint32_t context)
{
	uint32_t row = CUDA_KV_ROW(head_dim);
	uint64_t partial = cuda_partial_floats(heads, head_dim, context, 2);

	t->cache = (uint64_t)kv_heads * context * row;
	t->q_columns = (uint64_t)heads * head_dim;
	t->a = (struct cuda_attention){
		.heads = heads,
		.kv_heads = kv_heads,
		.head_dim = head_dim,
		.context = context,
		.keys = gpu_shared(device, 4 * t->cache),
		.values = gpu_shared(device, 4 * t->cache),
		.q = { gpu_shared(device, ATTEND_TOKENS * t->q_columns * 4),
		       (uint32_t)t->q_columns },
		.out = { gpu_shared(device, ATTEND_TOKENS * t->q_columns * 4),
			 (uint32_t)t->q_columns },
		.partial = gpu_shared(device, partial * 4),
		.at_once = 2,
	};
	t->input = gpu_shared(device, sizeof(*t->input));
	for (uint64_t i = 0; i < t->cache; i++) {
		bool used = i % row < head_dim;

		t->a.keys[i] = used ? 2 * gpu_random(&seed) : 0;
		t->a.values[i] = used ? gpu_random(&seed) : 0;
	}
	for (uint64_t i = 0; i < ATTEND_TOKENS * t->q_columns; i++)
		t->a.q.at[i] = 3 * gpu_random(&seed);
}

static void
attend_close(struct attend *t)
{
	gpu_shared_free(device, t->a.keys, 4 * t->cache);
	gpu_shared_free(device, t->a.values, 4 * t->cache);
	gpu_shared_free(device, t->a.q.at, ATTEND_TOKENS * t->q_columns * 4);
	gpu_shared_free(device, t->a.out.at, ATTEND_TOKENS * t->q_columns * 4);
	gpu_shared_free(device, t->a.partial,
			cuda_partial_floats(t->a.heads, t->a.head_dim, t->a.context, 2) * 4);
	gpu_shared_free(device, t->input, sizeof(*t->input));
}

static void
attend_run(struct attend *t, uint32_t pos, uint32_t tokens)
{
	struct error err;

	t->input->pos = pos;
	assert_int_equal(cuda_attend(NULL, &t->a, t->input, tokens, &err), 0);
	assert_int_equal(cuda_finish(NULL, &err), 0);
}

static void
attend_want(const struct attend *t, size_t token, size_t head, uint32_t length, double *out)
{
	const struct cuda_attention *a = &t->a;
	size_t row = CUDA_KV_ROW((size_t)a->head_dim), dim = a->head_dim;
	size_t base = (head / (a->heads / a->kv_heads)) * a->context * row;
	const float *q = a->q.at + token * a->q.stride + head * dim;
	double *score = calloc(length, sizeof(*score)), top = -INFINITY, sum = 0;

	for (uint32_t p = 0; p < length; p++) {
		for (uint32_t d = 0; d < dim; d++)
			score[p] += (double)q[d] * a->keys[base + p * row + d];
		score[p] /= sqrt((double)dim);
		top = fmax(top, score[p]);
	}
	memset(out, 0, dim * sizeof(*out));
	for (uint32_t p = 0; p < length; p++) {
		double weight = exp(score[p] - top);

		sum += weight;
		for (uint32_t d = 0; d < dim; d++)
			out[d] += weight * a->values[base + p * row + d];
	}
	for (uint32_t d = 0; d < dim; d++)
		out[d] /= sum;
	free(score);
}

/* ||got - want|| / ||want|| over all heads of a token. */
static double
attend_error(const struct attend *t, size_t token, uint32_t length)
{
	double *want = calloc(t->a.head_dim, sizeof(*want)), off = 0, size = 0;

	for (size_t h = 0; h < t->a.heads; h++) {
		const float *got = t->a.out.at + token * t->a.out.stride + h * t->a.head_dim;

		attend_want(t, token, h, length, want);
		for (uint32_t d = 0; d < t->a.head_dim; d++) {
			off += (got[d] - want[d]) * (got[d] - want[d]);
			size += want[d] * want[d];
		}
	}
	free(want);
	return sqrt(off / size);
}

static void
attention_agrees_with_double_at_any_length(void **state)
{
	static const uint32_t shapes[][3] = { { 8, 2, 64 },  { 32, 4, 128 }, { 4, 1, 32 },
					      { 6, 2, 96 },  { 3, 3, 40 },   { 4, 2, 20 },
					      { 20, 2, 80 }, { 2, 1, 300 },  { 4, 2, 18 } };
	static const uint32_t positions[] = { 0, 3, 250, 255, 256, 1000, 2995 };

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
		struct attend t;
		double worst = 0;

		attend_open(&t, shapes[s][0], shapes[s][1], shapes[s][2], 3000);
		for (int p = 0; p < 7; p++) {
			memset(t.a.out.at, 0xff, ATTEND_TOKENS * t.q_columns * 4);
			attend_run(&t, positions[p], ATTEND_TOKENS);
			for (uint32_t i = 0; i < ATTEND_TOKENS; i += 4)
				worst = fmax(worst, attend_error(&t, i, positions[p] + i + 1));
			assert_true(worst < 1e-5);
		}
		printf("heads %u/%u of %u: relative error up to 3000 positions %.1e\n",
		       shapes[s][0], shapes[s][1], shapes[s][2], worst);
		attend_close(&t);
	}
}

static void
attention_bits_do_not_depend_on_the_batch(void **state)
{
	struct attend t;
	float *batch;
	uint64_t bytes;

	(void)state;
	attend_open(&t, 8, 2, 64, 3000);
	bytes = ATTEND_TOKENS * t.q_columns * 4;
	batch = malloc(bytes);
	attend_run(&t, 2300, ATTEND_TOKENS);
	memcpy(batch, t.a.out.at, bytes);
	memset(t.a.out.at, 0, bytes);
	for (uint32_t i = 0; i < ATTEND_TOKENS; i++) {
		struct attend one = t;

		one.a.q.at += i * t.q_columns;
		one.a.out.at += i * t.q_columns;
		attend_run(&one, 2300 + i, 1);
	}
	assert_memory_equal(batch, t.a.out.at, bytes);
	free(batch);
	attend_close(&t);
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_agrees_with_double_at_any_length),
		cmocka_unit_test(attention_bits_do_not_depend_on_the_batch),
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
