/* The greatest logit on the GPU against the plain search, sample_greatest(). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "tests/gpu.h"
#include "worker/cuda_kernels.h"
#include "worker/sample.h"

#define MOST 151936u

static struct device *device;
static uint64_t seed = 11;
static struct cuda_pick pick; /* for MOST */
static uint64_t logits_bytes, parts_bytes;

static int
open_pick(void **state)
{
	(void)state;
	logits_bytes = (MOST + CUDA_ROW_ALIGN) * sizeof(float);
	parts_bytes = CUDA_GREATEST_PARTS(MOST) * sizeof(*pick.parts);
	pick.logits.at = gpu_shared(device, logits_bytes);
	pick.logits.stride = MOST;
	pick.parts = gpu_shared(device, parts_bytes);
	pick.arrived = gpu_shared(device, sizeof(*pick.arrived));
	pick.ret = gpu_shared(device, 2 * sizeof(*pick.ret));
	pick.in = gpu_shared(device, sizeof(*pick.in));
	pick.tokens = 3;
	return 0;
}

static int
close_pick(void **state)
{
	(void)state;
	gpu_shared_free(device, pick.logits.at, logits_bytes);
	gpu_shared_free(device, pick.parts, parts_bytes);
	gpu_shared_free(device, pick.arrived, sizeof(*pick.arrived));
	gpu_shared_free(device, pick.ret, 2 * sizeof(*pick.ret));
	gpu_shared_free(device, pick.in, sizeof(*pick.in));
	return 0;
}

/* And so does what the next token begins with.  What lies behind the row would win. */
static void
agrees(uint32_t vocabulary)
{
	uint64_t turn = pick.in->turn + 1;
	float *logits = pick.logits.at, got;
	uint32_t want = sample_greatest(logits, vocabulary);
	struct error err = { "" };

	logits[vocabulary] = INFINITY;
	pick.vocabulary = vocabulary;
	pick.ret[turn % 2] = (struct cuda_greatest){ UINT32_MAX, 0 };
	*pick.in = (struct cuda_input){ .pos = vocabulary, .turn = turn };
	if (cuda_pick_greatest(NULL, &pick, &err) < 0 || cuda_finish(NULL, &err) < 0)
		fail_msg("%s", err.text);
	assert_int_equal(pick.ret[turn % 2].id, want);
	got = pick.ret[turn % 2].logit;
	assert_memory_equal(&got, &logits[want], sizeof(got));
	assert_int_equal(pick.in->ids[0], want);
	assert_int_equal(pick.in->pos, vocabulary + 3);
	assert_int_equal(pick.in->turn, turn + 1);
}

static void
fill(uint32_t vocabulary, float value)
{
	for (uint32_t i = 0; i < vocabulary; i++)
		pick.logits.at[i] = value;
}

static void
fill_random(uint32_t vocabulary)
{
	for (uint32_t i = 0; i < vocabulary; i++)
		pick.logits.at[i] = 20 * gpu_random(&seed);
}

static const uint32_t vocabularies[] = {
	1, 2, 3, 4, 5, 31, 517, 1023, 1024, 1025, 2047, 2048, 2049, 4095, 4097, MOST,
};
#define N_VOCABULARIES (sizeof(vocabularies) / sizeof(vocabularies[0]))

static void
of_any_vocabulary_it_is_what_the_plain_search_finds(void **state)
{
	(void)state;
	for (uint32_t v = 0; v < N_VOCABULARIES; v++)
		for (uint32_t run = gpu_many(device, 40, 4); run > 0; run--) {
			fill_random(vocabularies[v]);
			agrees(vocabularies[v]);
		}
}

static void
of_equal_ones_it_is_the_first(void **state)
{
	(void)state;
	for (uint32_t v = 0; v < N_VOCABULARIES; v++) {
		uint32_t n = vocabularies[v];

		fill(n, -3);
		agrees(n);
		for (uint32_t run = gpu_many(device, 40, 4); run > 0; run--) {
			fill_random(n);
			for (int i = 0; i < 3; i++)
				pick.logits
				    .at[(uint32_t)((gpu_random(&seed) + 1) / 2 * (float)n) % n] =
				    50;
			agrees(n);
		}
		fill(n, -1);
		pick.logits.at[n - 1] = 0;
		pick.logits.at[n / 2] = -0.0f;
		agrees(n);
		pick.logits.at[n - 1] = -0.0f;
		pick.logits.at[n / 2] = 0;
		agrees(n);
	}
}

/* At the ends of threads' quads and of blocks' parts. */
static void
it_is_found_wherever_it_lies(void **state)
{
	static const uint32_t places[] = { 0, 1, 3, 4, 1023, 1024, 2047, 2048, MOST - 1 };

	(void)state;
	for (uint32_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		fill_random(MOST);
		pick.logits.at[places[i]] = 21;
		agrees(MOST);
	}
}

static void
nan_never_wins(void **state)
{
	static const float others[] = { -INFINITY, -1e30f, -1e-40f, 0, 1e-40f, 3, INFINITY };

	(void)state;
	for (uint32_t v = 0; v < N_VOCABULARIES; v++) {
		uint32_t n = vocabularies[v];

		fill(n, NAN);
		agrees(n);
		for (uint32_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
			fill(n, i % 2 ? NAN : -NAN);
			pick.logits.at[n / 2] = others[i];
			pick.logits.at[n - 1] = others[i];
			agrees(n);
		}
		fill(n, -INFINITY);
		pick.logits.at[0] = NAN;
		agrees(n);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_any_vocabulary_it_is_what_the_plain_search_finds),
		cmocka_unit_test(of_equal_ones_it_is_the_first),
		cmocka_unit_test(it_is_found_wherever_it_lies),
		cmocka_unit_test(nan_never_wins),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	failed = cmocka_run_group_tests(tests, open_pick, close_pick);
	device_close(device);
	return failed;
}
