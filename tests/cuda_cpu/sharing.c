/* The CPU's share where something fails: memory, threads, a launch, the device; which tokens say
 * how large it is to be; when its threads sleep. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/cuda_cpu/cuda_cpu.h"
#include "tests/golden.h"
#include "tests/gpu.h"
#include "worker/cpu_lanes.h"
#include "worker/cuda_sharing.h"

#define MODEL "tests/data/odd-shapes.gguf"
#define CONTEXT 64u
#define SLICES (20u << 10) /* of shared memory a block: half of it is too little for whole rows */

static struct device *device;
static struct golden_model golden;

/* -- threads, in the place of the library's calls -- */

static uint32_t started, joined, fails_at; /* fails_at: from 1; 0: none does */

int
pthread_create(pthread_t *ret, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
	    (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))(
		uintptr_t)dlsym(RTLD_NEXT, "pthread_create");

	if (fails_at > 0 && --fails_at == 0)
		return EAGAIN;
	started++;
	return real(ret, attr, run, arg);
}

int
pthread_join(pthread_t thread, void **ret)
{
	int (*real)(pthread_t, void **) =
	    (int (*)(pthread_t, void **))(uintptr_t)dlsym(RTLD_NEXT, "pthread_join");

	joined++;
	return real(thread, ret);
}

/* -- opening -- */

static int
open_sharing(struct cuda_sharing *ret, float share, struct error *err)
{
	struct compute_config config = {
		.model = &golden.model, .places = golden.places, .threads = 4, .cpu_share = share
	};

	*ret = (struct cuda_sharing){ 0 };
	return cuda_sharing_open(ret, &config, err);
}

/* What is said on stderr meanwhile; the caller frees it. */
static char *
open_auto(struct cuda_sharing *ret, int *ret_rc)
{
	FILE *file = tmpfile();
	int before = dup(STDERR_FILENO);
	char *said = calloc(1, 4096);
	struct error err = { "" };

	assert_non_null(file);
	dup2(fileno(file), STDERR_FILENO);
	*ret_rc = open_sharing(ret, SHARE_AUTO, &err);
	dup2(before, STDERR_FILENO);
	close(before);
	rewind(file);
	assert_true(fread(said, 1, 4095, file) < 4095);
	fclose(file);
	return said;
}

/* Of `auto`, with one line that has `why` in it, while the same is due to fail. */
static void
gpu_is_left_alone(const char *why)
{
	struct cuda_sharing sharing;
	int rc;
	char *said = open_auto(&sharing, &rc);

	assert_int_equal(rc, 0);
	assert_null(sharing.cpu);
	assert_int_equal(started, joined);
	if (!strstr(said, "warn: --cpu-share auto: the GPU computes all experts: ") ||
	    !strstr(said, why) || strchr(said, '\n') != said + strlen(said) - 1)
		fail_msg("%s: want %s", said, why);
	free(said);
	cuda_sharing_close(&sharing);
}

static void
share_is_refused(int want)
{
	struct cuda_sharing sharing;
	struct error err = { "" };

	assert_int_equal(open_sharing(&sharing, 0.5f, &err), want);
	cuda_sharing_close(&sharing);
	assert_int_equal(started, joined);
}

static void
without_host_memory_auto_leaves_the_gpu_alone(void **state)
{
	(void)state;
	cuda_cpu_fail("cudaHostAlloc", 1);
	gpu_is_left_alone("cudaHostAlloc");
	cuda_cpu_fail("cudaHostAlloc", 1);
	share_is_refused(-EIO);
	cuda_cpu_fail("", 0);
}

static void
without_threads_auto_leaves_the_gpu_alone(void **state)
{
	(void)state;
	for (uint32_t which = 1; which <= 3; which++) {
		fails_at = which;
		gpu_is_left_alone("starting 3 threads");
		fails_at = which;
		share_is_refused(-EAGAIN);
	}
	fails_at = 0;
}

static void
with_both_auto_has_a_cpu(void **state)
{
	struct cuda_sharing sharing;
	int rc;
	char *said = open_auto(&sharing, &rc);

	(void)state;
	assert_int_equal(rc, 0);
	assert_non_null(sharing.cpu);
	assert_string_equal(said, "");
	free(said);
	cuda_sharing_close(&sharing);
	assert_int_equal(started, joined);
}

/* -- failures later on -- */

/* But not before a token that may wait for them. */
static void
threads_end_though_the_device_cannot_be_entered(void **state)
{
	struct compute_want ahead = { .ahead = true };
	uint32_t before = started, id = 7;
	struct compute_result result;
	struct error err = { "" };
	struct gpu_model m;

	(void)state;
	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, 0.5f, 3);
	assert_int_equal(started - before, 3);
	for (uint32_t pos = 0; pos < 2; pos++)
		assert_int_equal(
		    compute_cuda.forward(m.compute, &id, 1, pos, &ahead, &result, &err), 0);
	assert_true(result.ahead);
	cuda_cpu_fail("cudaSetDevice", 1);
	compute_cuda.close(m.compute);
	assert_int_equal(started, joined);
	m.compute = NULL;
	gpu_model_close(&m);
}

/* The next would be written while the CPU reads it. */
static void
what_a_failed_token_ordered_is_answered_before_the_next(void **state)
{
	struct cuda_sharing sharing;
	struct error err = { "" };

	(void)state;
	assert_int_equal(open_sharing(&sharing, 0.5f, &err), 0);
	for (uint64_t i = 1; i <= 20; i++) {
		struct share_order *order = sharing.order;

		assert_true(cuda_sharing_begin(&sharing) == 0.5f);
		order->n = golden.model.top_k;
		for (uint32_t k = 0; k < order->n; k++)
			order->experts[k] = (struct share_expert){ k, 1 };
		__atomic_store_n(&order->sequence, i, __ATOMIC_RELEASE);
		cuda_sharing_end(&sharing, false);
		sharing.missed = true;
		assert_int_equal(__atomic_load_n(&sharing.answer->sequence, __ATOMIC_ACQUIRE), i);
	}
	cuda_sharing_close(&sharing);
}

static int
forward(struct gpu_model *m, uint32_t id, uint32_t pos, bool wants, struct compute_result *ret)
{
	struct compute_want want = { .logits = true };
	struct error err = { "" };

	return compute_cuda.forward(m->compute, &id, 1, pos, wants ? &want : NULL, ret, &err);
}

/* Four tokens, the last two with logits, into ret (2, vocabulary): the last by a graph.  `failing`:
 * each fails at each of its launches, those that are captured too, before it is computed.  Returns
 * how often. */
static uint32_t
four_tokens(struct gpu_model *m, bool failing, float *ret)
{
	uint32_t failed = 0, vocabulary = m->model.vocabulary;
	struct compute_result result = { 0 };

	for (uint32_t pos = 0; pos < 4; pos++) {
		uint32_t which = failing;

		cuda_cpu_fail("cudaLaunchKernelEx", which);
		while (forward(m, 7 + pos, pos, pos >= 2, &result) < 0) {
			assert_true(failing);
			failed++;
			cuda_cpu_fail("cudaLaunchKernelEx", ++which);
		}
		cuda_cpu_fail("", 0);
		if (pos >= 2)
			memcpy(ret + (pos - 2) * vocabulary, result.logits,
			       vocabulary * sizeof(*ret));
	}
	if (failing) {
		cuda_cpu_fail("cudaGraphLaunch", 1);
		failed += forward(m, 10, 3, true, &result) < 0;
		assert_int_equal(forward(m, 10, 3, true, &result), 0);
		assert_memory_equal(ret + vocabulary, result.logits, vocabulary * sizeof(*ret));
	}
	return failed;
}

static void
after_a_failure_the_next_token_is_right(void **state)
{
	struct compute_share share;
	struct gpu_model m;
	float *want, *got;
	size_t bytes;

	(void)state;
	gpu_model_open(&m, device, MODEL, CONTEXT, false, NULL, NULL);
	bytes = 2 * m.model.vocabulary * sizeof(float);
	want = malloc(bytes);
	got = malloc(bytes);
	assert_int_equal(four_tokens(&m, false, want), 0);
	gpu_model_close(&m);
	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, 0.5f, 3);
	assert_true(four_tokens(&m, true, got) > 4 * (1 + 6 * m.model.n_layers));
	assert_memory_equal(want, got, bytes);
	compute_cuda.share(m.compute, &share);
	assert_true(share.experts > 0);
	gpu_model_close(&m);
	free(want);
	free(got);
}

/* Where two blocks have no room for whole rows, other kernels read the experts. */
static void
the_share_changes_no_bit_where_rows_come_in_slices(void **state)
{
	struct compute_share share;
	struct gpu_model m;
	float *want, *got;
	size_t bytes;

	(void)state;
	cuda_cpu_shared(SLICES);
	gpu_model_open(&m, device, MODEL, CONTEXT, false, NULL, NULL);
	bytes = 2 * m.model.vocabulary * sizeof(float);
	want = malloc(bytes);
	got = malloc(bytes);
	four_tokens(&m, false, want);
	gpu_model_close(&m);
	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, 0.5f, 3);
	four_tokens(&m, false, got);
	assert_memory_equal(want, got, bytes);
	compute_cuda.share(m.compute, &share);
	assert_true(share.experts > 0);
	gpu_model_close(&m);
	cuda_cpu_shared(227u << 10);
	free(want);
	free(got);
}

/* The first of `auto` shows in a share that is not 0 once a window of tokens has been seen. */
static void
only_tokens_by_a_graph_that_is_there_count(void **state)
{
	struct compute_result result;
	struct compute_share share;
	struct gpu_model m;
	uint32_t pos = 0;

	(void)state;
	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, SHARE_AUTO, 3);
	for (uint32_t i = 0; i < 2 * SHARE_WINDOW; i++)
		assert_int_equal(forward(&m, 7, pos++, false, &result), 0);
	/* Launched, and then captured. */
	for (uint32_t i = 0; i < 2 + SHARE_WINDOW; i++) {
		compute_cuda.share(m.compute, &share);
		assert_true(share.now == 0);
		assert_int_equal(forward(&m, 7, pos++, true, &result), 0);
	}
	compute_cuda.share(m.compute, &share);
	assert_true(share.now > 0);
	gpu_model_close(&m);
}

/* As soon as a batch has given a result, the token behind it is begun, and the graph captured. */
static void
nor_does_one_ahead_whose_graph_is_captured_first(void **state)
{
	struct compute_want ahead = { .ahead = true };
	struct compute_result result = { 0 };
	struct error err = { "" };
	uint32_t ids[2] = { 7, 8 }, pos = 2;
	struct compute_share share;
	struct gpu_model m;

	(void)state;
	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, SHARE_AUTO, 3);
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(compute_cuda.forward(m.compute, ids, 2, 0, &ahead, &result, &err),
				 0);
	for (uint32_t i = 0; i < 1 + SHARE_WINDOW; i++) {
		uint32_t id = result.greatest;

		assert_true(result.ahead);
		compute_cuda.share(m.compute, &share);
		assert_true(share.now == 0);
		assert_int_equal(
		    compute_cuda.forward(m.compute, &id, 1, pos++, &ahead, &result, &err), 0);
	}
	compute_cuda.share(m.compute, &share);
	assert_true(share.now > 0);
	gpu_model_close(&m);
}

/* Whether each thread of a share is one that sleeps. */
static bool
all_sleep(void)
{
	char path[288], comm[16], state = 0;
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	uint32_t n = 0, asleep = 0;

	assert_non_null(tasks);
	while ((task = readdir(tasks)) != NULL) {
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", task->d_name);
		file = fopen(path, "r");
		if (file == NULL)
			continue;
		if (fscanf(file, "%*d (%15[^)]) %c", comm, &state) == 2 &&
		    strncmp(comm, "share", 5) == 0) {
			n++;
			asleep += state == 'S';
		}
		fclose(file);
	}
	closedir(tasks);
	assert_int_equal(n, 3);
	return asleep == n;
}

/* While a token ahead is computed they are awake; asked for, dropped, or not taken by the device,
 * it leaves none awake. */
static void
threads_sleep_once_nothing_follows(void **state)
{
	struct compute_want ahead = { .ahead = true };
	struct compute_result result = { 0 };
	struct error err = { "" };
	struct gpu_model m;
	uint32_t id = 7, pos = 0;

	(void)state;
	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, 0.5f, 3);
	for (int way = 0; way < 3; way++) {
		for (uint32_t i = 0; i < 3; i++, id = result.greatest) {
			cuda_cpu_fail("cudaGraphLaunch", way == 2 && i == 2);
			assert_int_equal(
			    compute_cuda.forward(m.compute, &id, 1, pos++, &ahead, &result, &err),
			    0);
		}
		assert_int_equal(result.ahead, way < 2);
		if (way == 0)
			assert_int_equal(forward(&m, id, pos++, true, &result), 0);
		if (way == 1)
			compute_cuda.drop(m.compute);
		for (uint32_t ms = 0; !all_sleep(); ms++) {
			assert_true(ms < 20000);
			usleep(1000);
		}
	}
	gpu_model_close(&m);
}

/* Greedy tokens with time that passes, or somebody else who waits, before each is asked for.  The
 * share then. */
static float
share_after(uint32_t tokens, bool passes)
{
	struct compute_want ahead = { .ahead = true };
	struct compute_result result = { .greatest = 7 };
	struct compute_share share;
	struct error err = { "" };
	struct gpu_model m;
	uint64_t *counts;

	gpu_model_open_sharing(&m, device, MODEL, CONTEXT, false, SHARE_AUTO, 3);
	counts = calloc((size_t)m.model.n_layers * m.model.n_experts, sizeof(*counts));
	for (uint32_t pos = 0; pos < tokens; pos++) {
		uint32_t id = result.greatest;

		assert_int_equal(
		    compute_cuda.forward(m.compute, &id, 1, pos, &ahead, &result, &err), 0);
		if (passes)
			cuda_cpu_pass_time();
		else
			assert_int_equal(compute_cuda.usage(m.compute, counts), 0);
	}
	compute_cuda.share(m.compute, &share);
	free(counts);
	gpu_model_close(&m);
	return share.now;
}

/* Else its time would be the host's, not the device's. */
static void
a_token_ahead_counts_only_if_its_end_was_seen(void **state)
{
	(void)state;
	assert_true(share_after(3 + 2 * SHARE_WINDOW, true) == 0);
	assert_true(share_after(1 + SHARE_WINDOW, false) == 0);
	assert_true(share_after(2 + SHARE_WINDOW, false) > 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_host_memory_auto_leaves_the_gpu_alone),
		cmocka_unit_test(without_threads_auto_leaves_the_gpu_alone),
		cmocka_unit_test(with_both_auto_has_a_cpu),
		cmocka_unit_test(threads_end_though_the_device_cannot_be_entered),
		cmocka_unit_test(what_a_failed_token_ordered_is_answered_before_the_next),
		cmocka_unit_test(after_a_failure_the_next_token_is_right),
		cmocka_unit_test(the_share_changes_no_bit_where_rows_come_in_slices),
		cmocka_unit_test(only_tokens_by_a_graph_that_is_there_count),
		cmocka_unit_test(nor_does_one_ahead_whose_graph_is_captured_first),
		cmocka_unit_test(threads_sleep_once_nothing_follows),
		cmocka_unit_test(a_token_ahead_counts_only_if_its_end_was_seen),
	};
	int failed;

	if (lanes_kernels_best() == NULL)
		return 77;
	device = gpu_open();
	if (!device)
		return 77;
	golden_model_open(&golden, "tests/data/kjv-16x1m.gguf");
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	golden_model_close(&golden);
	device_close(device);
	return failed;
}
