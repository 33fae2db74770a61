/* pinner/slot_table.h */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/slot_moves.h"

#define SLOTS 4u

static int
setup(void **state)
{
	static struct slot_table table;

	*state = &table;
	return slot_table_open(&table, SLOTS * 100, 100);
}

static int
teardown(void **state)
{
	slot_table_close(*state);
	return 0;
}

static void
holds(const struct slot_table *table, uint32_t slot, uint32_t layer, uint32_t expert)
{
	assert_true(table->content[slot].filled);
	assert_int_equal(table->content[slot].layer, layer);
	assert_int_equal(table->content[slot].expert, expert);
}

static void
a_slot_is_empty_from_the_taking_on_of_a_move_to_its_end(void **state)
{
	const struct slot_move first = MOVE(1, 2, 3), second = MOVE(0, 1, 3);
	struct slot_table *table = *state;

	slot_table_begin(table, &first, 1);
	assert_false(table->content[3].filled);
	slot_table_end(table, &first, 1, true);
	holds(table, 3, 1, 2);
	slot_table_begin(table, &second, 1);
	assert_false(table->content[3].filled);
	slot_table_end(table, &second, 1, true);
	holds(table, 3, 0, 1);
}

/* What a dead worker asked for is still to come when its successor asks. */
static void
of_several_moves_into_a_slot_the_last_one_counts(void **state)
{
	const struct slot_move dead = MOVE(1, 2, 0), alive = MOVE(1, 3, 0);
	struct slot_table *table = *state;

	slot_table_begin(table, &dead, 1);
	slot_table_begin(table, &alive, 1);
	slot_table_end(table, &dead, 1, true);
	assert_false(table->content[0].filled);
	slot_table_end(table, &alive, 1, true);
	holds(table, 0, 1, 3);
}

static void
a_move_that_failed_leaves_its_slot_empty(void **state)
{
	const struct slot_move before = MOVE(0, 0, 1), fails = MOVE(1, 1, 1);
	struct slot_table *table = *state;

	slot_table_begin(table, &before, 1);
	slot_table_end(table, &before, 1, true);
	slot_table_begin(table, &fails, 1);
	slot_table_end(table, &fails, 1, false);
	assert_false(table->content[1].filled);
}

static void
an_expert_is_told_to_be_in_one_slot_alone(void **state)
{
	const struct slot_move first = MOVE(1, 2, 0), again = MOVE(1, 2, 2);
	struct slot_table *table = *state;

	slot_table_begin(table, &first, 1);
	slot_table_end(table, &first, 1, true);
	slot_table_begin(table, &again, 1);
	holds(table, 0, 1, 2);
	slot_table_end(table, &again, 1, true);
	assert_false(table->content[0].filled);
	holds(table, 2, 1, 2);
}

static void
a_slot_that_is_to_be_empty_is_so_whatever_was_to_come_into_it(void **state)
{
	const struct slot_move fill = { .layer = 1, .expert = 2, .slot = 0 };
	const struct slot_move empty = { .layer = UINT32_MAX, .slot = 0, .empty = true };
	const struct slot_move wrong = { .slot = SLOTS, .empty = true };
	const struct model model = { .n_layers = 2, .n_experts = 3 };
	const bool usable[] = { true, true, true };
	struct slot_table *table = *state;
	struct error err;

	assert_int_equal(slot_table_check(table, &model, usable, &empty, 1, &err), 0);
	assert_int_equal(slot_table_check(table, &model, usable, &wrong, 1, &err), -EINVAL);
	slot_table_begin(table, &fill, 1);
	slot_table_begin(table, &empty, 1);
	slot_table_end(table, &fill, 1, true);
	assert_false(table->content[0].filled);
	slot_table_end(table, &empty, 1, true);
	assert_false(table->content[0].filled);
	assert_int_equal(table->content[0].coming, 0);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_slot_is_empty_from_the_taking_on_of_a_move_to_its_end),
		RULE(of_several_moves_into_a_slot_the_last_one_counts),
		RULE(a_move_that_failed_leaves_its_slot_empty),
		RULE(a_slot_that_is_to_be_empty_is_so_whatever_was_to_come_into_it),
		RULE(an_expert_is_told_to_be_in_one_slot_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
