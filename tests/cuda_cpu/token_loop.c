/* The token loop of compute_cuda, by the calls that it makes: a graph and a wait a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/cuda_cpu/cuda_cpu.h"
#include "tests/forward_copy.h"
#include "tests/gpu.h"

#define MODEL "tests/data/odd-shapes.gguf"
#define CONTEXT 64u
#define TOKENS 5u

static struct device *device;

static void
a_token_is_one_graph_and_one_wait_and_allocates_nothing(void **state)
{
	struct cuda_cpu_calls before = { 0 }, after;
	struct gpu_model m;
	float *logits;

	(void)state;
	gpu_model_open(&m, device, MODEL, CONTEXT, true, NULL, NULL);
	logits = malloc(m.model.vocabulary * sizeof(*logits));
	/* The first is computed by launches, the second captures the graph. */
	for (uint32_t i = 0; i < 2 + TOKENS; i++) {
		uint32_t id = (i * 31 + 5) % m.model.vocabulary;
		struct error err = { "" };

		if (i == 2)
			before = cuda_cpu_counts();
		if (forward_copy(&compute_cuda, m.compute, &m.model, &id, 1, i, logits, &err) < 0)
			fail_msg("%s", err.text);
	}
	after = cuda_cpu_counts();
	assert_int_equal(after.graphs - before.graphs, TOKENS);
	assert_int_equal(after.waits - before.waits, TOKENS);
	assert_int_equal(after.allocations - before.allocations, 0);
	assert_int_equal(after.launches - before.launches, 0);
	assert_int_equal(after.copies - before.copies, TOKENS); /* of logits */
	free(logits);
	gpu_model_close(&m);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_is_one_graph_and_one_wait_and_allocates_nothing),
	};
	int failed;

	device = gpu_open();
	if (device == NULL)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
