/* The registrar and what it carries out, over a device that refuses where the test wants. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/pin_stage.h"

#define CALL_BYTES 65536u /* for slices registered in several calls */
#define SMALL_BYTES (3 * (uint64_t)4096)

/* Stands in for the system's. */
int
mlock(const void *at, size_t bytes)
{
	(void)at;
	if (pinning.refuse_lock) {
		errno = EPERM;
		return -1;
	}
	pinning.locked_bytes += bytes;
	return 0;
}

static void
a_filled_slice_is_registered_in_one_locked_call(void **state)
{
	(void)state;
	follow();
	assert_int_equal(pinning.fake.n, 0);
	for (uint32_t i = 0; i < SLICES; i++) {
		fill(i);
		assert_int_equal(pinning.fake.n, i + 1);
		assert_int_equal(pinning.fake.calls[i].bytes, pinning.arena.slices[i].bytes);
		expect_slice(i, HEARTH__SLICE_STATE__SLICE_REGISTERED, true, NULL);
	}
	expect_ready();
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, SLICES));
	assert_int_equal(figures(NULL)->refused_bytes + figures(NULL)->over_cap_bytes, 0);
	assert_int_equal(pinning.locked_bytes, 0);
}

static void
refused_at_slice_k_what_is_registered_stays_and_the_rest_is_locked(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < SLICES; k++) {
		if (k) {
			pin_teardown(NULL);
			pin_setup(NULL);
		}
		pinning.fake.refuse = k + 1;
		fill_all();
		assert_int_equal(pinning.fake.n, k + 1); /* the refusal was the last call */
		for (uint32_t i = 0; i < SLICES; i++) {
			if (i < k)
				expect_slice(i, HEARTH__SLICE_STATE__SLICE_REGISTERED, true, NULL);
			else
				expect_slice(i, HEARTH__SLICE_STATE__SLICE_FILLED, true,
					     i == k ? "not registered: fake: the driver is full"
						    : "not registered: a slice before it");
		}
		expect_ready();
		assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, k));
		assert_int_equal(figures(NULL)->refused_bytes, bytes_of(k, SLICES));
		assert_non_null(strstr(figures(NULL)->refusal, pinning.arena.slices[k].name));
		assert_int_equal(figures(NULL)->locked_bytes, bytes_of(k, SLICES));
		assert_int_equal(pinning.locked_bytes, bytes_of(k, SLICES));
		assert_string_equal(figures(NULL)->locked_note, "");
	}
}

static void
a_refused_lock_is_noted_and_the_start_goes_on(void **state)
{
	(void)state;
	pinning.fake.refuse = 3;
	pinning.refuse_lock = true;
	fill_all();
	expect_ready();
	assert_int_equal(figures(NULL)->locked_bytes, 0);
	assert_non_null(strstr(figures(NULL)->locked_note, "layer 1: mlock of"));
	assert_non_null(strstr(figures(NULL)->locked_note, "refused"));
}

static void
over_the_cap_nothing_is_registered_but_locked(void **state)
{
	(void)state;
	pinning.pinner.pin_config =
	    (struct pin_config){ .capped = true, .cap = bytes_of(0, 3) + 4095 };
	fill_all();
	assert_int_equal(pinning.fake.n, 3);
	for (uint32_t i = 0; i < SLICES; i++)
		expect_slice(i,
			     i < 3 ? HEARTH__SLICE_STATE__SLICE_REGISTERED
				   : HEARTH__SLICE_STATE__SLICE_FILLED,
			     true, i < 3 ? NULL : "over --pin-gib 0");
	expect_ready();
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, 3));
	assert_int_equal(figures(NULL)->over_cap_bytes, bytes_of(3, SLICES));
	assert_int_equal(figures(NULL)->locked_bytes, bytes_of(3, SLICES));
	assert_int_equal(figures(NULL)->refused_bytes, 0);
}

static void
a_cap_of_0_registers_nothing_and_works(void **state)
{
	(void)state;
	pinning.pinner.pin_config.capped = true;
	fill_all();
	assert_int_equal(pinning.fake.n, 0);
	expect_ready();
	assert_int_equal(figures(NULL)->locked_bytes, bytes_of(0, SLICES));
}

static void
on_the_cpu_what_is_not_registered_is_left_alone(void **state)
{
	(void)state;
	pinning.fake.device.info.cuda = false;
	pinning.fake.device.info.computes_from_host = true;
	pinning.pinner.pin_config.capped = true;
	fill_all();
	assert_int_equal(pinning.fake.n, 0);
	assert_int_equal(pinning.locked_bytes, 0);
	expect_slice(1, HEARTH__SLICE_STATE__SLICE_FILLED, true, "over --pin-gib 0");
}

static void
before_registers_as_soon_as_the_arena_is_named(void **state)
{
	(void)state;
	pinning.pinner.pin_config =
	    (struct pin_config){ .order = PIN_BEFORE, .capped = true, .cap = bytes_of(0, 4) };
	follow();
	assert_int_equal(pinning.fake.n, 4);
	for (uint32_t i = 0; i < SLICES; i++) { /* the reader waits for none of them */
		expect_slice(i, HEARTH__SLICE_STATE__SLICE_RESERVED, true,
			     i < 4 ? NULL : "over --pin-gib");
		assert_false(pinning.pinner.usable[i]);
	}
	assert_int_equal(pinning.locked_bytes, 0);
	fill(2);
	expect_slice(2, HEARTH__SLICE_STATE__SLICE_REGISTERED, true, NULL);
	assert_true(pinning.pinner.usable[2]);
	assert_false(pinning.pinner.usable[1]);
	fill_all();
	assert_int_equal(pinning.fake.n, 4);
	assert_int_equal(figures(NULL)->locked_bytes, bytes_of(4, SLICES));
	expect_ready();
}

static void
before_a_refusal_holds_up_no_reader(void **state)
{
	(void)state;
	pinning.pinner.pin_config.order = PIN_BEFORE;
	pinning.fake.refuse = 2;
	follow();
	assert_int_equal(pinning.fake.n, 2);
	for (uint32_t i = 1; i < SLICES; i++)
		expect_slice(i, HEARTH__SLICE_STATE__SLICE_RESERVED, true, "not registered");
	fill_all();
	expect_ready();
}

/* One step a call, so that what the loader has filled meanwhile is seen between two slices. */
static void
registration_goes_on_while_the_loader_is_away(void **state)
{
	(void)state;
	pinning.pinner.pin_config.order = PIN_BEFORE;
	assert_int_equal(registrar_follow(&pinning.pinner, NULL, &pinning.err), 0);
	assert_int_equal(registrar_follow(&pinning.pinner, pinning.loader, &pinning.err), 1);
	assert_int_equal(pinning.fake.n, 1);
	for (uint32_t i = 1; i < SLICES; i++)
		assert_int_equal(registrar_follow(&pinning.pinner, NULL, &pinning.err), 1);
	assert_int_equal(pinning.fake.n, SLICES);
	assert_int_equal(registrar_follow(&pinning.pinner, NULL, &pinning.err), 0);
}

static void
calls_are_small_once_a_worker_serves(void **state)
{
	struct lend_wish kv = { .key = KV_KEY, .bytes = 4096 };
	const struct region *region;
	bool fresh;

	(void)state;
	fill(0);
	assert_int_equal(pinning.pinner.plan.slices[0].call_bytes, PIN_CALL_BYTES);
	assert_int_equal(lending_lend(&pinning.pinner.lending, &kv, &region, &fresh, &pinning.err),
			 0);
	fill(1);
	assert_int_equal(pinning.pinner.plan.slices[1].call_bytes, PIN_CALL_BYTES_SERVING);
}

/* Moves every expert of layer 1 into slots. */
static void
move_layer(uint8_t *slots)
{
	const struct model_layer *layer = &pinning.pinner.model.layers[1];
	uint64_t slot_bytes = model_slot_bytes(&pinning.pinner.model);

	for (uint32_t e = 0; e < pinning.pinner.model.n_experts; e++) {
		for (int role = 0; role < N_ROLES; role++) {
			const struct experts *experts = &layer->role[role];
			uint64_t offset = experts->offset + e * experts->stride;
			uint8_t *to = slots + e * slot_bytes + model_slot_offset(layer, role);

			assert_int_equal(
			    pin_copy(&pinning.pinner, to, 2, offset, experts->bytes, &pinning.err),
			    0);
			assert_memory_equal(to, pinning.arena.base + offset, experts->bytes);
		}
	}
}

static void
no_copy_straddles_two_registrations(void **state)
{
	uint8_t *slots;

	(void)state;
	follow();
	for (uint32_t i = 0; i < SLICES; i++)
		pinning.pinner.plan.slices[i].call_bytes = i == 2 ? SMALL_BYTES : CALL_BYTES;
	fill_all();
	assert_true(pinning.fake.n > 2 * SLICES);
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, SLICES));
	slots = malloc(pinning.pinner.model.n_experts * model_slot_bytes(&pinning.pinner.model));
	move_layer(slots);
	free(slots);
	expect_ready();
}

static void
refused_within_a_slice_its_first_calls_stay(void **state)
{
	uint8_t *slots;

	(void)state;
	follow();
	pinning.pinner.plan.slices[2].call_bytes = SMALL_BYTES;
	pinning.fake.refuse = 5; /* trunk, layer 0, and two calls for layer 1 are granted */
	fill_all();
	assert_int_equal(pinning.fake.n, 5);
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, 2) + 2 * SMALL_BYTES);
	assert_int_equal(figures(NULL)->refused_bytes, bytes_of(2, SLICES) - 2 * SMALL_BYTES);
	slots = malloc(pinning.pinner.model.n_experts * model_slot_bytes(&pinning.pinner.model));
	move_layer(slots);
	free(slots);
	expect_ready();
}

static void
another_arena_is_not_followed(void **state)
{
	(void)state;
	follow();
	pinning.loader->arena->inode++;
	assert_int_equal(registrar_follow(&pinning.pinner, pinning.loader, &pinning.err), -ESTALE);
}

/* The loader died between its word and our look: its next life names an arena. */
static void
an_arena_that_went_with_its_loader_is_waited_for(void **state)
{
	char path[64];

	(void)state;
	snprintf(path, sizeof(path), "%s", pinning.loader->arena->path);
	board_text(&pinning.loader->arena->path, "/proc/%d/fd/1000000", (int)getpid());
	assert_int_equal(registrar_follow(&pinning.pinner, pinning.loader, &pinning.err), 0);
	assert_false(pinning.pinner.attached);
	board_text(&pinning.loader->arena->path, "%s", path);
	fill_all();
	expect_ready();
}

/* Nor is one that is there without a head, its loader being at work on it, the user's fault: the
 * pinner leaves and is started again. */
static void
an_arena_without_a_head_is_the_loaders_failure(void **state)
{
	struct arena bare;

	(void)state;
	assert_int_equal(arena_create(&bare, pinning.arena.bytes, ARENA_PAGES_4K, &pinning.err), 0);
	board_text(&pinning.loader->arena->path, "/proc/%d/fd/%d", (int)getpid(), bare.fd);
	assert_int_equal(registrar_follow(&pinning.pinner, pinning.loader, &pinning.err), -EIO);
	assert_non_null(strstr(pinning.err.text, "arena: magic 0000000000000000"));
	assert_false(pinning.pinner.attached);
	arena_close(&bare);
}

static uint64_t
told(void)
{
	uint64_t version = board_edit(pinning.pinner.board)->version;

	board_publish(pinning.pinner.board);
	return version + 1; /* with this look */
}

/* Each heartbeat of a loader that is at work brings its state again. */
static void
a_loader_that_only_went_on_is_no_news(void **state)
{
	uint64_t before;

	(void)state;
	fill(0);
	before = told();
	follow();
	pinning.loader->version++;
	follow();
	assert_int_equal(told(), before + 1);
	fill(1);
	assert_true(told() > before + 2);
}

static void
expect_end(int rc, int ends, Hearth__Phase phase, const char *reason)
{
	const Hearth__State *said;
	struct error why;

	error_set(&why, rc, "the reason");
	assert_int_equal(registrar_leave(&pinning.pinner, rc, &why), ends);
	said = board_edit(pinning.pinner.board);
	assert_int_equal(said->phase, phase);
	assert_string_equal(said->reason, reason);
	board_publish(pinning.pinner.board);
}

static void
the_end_is_told_as_what_it_is(void **state)
{
	(void)state;
	expect_end(0, 0, HEARTH__PHASE__PHASE_LEAVING, "told to leave");
	expect_end(-ESTALE, 0, HEARTH__PHASE__PHASE_LEAVING, "the reason");
	expect_end(-EIO, -EIO, HEARTH__PHASE__PHASE_FAILED, "the reason");
}

#define REGISTRAR_TEST(name) cmocka_unit_test_setup_teardown(name, pin_setup, pin_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		REGISTRAR_TEST(a_filled_slice_is_registered_in_one_locked_call),
		REGISTRAR_TEST(refused_at_slice_k_what_is_registered_stays_and_the_rest_is_locked),
		REGISTRAR_TEST(a_refused_lock_is_noted_and_the_start_goes_on),
		REGISTRAR_TEST(over_the_cap_nothing_is_registered_but_locked),
		REGISTRAR_TEST(a_cap_of_0_registers_nothing_and_works),
		REGISTRAR_TEST(on_the_cpu_what_is_not_registered_is_left_alone),
		REGISTRAR_TEST(before_registers_as_soon_as_the_arena_is_named),
		REGISTRAR_TEST(before_a_refusal_holds_up_no_reader),
		REGISTRAR_TEST(registration_goes_on_while_the_loader_is_away),
		REGISTRAR_TEST(calls_are_small_once_a_worker_serves),
		REGISTRAR_TEST(no_copy_straddles_two_registrations),
		REGISTRAR_TEST(refused_within_a_slice_its_first_calls_stay),
		REGISTRAR_TEST(a_loader_that_only_went_on_is_no_news),
		REGISTRAR_TEST(the_end_is_told_as_what_it_is),
		REGISTRAR_TEST(another_arena_is_not_followed),
		REGISTRAR_TEST(an_arena_that_went_with_its_loader_is_waited_for),
		REGISTRAR_TEST(an_arena_without_a_head_is_the_loaders_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
