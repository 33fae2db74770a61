/* worker/attach.h on a device with memory of its own: what is taken of it, and what lies in slots,
 * is staged or read in place until all is registered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/attach_stage.h"

static uint64_t
all_lent(struct attach_stage *stage)
{
	uint64_t bytes;

	pthread_mutex_lock(&stage->pinner.lock);
	bytes = stage->pinner.lending.lent;
	pthread_mutex_unlock(&stage->pinner.lock);
	return bytes;
}

static uint64_t
slot_bytes(const struct attach_stage *stage)
{
	return model_slot_bytes(&stage->pinner.model);
}

static void
set_cap(struct attach_stage *stage, uint64_t cap)
{
	pthread_mutex_lock(&stage->pinner.lock);
	stage->pinner.lending.cap = cap;
	pthread_mutex_unlock(&stage->pinner.lock);
	desk_publish(&stage->pinner);
}

/* Else warm slots stay as they are. */
static void
forget_slots(struct attach_stage *stage)
{
	struct error err;

	pthread_mutex_lock(&stage->pinner.lock);
	lending_release(&stage->pinner.lending, "slots", &err);
	slot_table_close(&stage->pinner.slots);
	pthread_mutex_unlock(&stage->pinner.lock);
	desk_publish(&stage->pinner);
}

/* Trunk, cache, slots, and what is staged until the arena is registered. */
static uint64_t
all_taken(struct attach_stage *stage)
{
	bool apart = stage->attached.table.staging != NULL && !stage->attached.staged_in_slots;

	return all_lent(stage) + (apart ? staging_bytes(&stage->attached.model) : 0);
}

static void
all_that_is_taken_is_within_the_cap(void **state)
{
	struct attach_stage *stage = *state;
	uint64_t slot, cap;

	gpu_make(stage, 1ull << 36);
	loader_fill_all(stage);
	slot = slot_bytes(stage);
	for (uint32_t n = 8; n < 26; n += 3) {
		cap = pinner_lent(stage, "trunk") + fake_compute_ops.kv_bytes(NULL, CONTEXT) +
		      n * slot + slot / 2;
		set_cap(stage, cap);
		worker_attach(stage);
		worker_follow(stage, all_usable);
		assert_true(all_taken(stage) <= cap);
		assert_true(stage->attached.n_slots >= 15 || all_taken(stage) + slot > cap);
		worker_leave(stage);
		forget_slots(stage);
	}
}

static void
without_a_cap_it_is_what_is_free_less_a_reserve(void **state)
{
	uint64_t kv = fake_compute_ops.kv_bytes(NULL, CONTEXT), slot, before;
	struct attach_stage *stage = *state;

	gpu_make(stage, SLOTS_RESERVE_BYTES);
	loader_fill_all(stage);
	slot = slot_bytes(stage);
	gpu_make(stage, SLOTS_RESERVE_BYTES + kv + 13 * slot + slot / 2);
	before = all_lent(stage);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_true(all_taken(stage) - before <= kv + 13 * slot);
	assert_true(all_taken(stage) - before > kv + 12 * slot);
	worker_leave(stage);
}

static uint32_t
all_experts(const struct attach_stage *stage)
{
	return stage->attached.model.n_layers * stage->attached.model.n_experts;
}

/* Its bytes, wherever the device is to read it. */
static void
check_place(const struct attach_stage *stage, uint32_t which)
{
	const struct model *model = &stage->attached.model;
	const struct model_layer *layer = &model->layers[which / model->n_experts];

	for (uint32_t role = 0; role < N_ROLES; role++) {
		const struct experts *at = &layer->role[role];

		assert_memory_equal(stage->attached.table.places[which].role[role],
				    stage->attached.arena.base + at->offset +
					which % model->n_experts * at->stride,
				    at->bytes);
	}
}

/* As a forward does that needs all of them. */
static void
need_and_check(struct attach_stage *stage)
{
	const uint32_t experts[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	uint32_t n = stage->attached.model.n_experts;

	assert_int_equal(n, 8);
	for (uint32_t layer = 0; layer < stage->attached.model.n_layers; layer++) {
		assert_int_equal(table_need(&stage->attached.table, layer, experts, n), 0);
		for (uint32_t i = 0; i < n; i++)
			check_place(stage, layer * n + i);
	}
}

/* Room for all slots but not for what is staged beside them. */
static void
attach_narrow(struct attach_stage *stage)
{
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_true(stage->attached.staged_in_slots);
	assert_int_equal(stage->attached.n_slots, all_experts(stage) - 1);
}

static void
settle(struct attach_stage *stage)
{
	struct table *table = &stage->attached.table;

	while (table_register(table) == 1)
		;
	assert_true(table_settled(table));
	table_place(table);
	attach_unstage(&stage->attached);
	worker_move(stage, 0);
	assert_int_equal(table->slots.filled, table->slots.n);
	for (uint32_t i = 0; i < all_experts(stage); i++)
		check_place(stage, i);
}

static void
make_narrow(struct attach_stage *stage)
{
	gpu_make(stage, 1ull << 36);
	loader_fill_all(stage);
	set_cap(stage, pinner_lent(stage, "trunk") + fake_compute_ops.kv_bytes(NULL, CONTEXT) +
			   16 * slot_bytes(stage));
}

static void
what_is_staged_goes_through_the_last_slots_until_nothing_is(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;

	make_narrow(stage);
	attach_narrow(stage);
	worker_move(stage, 0);
	assert_int_equal(table->slots.filled, table->slots.n - 8);
	for (uint32_t slot = table->slots.n - 8; slot < table->slots.n; slot++)
		assert_int_equal(table->slots.expert_of[slot], SLOT_NONE);
	need_and_check(stage);
	settle(stage);
	worker_leave(stage);
}

/* By the pinner's own table, and nothing is on its way there. */
static void
last_slots_are_empty(struct attach_stage *stage)
{
	const struct slot_table *slots = &stage->pinner.slots;
	uint32_t not_empty = 0;

	pthread_mutex_lock(&stage->pinner.lock);
	for (uint32_t slot = slots->n - 8; slot < slots->n; slot++)
		not_empty += slots->content[slot].filled || slots->content[slot].coming != 0;
	pthread_mutex_unlock(&stage->pinner.lock);
	assert_int_equal(not_empty, 0);
}

/* The next worker stages into slots that the last one has filled: whoever comes then must not take
 * them for experts, and no move of the last one must come into them. */
static void
slots_that_are_staged_into_are_told_to_be_empty(void **state)
{
	struct attach_stage *stage = *state;
	struct table *table = &stage->attached.table;

	make_narrow(stage);
	attach_narrow(stage);
	settle(stage);
	worker_leave(stage);
	for (uint32_t i = 0; i < 2; i++) {
		attach_narrow(stage);
		assert_int_equal(table->slots.filled, table->slots.n - 8);
		last_slots_are_empty(stage);
		need_and_check(stage);
		worker_leave(stage); /* dead, before it has settled */
	}
	attach_narrow(stage);
	settle(stage);
	worker_leave(stage);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, attach_setup, attach_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(all_that_is_taken_is_within_the_cap),
		RULE(what_is_staged_goes_through_the_last_slots_until_nothing_is),
		RULE(slots_that_are_staged_into_are_told_to_be_empty),
		RULE(without_a_cap_it_is_what_is_free_less_a_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
