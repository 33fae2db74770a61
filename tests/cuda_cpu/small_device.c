/* On a device that gives its blocks as little shared memory as any does (compute capability 7.5).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "tests/cuda_cpu/cuda_cpu.h"
#include "tests/forward_copy.h"
#include "tests/gpu_attend.h"

#define MODEL "tests/data/odd-shapes.gguf"
#define TOKENS 3u
#define LEAST ((size_t)64 << 10)
#define MOST ((size_t)227 << 10)
#define POSITION 300u

static struct device *device;

static double
relative_error(const float *got, const float *want, size_t n)
{
	double off = 0, size = 0;

	for (size_t i = 0; i < n; i++) {
		off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		size += (double)want[i] * want[i];
	}
	return sqrt(off / size);
}

/* Heads' sums over positions have another order there; what goes to the cache is the same. */
static void
attention_runs_with_64_kib_a_block(void **state)
{
	static const uint32_t dims[] = { 128, 80, 256, 512, 1024 };

	(void)state;
	for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++) {
		const uint32_t shape[3] = { 2, 1, dims[i] };
		size_t n = (size_t)shape[0] * dims[i];
		struct gpu_attend t;
		uint64_t seed = 1;
		float *want = calloc(n, sizeof(*want));
		uint8_t *keys;

		gpu_attend_open(&t, device, shape, POSITION + 1, 1, &seed);
		gpu_attend_reset(&t, POSITION);
		gpu_attend_run(&t, POSITION, 0, 1);
		memcpy(want, t.a.out.rows.at, n * sizeof(*want));
		keys = malloc(t.cache);
		memcpy(keys, t.a.keys, t.cache);
		gpu_attend_reset(&t, POSITION);
		cuda_cpu_shared(LEAST);
		gpu_attend_run(&t, POSITION, 0, 1);
		cuda_cpu_shared(MOST);
		assert_true(relative_error(t.a.out.rows.at, want, n) < 1e-4);
		assert_memory_equal(t.a.keys, keys, t.cache);
		free(keys);
		free(want);
		gpu_attend_close(&t);
	}
}

static void
a_model_runs_with_64_kib_a_block(void **state)
{
	static const uint32_t ids[TOKENS] = { 5, 6, 7 };
	struct gpu_model m;
	struct error err;
	float *logits[2];

	(void)state;
	gpu_model_open(&m, device, MODEL, TOKENS, true, NULL, NULL);
	for (int i = 0; i < 2; i++) {
		logits[i] = calloc(m.model.vocabulary, sizeof(float));
		cuda_cpu_shared(i ? LEAST : MOST);
		assert_int_equal(forward_copy(&compute_cuda, m.compute, &m.model, ids, TOKENS, 0,
					      logits[i], &err),
				 0);
	}
	cuda_cpu_shared(MOST);
	assert_true(relative_error(logits[1], logits[0], m.model.vocabulary) < 1e-4);
	free(logits[0]);
	free(logits[1]);
	gpu_model_close(&m);
}

/* Beside such vectors there is room for something, but not for a turn of each warp's rows. */
static void
vectors_that_leave_rows_no_room_are_refused(void **state)
{
	static const uint32_t columns[] = { 8704, 9216, 10240 };
	struct cuda_rows none = { NULL, 0 };
	struct cuda_norm norm = { NULL, 1e-6f };
	struct error err = { "" };

	(void)state;
	cuda_cpu_shared(LEAST);
	for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
		struct cuda_matrices m = { .of = { { NULL, columns[i] / 32 * 34, TYPE_Q8_0, 3 } },
					   .n = 1,
					   .columns = columns[i] };

		assert_int_equal(cuda_multiply_normed(NULL, &m, none, &norm, none, 1, &err),
				 -ENOTSUP);
	}
	cuda_cpu_shared(MOST);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(attention_runs_with_64_kib_a_block),
		cmocka_unit_test(a_model_runs_with_64_kib_a_block),
		cmocka_unit_test(vectors_that_leave_rows_no_room_are_refused),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
