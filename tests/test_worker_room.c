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
	bool staged = stage->attached.table.staging != NULL;

	return all_lent(stage) + (staged ? staging_bytes(&stage->attached.model) : 0);
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
		assert_true(stage->attached.n_slots == 16 || all_taken(stage) + slot > cap);
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

#define RULE(name) cmocka_unit_test_setup_teardown(name, attach_setup, attach_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(all_that_is_taken_is_within_the_cap),
		RULE(without_a_cap_it_is_what_is_free_less_a_reserve),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
