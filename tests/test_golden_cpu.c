/* The CPU's arithmetic against references that Hugging Face transformers computed from the same
 * weights: every kernel set that this CPU can run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/clock.h"
#include "tests/forward_copy.h"
#include "tests/golden.h"
#include "worker/cpu_compute.h"

#define CONTEXT 320u
#define TOLERANCE 1e-4 /* relative norm of the first logits */
#define MARGIN 0.005   /* a lead of the best logit below this may be another's elsewhere */

/* What ThreadSanitizer looks for is alike in all cases, and minutes are long in it. */
#ifdef __SANITIZE_THREAD__
#define CASES_MAX 1u
#else
#define CASES_MAX UINT32_MAX
#endif

struct run {
	struct golden_model golden;
	void *kv;
	struct compute *compute;
	float *logits;
};

static void
run_open(struct run *run, const char *path, const struct cpu_kernels *kernels)
{
	struct error err = { "" };
	struct compute_config config;

	golden_model_open(&run->golden, path);
	config = (struct compute_config){ .model = &run->golden.model,
					  .arena = run->golden.bytes,
					  .trunk = run->golden.bytes,
					  .context = CONTEXT,
					  .threads = 2,
					  .places = run->golden.places };
	run->kv = malloc(compute_cpu.kv_bytes(config.model, CONTEXT));
	run->logits = calloc(config.model->vocabulary, sizeof(*run->logits));
	assert_true(run->kv && run->logits);
	config.kv = run->kv;
	if (cpu_compute_open(&run->compute, &config, kernels, &err) < 0)
		fail_msg("%s", err.text);
}

static void
run_close(struct run *run)
{
	compute_cpu.close(run->compute);
	free(run->logits);
	free(run->kv);
	golden_model_close(&run->golden);
}

static void
forward(struct run *run, const uint32_t *ids, uint32_t n, uint32_t pos)
{
	struct error err = { "" };

	if (forward_copy(&compute_cpu, run->compute, &run->golden.model, ids, n, pos, run->logits,
			 &err) < 0)
		fail_msg("%s", err.text);
}

/* Returns how many tokens were compared. */
static uint32_t
check_case(struct run *run, const struct golden_case *want, double *ret_error)
{
	uint32_t vocabulary = run->golden.model.vocabulary;

	for (uint32_t at = 0; at < want->n_prompt; at += COMPUTE_BATCH) {
		uint32_t left = want->n_prompt - at;

		forward(run, want->prompt + at, left < COMPUTE_BATCH ? left : COMPUTE_BATCH, at);
	}
	*ret_error = golden_relative_error(run->logits, want->first_logits, vocabulary);
	for (uint32_t i = 0; i < want->n_greedy; i++) {
		if (want->margins[i] <= MARGIN)
			return i;
		assert_int_equal(golden_best(run->logits, vocabulary), want->greedy[i]);
		forward(run, want->greedy + i, 1, want->n_prompt + i);
	}
	return want->n_greedy;
}

static void
check_model(const char *path, const char *json, const char *logits)
{
	const struct cpu_kernels *kernels;

	for (uint32_t s = 0; (kernels = cpu_kernels_get(s)); s++) {
		struct golden golden;
		struct run run;

		if (!cpu_kernels_usable(kernels))
			continue;
		run_open(&run, path, kernels);
		golden_open(&golden, json, logits, run.golden.model.vocabulary);
		for (uint32_t i = 0; i < golden.n_cases && i < CASES_MAX; i++) {
			uint64_t start = clock_ns();
			double error, seconds;
			uint32_t n = check_case(&run, &golden.cases[i], &error);

			seconds = (double)(clock_ns() - start) / NS_PER_SECOND;
			print_message("%s %-10s case %u: relative error %.2e, %u of %u tokens, "
				      "%.2f s\n",
				      path, kernels->name, i, error, n, golden.cases[i].n_greedy,
				      seconds);
			assert_true(error < TOLERANCE);
			assert_true(n > 0);
		}
		golden_close(&golden);
		run_close(&run);
	}
}

static void
answers_as_the_reference_does(void **state)
{
	(void)state;
	check_model("tests/data/kjv-16x1m.gguf", "tests/data/kjv-16x1m.golden.json",
		    "tests/data/kjv-16x1m.first-logits.f32");
}

static void
odd_shapes_and_mixed_types_do_too(void **state)
{
	(void)state;
	check_model("tests/data/odd-shapes.gguf", "tests/data/odd-shapes.json", NULL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers_as_the_reference_does),
		cmocka_unit_test(odd_shapes_and_mixed_types_do_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
