/* loader/demand.h and loader/fetch_desk.h: what is asked for on `loader.fetch` is read before the
 * rest, and is in place when the answer comes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/fetch_stage.h"
#include "tests/random_tensors.h"

static uint64_t
first_span_end(void)
{
	return fetching.load.files.tensors[0].file_offset + SPAN_BYTES;
}

/* One thread, held at the first span of the trunk and again at what follows: between the two it
 * reads what was demanded and nothing else. */
static void
a_demanded_expert_comes_before_the_rest(void **state)
{
	struct asker asker = { .layer = 1, .experts = { 0, 2 }, .n = 2 };
	struct demand_figures figures;

	(void)state;
	fetch_stage_open(NULL);
	fetch_stage_start_reader(1);
	assert_true(gate_wait(&fetching.at_trunk, 1));
	asker_start(&asker);
	assert_true(gate_wait(&fetching.brought, 1));
	fetch_stage_let_trunk(first_span_end());
	asker_expect(&asker);
	assert_true(gate_wait(&fetching.at_trunk, 2));
	assert_true(fetching.load.seen.bytes < SPAN_BYTES + (1u << 20));
	assert_int_equal(fetching.load.seen.filled[0] + fetching.load.seen.filled[1], 0);
	demand_figures(fetching.demand, &figures);
	assert_int_equal(figures.requests, 1);
	assert_true(figures.first_ns > 0 && figures.wait_ns > 0);
	assert_true(figures.bytes >= 2ull * (12345 + 4096) && figures.bytes < 1u << 20);
	fetch_stage_let_trunk(TRUNK_ALL);
	assert_int_equal(reader_join(fetching.reader, &fetching.load.err), 0);
	assert_int_equal(fetching.load.seen.bytes, fetching.load.pieces.bytes);
	fetch_stage_close();
}

static void
several_calls_wait_at_once_and_each_gets_its_own(void **state)
{
	struct asker askers[] = {
		{ .layer = 0, .experts = { 1 }, .n = 1 },
		{ .layer = 1, .experts = { 0, 1, 2 }, .n = 3 },
		{ .layer = 0, .experts = { 0, 1 }, .n = 2 },
		{ .layer = 0, .experts = { 1 }, .n = 1 }, /* the same again */
	};

	(void)state;
	fetch_stage_open(NULL);
	fetch_stage_start_reader(2);
	assert_true(gate_wait(&fetching.at_trunk, 2));
	for (int i = 0; i < 4; i++)
		asker_start(&askers[i]);
	assert_true(gate_wait(&fetching.brought, 4));
	fetch_stage_let_trunk(first_span_end());
	for (int i = 0; i < 4; i++)
		asker_expect(&askers[i]);
	assert_int_equal(fetching.load.seen.filled[0], 0);
	fetch_stage_close();
}

static void
a_call_before_there_is_a_reader_waits_for_it(void **state)
{
	struct asker asker = { .layer = 0, .experts = { 2 }, .n = 1 };

	(void)state;
	fetch_stage_open(NULL);
	asker_start(&asker);
	assert_true(gate_wait(&fetching.brought, 1));
	fetch_stage_start_reader(1);
	asker_expect(&asker);
	fetch_stage_close();
}

static void
what_is_there_is_answered_at_once(void **state)
{
	const uint32_t experts[] = { 0, 1, 2 };

	(void)state;
	fetch_stage_open(NULL);
	fetch_stage_start_reader(3);
	fetch_stage_let_trunk(TRUNK_ALL);
	assert_int_equal(reader_join(fetching.reader, &fetching.load.err), 0);
	for (uint32_t layer = 0; layer < 2; layer++)
		fetch_expect_in_place(fetch_ask(layer, experts, 3), layer, experts, 3);
	fetch_stage_close();
}

static void
a_warm_slice_is_there_without_a_reader(void **state)
{
	const bool skip[3] = { true, true, true };
	const uint32_t expert = 1;
	Hearth__FetchReply *reply;

	(void)state;
	fetch_stage_open(skip);
	reply = fetch_ask(0, &expert, 1);
	assert_int_equal(reply->error, 0);
	assert_int_equal(reply->experts[0]->expert, 1);
	assert_int_equal(reply->experts[0]->offset_gate,
			 fetching.load.files.tensors[1].offset +
			     fetching.load.files.tensors[1].bytes / 3);
	hearth__fetch_reply__free_unpacked(reply, NULL);
	fetch_stage_close();
}

static void
what_makes_no_sense_is_refused_and_changes_nothing(void **state)
{
	const uint32_t beyond[] = { 0, 3 }, backward[] = { 2, 1 }, twice[] = { 1, 1 };
	struct demand_figures figures;
	uint8_t rubbish[64];

	(void)state;
	fetch_stage_open(NULL);
	memset(rubbish, 0xff, sizeof(rubbish));
	fetch_expect_refused(fetch_ask(2, twice, 1), -EINVAL, "layer 2, this model has 2");
	fetch_expect_refused(fetch_ask(UINT32_MAX, twice, 1), -EINVAL, "this model has 2");
	fetch_expect_refused(fetch_ask(0, beyond, 2), -EINVAL, "expert 3, this model has 3");
	fetch_expect_refused(fetch_ask(0, backward, 2), -EINVAL, "expert 1 behind 2");
	fetch_expect_refused(fetch_ask(0, twice, 2), -EINVAL, "want each once and ascending");
	fetch_expect_refused(fetch_ask(0, NULL, 0), -EINVAL, "no experts");
	fetch_expect_refused(fetch_ask_bytes(rubbish, sizeof(rubbish)), -EPROTO, "no Fetch");
	demand_figures(fetching.demand, &figures);
	assert_int_equal(figures.requests, 0);
	assert_int_equal(figures.bytes, 0);
	fetch_stage_close();
}

/* Order `before`: the loader may not write to a slice yet. */
static bool
none_may_be_written(void *arg, uint32_t slice)
{
	(void)slice;
	return atomic_load((atomic_bool *)arg);
}

static void
a_demand_waits_until_its_slice_may_be_written(void **state)
{
	struct asker asker = { .layer = 0, .experts = { 0 }, .n = 1 };
	atomic_bool may;

	(void)state;
	atomic_init(&may, false);
	fetch_stage_open(NULL);
	piece_queue_gate(fetching.load.queue, none_may_be_written, &may);
	fetch_stage_start_reader(2);
	asker_start(&asker);
	assert_true(gate_wait(&fetching.brought, 1));
	assert_int_equal(atomic_load(&fake.calls), 0);
	atomic_store(&may, true);
	piece_queue_wake(fetching.load.queue);
	asker_expect(&asker);
	fetch_stage_close();
}

static void
an_io_error_ends_the_load_and_the_call_gets_the_line(void **state)
{
	struct asker asker = { .layer = 1, .experts = { 1 }, .n = 1 };
	const uint32_t later = 0;

	(void)state;
	fetch_stage_open(NULL);
	fake.fail_at = fetching.load.files.tensors[4].file_offset; /* blk.1.ffn_up_exps */
	fake.fail_with = -EIO;
	asker_start(&asker);
	assert_true(gate_wait(&fetching.brought, 1));
	fetch_stage_start_reader(1);
	assert_int_equal(reader_join(fetching.reader, &fetching.load.err), -EIO);
	demand_end(fetching.demand, -EIO, &fetching.load.err); /* as load_fail does */
	asker_join(&asker);
	fetch_expect_refused(asker.reply, -EIO, "layer 1: blk.1.ffn_up_exps.weight: reading");
	fetch_expect_refused(fetch_ask(1, &later, 1), -EIO, "blk.1.ffn_up_exps.weight");
	fetch_stage_close();
}

static void
demands_and_order_meet_in_any_way(void **state)
{
	uint32_t random = 5;

	(void)state;
	fetch_stage_open(NULL);
	fetch_stage_let_trunk(TRUNK_ALL);
	fetch_stage_start_reader(4);
	for (int i = 0; i < 40; i++) {
		uint32_t expert = random_next(&random) % 3, layer = random_next(&random) % 2;

		fetch_expect_in_place(fetch_ask(layer, &expert, 1), layer, &expert, 1);
	}
	assert_int_equal(reader_join(fetching.reader, &fetching.load.err), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(fetching.load.seen.filled[i], 1);
	assert_int_equal(fetching.load.seen.bytes, fetching.load.pieces.bytes);
	fetch_stage_close();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_demanded_expert_comes_before_the_rest),
		cmocka_unit_test(several_calls_wait_at_once_and_each_gets_its_own),
		cmocka_unit_test(a_call_before_there_is_a_reader_waits_for_it),
		cmocka_unit_test(what_is_there_is_answered_at_once),
		cmocka_unit_test(a_warm_slice_is_there_without_a_reader),
		cmocka_unit_test(what_makes_no_sense_is_refused_and_changes_nothing),
		cmocka_unit_test(a_demand_waits_until_its_slice_may_be_written),
		cmocka_unit_test(an_io_error_ends_the_load_and_the_call_gets_the_line),
		cmocka_unit_test(demands_and_order_meet_in_any_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
