/* The token loop of compute_cuda, by the calls that it makes: a graph and a wait a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>

#include "tests/cuda_cpu/cuda_cpu.h"
#include "tests/gpu.h"
#include "worker/cpu_lanes.h"

#define MODEL "tests/data/odd-shapes.gguf"
#define CONTEXT 64u
#define TOKENS 5u

static struct device *device;

/* Greedy, from one token on. */
struct loop {
	struct gpu_model m;
	struct compute_result last;
	uint32_t pos;
};

static int
loop_token(struct loop *loop, struct compute_want want, struct error *err)
{
	uint32_t id = loop->last.greatest;
	int rc = compute_cuda.forward(loop->m.compute, &id, 1, loop->pos, &want, &loop->last, err);

	loop->pos += rc == 0;
	return rc;
}

static void
loop_go(struct loop *loop, struct compute_want want)
{
	struct error err = { "" };

	if (loop_token(loop, want, &err) < 0)
		fail_msg("%s", err.text);
}

/* The first is computed by launches, the second captures the graph. */
static void
loop_open_sharing(struct loop *loop, struct compute_want want, float share)
{
	*loop = (struct loop){ .last = { .greatest = 5 } };
	gpu_model_open_sharing(&loop->m, device, MODEL, CONTEXT, true, share, 2);
	loop_go(loop, want);
	loop_go(loop, want);
}

static void
loop_open(struct loop *loop, struct compute_want want)
{
	loop_open_sharing(loop, want, 0);
}

/* `copies`: a token. */
static void
takes(struct compute_want want, float share, uint32_t copies)
{
	struct cuda_cpu_calls before, after;
	struct loop loop;

	loop_open_sharing(&loop, want, share);
	before = cuda_cpu_counts();
	for (uint32_t i = 0; i < TOKENS; i++)
		loop_go(&loop, want);
	after = cuda_cpu_counts();
	assert_int_equal(after.graphs - before.graphs, TOKENS);
	assert_int_equal(after.waits - before.waits, TOKENS);
	assert_int_equal(after.allocations - before.allocations, 0);
	assert_int_equal(after.launches - before.launches, 0);
	assert_int_equal(after.copies - before.copies, TOKENS * copies);
	gpu_model_close(&loop.m);
}

static void
a_token_is_one_graph_and_one_wait_and_allocates_nothing(void **state)
{
	(void)state;
	takes((struct compute_want){ .logits = false }, 0, 1);
	takes((struct compute_want){ .logits = true }, 0, 2);
}

static void
a_token_ahead_is_no_more_and_copies_nothing(void **state)
{
	(void)state;
	takes((struct compute_want){ .ahead = true }, 0, 0);
	takes((struct compute_want){ .ahead = true, .logits = true }, 0, 1);
}

static void
nor_is_it_with_a_share_for_the_cpu_ahead_or_not(void **state)
{
	(void)state;
	if (lanes_kernels_best() == NULL)
		skip();
	takes((struct compute_want){ .ahead = false }, 0.5f, 1);
	takes((struct compute_want){ .ahead = true }, 0.5f, 1);
	takes((struct compute_want){ .ahead = true, .logits = true }, 0.5f, 2);
}

#define AHEAD ((struct compute_want){ .ahead = true })

/* What greedy tokens are without any of it. */
static void
plain_tokens(uint32_t *ret, uint32_t n)
{
	struct loop loop;

	loop_open(&loop, (struct compute_want){ .ahead = false });
	for (uint32_t i = 0; i < n; i++) {
		ret[i] = loop.last.greatest;
		loop_go(&loop, (struct compute_want){ .ahead = false });
	}
	gpu_model_close(&loop.m);
}

/* From its second token on. */
static void
goes_on_as(struct loop *loop, const uint32_t *want)
{
	for (uint32_t i = 1; i < TOKENS; i++) {
		assert_int_equal(loop->last.greatest, want[i]);
		loop_go(loop, AHEAD);
	}
}

/* Each rule below is one with a share for the CPU, too. */
static float with_none, with_half = 0.5f;

static float
share_of(void **state)
{
	if (*state == &with_half && lanes_kernels_best() == NULL)
		skip();
	return *(const float *)*state;
}

/* The one behind the third is not taken by the device. */
static void
what_cannot_be_begun_ahead_is_begun_when_it_is_asked_for(void **state)
{
	uint32_t want[TOKENS];
	struct loop loop;

	plain_tokens(want, TOKENS);
	loop_open_sharing(&loop, AHEAD, share_of(state));
	for (uint32_t i = 0; i < TOKENS; i++) {
		assert_int_equal(loop.last.greatest, want[i]);
		cuda_cpu_fail("cudaGraphLaunch", i == 2);
		loop_go(&loop, AHEAD);
		assert_int_equal(loop.last.ahead, i != 2);
	}
	gpu_model_close(&loop.m);
}

static void
one_that_fails_is_the_failure_of_the_forward_that_wants_it(void **state)
{
	struct error err = { "" };
	uint32_t want[TOKENS];
	struct loop loop;

	plain_tokens(want, TOKENS);
	loop_open_sharing(&loop, AHEAD, share_of(state));
	cuda_cpu_break_graph();
	loop_go(&loop, AHEAD);
	assert_true(loop.last.ahead);
	assert_int_equal(loop.last.greatest, want[1]);
	assert_int_equal(loop_token(&loop, AHEAD, &err), -EIO);
	assert_non_null(strstr(err.text, "waiting for kernels"));
	goes_on_as(&loop, want);
	gpu_model_close(&loop.m);
}

/* As one that runs is dropped: it is waited for by what follows it. */
static void
one_that_fails_unasked_ends_what_comes_next(void **state)
{
	struct error err = { "" };
	uint32_t want[TOKENS], id;
	struct loop loop;

	plain_tokens(want, TOKENS);
	loop_open_sharing(&loop, AHEAD, share_of(state));
	cuda_cpu_break_graph();
	loop_go(&loop, AHEAD);
	id = loop.last.greatest;
	loop.last.greatest = id > 0 ? 0 : 1;
	assert_int_equal(loop_token(&loop, AHEAD, &err), -EIO);
	loop.last.greatest = id;
	goes_on_as(&loop, want);
	gpu_model_close(&loop.m);
}

/* Whoever waits for all of the device sees it first. */
static void
one_whose_failure_another_wait_saw_is_begun_again(void **state)
{
	uint32_t want[TOKENS];
	uint64_t *counts;
	struct loop loop;

	plain_tokens(want, TOKENS);
	loop_open_sharing(&loop, AHEAD, share_of(state));
	counts = calloc((size_t)loop.m.model.n_layers * loop.m.model.n_experts, sizeof(*counts));
	cuda_cpu_break_graph();
	loop_go(&loop, AHEAD);
	assert_true(loop.last.ahead);
	assert_int_equal(compute_cuda.usage(loop.m.compute, counts), -EIO);
	goes_on_as(&loop, want);
	free(counts);
	gpu_model_close(&loop.m);
}

#define BOTH(rule)                                                  \
	cmocka_unit_test_prestate(rule, &with_none),                \
	{                                                           \
#rule " with a share", rule, NULL, NULL, &with_half \
	}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_token_is_one_graph_and_one_wait_and_allocates_nothing),
		cmocka_unit_test(a_token_ahead_is_no_more_and_copies_nothing),
		cmocka_unit_test(nor_is_it_with_a_share_for_the_cpu_ahead_or_not),
		BOTH(what_cannot_be_begun_ahead_is_begun_when_it_is_asked_for),
		BOTH(one_that_fails_is_the_failure_of_the_forward_that_wants_it),
		BOTH(one_that_fails_unasked_ends_what_comes_next),
		BOTH(one_whose_failure_another_wait_saw_is_begun_again),
	};
	int failed;

	device = gpu_open();
	if (device == NULL)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
