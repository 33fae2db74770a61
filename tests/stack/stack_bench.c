/* What bench-gpu does to a stack, on the CPU device and with the demo model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "tests/bench_decode.h"
#include "tests/bench_experts.h"
#include "tests/bench_stack.h"
#include "tests/stack_run.h"

#define CONTEXT 256u

static const struct bench_rates rates = { { 10, 10, 10, 10 } };

static struct bench_decode
open_decode(void)
{
	struct bench_decode decode = { .name = "bench",
				       .model = stack_path("tests/data/kjv-16x1m.gguf"),
				       .router = "even",
				       .device = "cpu",
				       .tokens = 24,
				       .runs = 2,
				       .rates = &rates };
	struct error err;

	assert_int_equal(device_open(&decode.opened, "cpu", &err), 0);
	return decode;
}

static void
a_context_that_was_put_there_is_found_and_decoded_behind(void **state)
{
	struct bench_decode decode = open_decode();
	struct bench_row row;
	struct error err;
	double experts;
	char why[256];

	(void)state;
	assert_true(bench_decode_up(&decode, 0, CONTEXT, why));
	bench_decode_row(&decode, 0, CONTEXT, &row); /* ends the test if it is computed anew */
	assert_int_equal(row.tokens, 24);
	assert_true(row.distinct >= 1 && row.distinct <= 24);
	assert_int_equal(row.slots, 0);
	assert_true(row.hits == 0);
	assert_true(row.worker >= row.ask && row.ask > 0);
	assert_true(row.traffic.bytes[BENCH_SLOTS] == 0);
	assert_true(row.traffic.bytes[BENCH_ARENA] == bench_expert_bytes(&decode.shape));
	assert_int_equal(bench_experts_rate(&decode.arena, &decode.shape, 2, &experts, &err), 0);
	assert_true(experts > 0);
	bench_decode_down(&decode);
	device_close(decode.opened);
}

static void
a_death_is_timed_behind_such_a_context(void **state)
{
	struct bench_decode decode = open_decode();
	uint32_t ids[CONTEXT];
	struct bench_death death;
	char why[256], *prompt;

	(void)state;
	decode.tokens = 2000;
	assert_true(bench_decode_up(&decode, 0, CONTEXT, why));
	prompt = bench_decode_prompt(CONTEXT, 0, decode.shape.vocabulary, ids);
	bench_decode_keep(&decode, ids, CONTEXT);
	death = bench_die(decode.dir, decode.name, prompt, "2000", 20);
	assert_true(death.started > 0 && death.started <= death.attaching);
	assert_true(death.attaching <= death.attached && death.attached <= death.seconds);
	free(prompt);
	bench_decode_down(&decode);
	device_close(decode.opened);
}

static void
a_budget_without_room_is_said_so(void **state)
{
	struct bench_decode decode = open_decode();
	char why[256] = "";

	(void)state;
	assert_false(bench_decode_up(&decode, 1, 4000, why));
	assert_string_not_equal(why, "");
	device_close(decode.opened);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(a_context_that_was_put_there_is_found_and_decoded_behind),
		stack_test(a_death_is_timed_behind_such_a_context),
		stack_test(a_budget_without_room_is_said_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
