/* Experts that the CPU computes in the GPU's place: no bit of a result shows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "tests/forward_copy.h"
#include "tests/gpu.h"
#include "worker/cpu_lanes.h"

#define CONTEXT 64u
#define PROMPT 5u
#define TOKENS 9u

static struct device *device;
static const char *const models[] = { "tests/data/kjv-16x1m.gguf", "tests/data/odd-shapes.gguf" };

static uint32_t
best(const float *logits, uint32_t n)
{
	uint32_t top = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[top])
			top = i;
	return top;
}

/* Logits of each of some greedy tokens; how many experts the CPU computed. */
static uint64_t
run(struct gpu_model *m, float *ret)
{
	uint32_t vocabulary = m->model.vocabulary, ids[PROMPT], n = PROMPT;
	struct compute_share share;

	for (uint32_t i = 0; i < PROMPT; i++)
		ids[i] = (i * 31 + 5) % vocabulary;
	for (uint32_t i = 0, pos = 0; i < TOKENS; i++, ret += vocabulary) {
		struct error err = { "" };

		if (forward_copy(&compute_cuda, m->compute, &m->model, ids, n, pos, ret, &err) < 0)
			fail_msg("%s", err.text);
		pos += n;
		n = 1;
		ids[0] = best(ret, vocabulary);
	}
	compute_cuda.share(m->compute, &share);
	return share.experts;
}

static void
the_share_changes_no_bit(void **state)
{
	static const struct {
		float share;
		uint32_t threads;
		bool slots;
	} cases[] = { { 0.5f, 1, true }, { 0.5f, 2, false }, { 1, 2, false }, { 1, 3, true } };

	(void)state;
	for (int f = 0; f < 2; f++) {
		struct gpu_model m;
		float *alone, *shared;
		uint64_t bytes;

		gpu_model_open(&m, device, models[f], CONTEXT, true, NULL, NULL);
		bytes = (uint64_t)TOKENS * m.model.vocabulary * sizeof(float);
		alone = calloc(1, bytes);
		assert_int_equal(run(&m, alone), 0);
		gpu_model_close(&m);
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			uint64_t experts;

			gpu_model_open_sharing(&m, device, models[f], CONTEXT, cases[i].slots,
					       cases[i].share, cases[i].threads);
			shared = calloc(1, bytes);
			experts = run(&m, shared);
			printf("%s, share %.1f: %llu experts by %u CPU threads\n", models[f],
			       (double)cases[i].share, (unsigned long long)experts,
			       cases[i].threads);
			assert_true(experts > 0);
			assert_memory_equal(alone, shared, bytes);
			free(shared);
			gpu_model_close(&m);
		}
		free(alone);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_share_changes_no_bit),
	};
	int failed;

	if (lanes_kernels_best() == NULL)
		return 77;
	device = gpu_open();
	if (!device)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
