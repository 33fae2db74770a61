/* worker/table.h: experts that are not there yet, or have no place in RAM, or cannot be read where
 * they lie.  Until something is published it is poison, which would be in the result. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/need_stage.h"

#define ALL 24u /* experts of a layer */
#define FEW 5u

static struct need_stage stage;

static void
check_logits(void)
{
	float *want = need_reference(&stage);

	assert_memory_equal(stage.logits, want, stage.model.vocabulary * sizeof(*want));
	free(want);
}

/* Each layer stands at its boundary until the loader has brought what it asked for. */
static void
run_through_gates(bool from_host, uint32_t resident)
{
	need_open(&stage, from_host, resident);
	stage.hold = true;
	need_loader_start(&stage);
	need_forward_begin(&stage);
	for (int layer = 0; layer < 3; layer++) {
		assert_true(gate_wait(&stage.asked, layer + 1));
		assert_int_equal(stage.question->layer, layer);
		need_loader_answer(&stage);
	}
	assert_int_equal(need_forward_end(&stage), 0);
	check_logits();
	need_check_asked(&stage);
	assert_int_equal(stage.copied != 0, !from_host);
	need_close(&stage);
}

static void
what_the_router_chose_is_brought_first_and_nothing_else_is_read(void **state)
{
	(void)state;
	run_through_gates(true, ALL);
}

static void
brought_ahead_on_a_device_it_goes_through_the_staging_ring(void **state)
{
	(void)state;
	run_through_gates(false, ALL);
}

static void
what_was_brought_ahead_is_not_asked_for_again(void **state)
{
	(void)state;
	need_open(&stage, true, ALL);
	need_loader_start(&stage);
	assert_int_equal(need_forward(&stage), 0);
	assert_int_equal(stage.n_asked, 3);
	assert_int_equal(need_forward(&stage), 0);
	assert_int_equal(stage.n_asked, 3);
	check_logits();
	need_close(&stage);
}

static void
with_a_budget_it_computes_the_same(void **state)
{
	(void)state;
	for (int from_host = 0; from_host < 2; from_host++) {
		need_open(&stage, from_host, FEW);
		need_loader_start(&stage);
		for (uint32_t layer = 0; layer < 3; layer++)
			need_publish(&stage, layer, true);
		while (table_look(&stage.table) < 3)
			assert_int_equal(upstream_wait(&stage.upstream, &stage.err), 0);
		for (int i = 0; i < 2; i++) {
			memset(stage.logits, 0, stage.model.vocabulary * sizeof(float));
			assert_int_equal(need_forward(&stage), 0);
			check_logits();
		}
		/* each time anew: the window holds one answer */
		assert_int_equal(stage.n_asked, 6);
		assert_false(table_settled(&stage.table));
		need_close(&stage);
	}
}

static void
a_budgets_experts_are_asked_for_alone(void **state)
{
	(void)state;
	need_open(&stage, true, FEW);
	need_loader_start(&stage);
	for (uint32_t layer = 0; layer < 3; layer++)
		need_publish(&stage, layer, true);
	while (table_look(&stage.table) < 3)
		assert_int_equal(upstream_wait(&stage.upstream, &stage.err), 0);
	assert_int_equal(need_forward(&stage), 0);
	for (uint32_t layer = 0; layer < 3; layer++)
		for (uint32_t expert = 0; expert < FEW; expert++)
			assert_false(stage.was_asked[layer * ALL + expert]);
	need_close(&stage);
}

/* All of a layer's experts at once: more than the ring holds at a time. */
static void
what_is_staged_equals_what_lies_in_place(void **state)
{
	const struct model *model;
	uint32_t experts[ALL];

	(void)state;
	need_open(&stage, false, ALL);
	model = &stage.model;
	for (uint32_t i = 0; i < ALL; i++)
		experts[i] = i;
	for (uint32_t layer = 0; layer < 3; layer++)
		need_publish(&stage, layer, true);
	while (table_look(&stage.table) < 3)
		assert_int_equal(upstream_wait(&stage.upstream, &stage.err), 0);
	for (uint32_t layer = 0; layer < 3; layer++) {
		assert_int_equal(table_source(&stage.table, layer), SOURCE_STAGING);
		assert_int_equal(table_need(&stage.table, layer, experts, ALL), 0);
		assert_int_equal(stage.n_copies, 0); /* none is still on its way */
		for (uint32_t e = 0; e < ALL; e++)
			for (enum role role = 0; role < N_ROLES; role++) {
				const struct experts *at = &model->layers[layer].role[role];
				const void *place = stage.table.places[layer * ALL + e].role[role];

				assert_ptr_not_equal(place,
						     stage.table.home[layer * ALL + e].role[role]);
				assert_memory_equal(place,
						    stage.whole.base + at->offset + e * at->stride,
						    at->bytes);
			}
	}
	assert_int_equal(stage.table.staged_experts, 3 * ALL);
	assert_int_equal(need_forward(&stage), 0);
	check_logits();
	/* registered, it is read in place, and nothing is copied any more */
	while (table_register(&stage.table) == 1)
		;
	assert_true(table_settled(&stage.table));
	stage.copied = 0;
	assert_int_equal(need_forward(&stage), 0);
	check_logits();
	assert_int_equal(stage.copied, 0);
	need_close(&stage);
}

static void
a_slice_that_is_filled_meanwhile_ends_the_waiting(void **state)
{
	(void)state;
	need_open(&stage, true, ALL);
	stage.hold = true;
	need_loader_start(&stage);
	need_forward_begin(&stage);
	for (uint32_t layer = 0; layer < 3; layer++) {
		assert_true(gate_wait(&stage.asked, (int)layer + 1));
		need_publish(&stage, layer, false);
	}
	assert_int_equal(need_forward_end(&stage), 0);
	check_logits();
	need_close(&stage);
}

static void
without_a_loader_it_waits_for_the_slices(void **state)
{
	(void)state;
	need_open(&stage, true, ALL);
	need_forward_begin(&stage);
	for (uint32_t layer = 0; layer < 3; layer++)
		need_publish(&stage, layer, false);
	assert_int_equal(need_forward_end(&stage), 0);
	check_logits();
	need_close(&stage);
}

static void
a_loader_lost_in_the_middle_is_asked_again_when_it_is_back(void **state)
{
	(void)state;
	need_open(&stage, true, FEW); /* the slices alone would not do */
	stage.hold = true;
	need_loader_start(&stage);
	need_forward_begin(&stage);
	assert_true(gate_wait(&stage.asked, 1));
	need_loader_stop(&stage);
	stage.hold = false;
	need_loader_start(&stage);
	need_word(&stage);
	assert_int_equal(need_forward_end(&stage), 0);
	check_logits();
	need_close(&stage);
}

static void
a_refusal_is_waited_out_where_the_slice_will_come(void **state)
{
	(void)state;
	need_open(&stage, true, ALL);
	stage.refuses = -EIO;
	need_loader_start(&stage);
	need_forward_begin(&stage);
	for (uint32_t layer = 0; layer < 3; layer++) {
		assert_true(gate_wait(&stage.asked, (int)layer + 1));
		need_publish(&stage, layer, false);
	}
	assert_int_equal(need_forward_end(&stage), 0);
	check_logits();
	need_close(&stage);
}

static void
a_refusal_of_what_has_no_other_way_is_an_error_with_its_reason(void **state)
{
	(void)state;
	need_open(&stage, true, FEW);
	stage.refuses = -EBADMSG;
	need_loader_start(&stage);
	assert_int_equal(need_forward(&stage), -EBADMSG);
	assert_non_null(strstr(stage.table.failure.text, "the drive is on fire"));
	need_close(&stage);
}

static void
an_answer_that_points_out_of_the_arena_is_refused(void **state)
{
	(void)state;
	need_open(&stage, true, FEW);
	stage.out_of_arena = true;
	need_loader_start(&stage);
	assert_int_equal(need_forward(&stage), -EPROTO);
	assert_non_null(strstr(stage.table.failure.text, "the arena has"));
	need_close(&stage);
}

static void
leaving_ends_the_wait_for_the_loader(void **state)
{
	(void)state;
	need_open(&stage, true, ALL);
	stage.hold = true;
	need_loader_start(&stage);
	need_forward_begin(&stage);
	assert_true(gate_wait(&stage.asked, 1));
	service_leave(&stage.service);
	assert_int_equal(need_forward_end(&stage), -ECANCELED);
	need_close(&stage);
}

static bool
at_once(void *arg)
{
	(void)arg;
	return true;
}

static void
an_order_ends_the_wait_for_the_loader(void **state)
{
	(void)state;
	need_open(&stage, true, ALL);
	stage.hold = true;
	need_loader_start(&stage);
	stage.table.interrupted = at_once;
	assert_int_equal(need_forward(&stage), -ECANCELED);
	stage.table.interrupted = NULL;
	stage.hold = false;
	assert_int_equal(need_forward(&stage), 0);
	check_logits();
	need_close(&stage);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_the_router_chose_is_brought_first_and_nothing_else_is_read),
		cmocka_unit_test(brought_ahead_on_a_device_it_goes_through_the_staging_ring),
		cmocka_unit_test(what_was_brought_ahead_is_not_asked_for_again),
		cmocka_unit_test(with_a_budget_it_computes_the_same),
		cmocka_unit_test(a_budgets_experts_are_asked_for_alone),
		cmocka_unit_test(what_is_staged_equals_what_lies_in_place),
		cmocka_unit_test(a_slice_that_is_filled_meanwhile_ends_the_waiting),
		cmocka_unit_test(without_a_loader_it_waits_for_the_slices),
		cmocka_unit_test(a_loader_lost_in_the_middle_is_asked_again_when_it_is_back),
		cmocka_unit_test(a_refusal_is_waited_out_where_the_slice_will_come),
		cmocka_unit_test(a_refusal_of_what_has_no_other_way_is_an_error_with_its_reason),
		cmocka_unit_test(an_answer_that_points_out_of_the_arena_is_refused),
		cmocka_unit_test(leaving_ends_the_wait_for_the_loader),
		cmocka_unit_test(an_order_ends_the_wait_for_the_loader),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
