/* The registrar and what it carries out, over a device that refuses where the test wants. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "pinner/pinner.h"
#include "tests/arena_maker.h"
#include "tests/fake_device.h"
#include "tests/scratch.h"

#define LAYERS 4u
#define SLICES (1 + LAYERS)
#define CALL_BYTES 65536u /* for slices registered in several calls */

static struct scratch scratch;
static struct service service;
static struct arena arena;
static char path[SHARED_PATH_BYTES];
static struct fake_device fake;
static struct pinner pinner;
static Hearth__State *loader;
static struct error err;
static uint64_t locked_bytes;
static bool refuse_lock;

/* Stands in for the system's. */
int
mlock(const void *at, size_t bytes)
{
	(void)at;
	if (refuse_lock) {
		errno = EPERM;
		return -1;
	}
	locked_bytes += bytes;
	return 0;
}

static void
make_loader(void)
{
	Hearth__Arena *named;

	loader = malloc(sizeof(*loader));
	hearth__state__init(loader);
	named = board_arena(loader);
	board_text(&named->path, "%s", path);
	named->bytes = arena.bytes;
	named->inode = arena.inode;
	named->fingerprint = arena.head->fingerprint;
	named->layout_hash = arena.head->layout_hash;
	board_slices(loader, SLICES);
}

static int
setup(void **state)
{
	struct tiny tiny = tiny_default();

	(void)state;
	tiny.layers = LAYERS;
	scratch_open(&scratch);
	service = (struct service){ .stage = "pinner" };
	pthread_mutex_init(&service.lock, NULL);
	arena_make(&arena, &tiny);
	shared_memory_path(path, arena.fd);
	make_loader();
	fake_device_open(&fake);
	fake.arena = path;
	locked_bytes = 0;
	refuse_lock = false;
	pinner = (struct pinner){ .service = &service, .device = &fake.device };
	pinner.lending.device = &fake.device;
	pthread_mutex_init(&pinner.lock, NULL);
	pthread_cond_init(&pinner.moves, NULL);
	if (board_open(&pinner.board, scratch.dir, "pinner", &err) < 0)
		return -1;
	board_pinning(board_edit(pinner.board));
	board_publish(pinner.board);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	board_close(pinner.board);
	slot_table_close(&pinner.slots);
	lending_close(&pinner.lending);
	registrar_close(&pinner);
	hearth__state__free_unpacked(loader, NULL);
	arena_close(&arena);
	scratch_close(&scratch);
	return 0;
}

static void
follow(void)
{
	int rc;

	do {
		rc = registrar_follow(&pinner, loader, &err);
	} while (rc == 1);
	if (rc < 0)
		fail_msg("%s", err.text);
}

static void
fill(uint32_t slice)
{
	loader->slices[slice]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	loader->slices[slice]->checksum = 100 + slice;
	follow();
}

static void
fill_all(void)
{
	for (uint32_t i = 0; i < SLICES; i++)
		fill(i);
}

static uint64_t
bytes_of(uint32_t from, uint32_t to)
{
	uint64_t sum = 0;

	for (uint32_t i = from; i < to; i++)
		sum += arena.slices[i].bytes;
	return sum;
}

/* A slice as the board has it. */
static void
expect_slice(uint32_t i, Hearth__SliceState want, bool settled, const char *note)
{
	const Hearth__Slice *slice = board_edit(pinner.board)->slices[i];

	assert_int_equal(slice->state, want);
	assert_int_equal(slice->settled, settled);
	if (!note)
		assert_string_equal(slice->note, "");
	else if (!strstr(slice->note, note))
		fail_msg("%s: \"%s\" does not say \"%s\"", slice->name, slice->note, note);
	board_publish(pinner.board);
}

/* The figures; the board's own, for the test alone. */
static const Hearth__Pinning *
figures(Hearth__Phase *ret_phase)
{
	Hearth__State *state = board_edit(pinner.board);

	board_publish(pinner.board);
	if (ret_phase)
		*ret_phase = state->phase;
	return state->pinning;
}

static void
expect_ready(void)
{
	const struct region *trunk = lending_find(&pinner.lending, TRUNK_KEY);
	Hearth__Phase phase;

	figures(&phase);
	assert_int_equal(phase, HEARTH__PHASE__PHASE_READY);
	assert_int_equal(fake.straddling, 0);
	assert_int_equal(fake.unlocked, 0);
	assert_non_null(trunk);
	assert_memory_equal(trunk->device.at, arena.base + arena.slices[0].offset,
			    arena.slices[0].bytes);
}

static void
a_filled_slice_is_registered_in_one_locked_call(void **state)
{
	(void)state;
	follow();
	assert_int_equal(fake.n, 0);
	for (uint32_t i = 0; i < SLICES; i++) {
		fill(i);
		assert_int_equal(fake.n, i + 1);
		assert_int_equal(fake.calls[i].bytes, arena.slices[i].bytes);
		expect_slice(i, HEARTH__SLICE_STATE__SLICE_REGISTERED, true, NULL);
	}
	expect_ready();
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, SLICES));
	assert_int_equal(figures(NULL)->refused_bytes + figures(NULL)->over_cap_bytes, 0);
	assert_int_equal(locked_bytes, 0);
}

static void
refused_at_slice_k_what_is_registered_stays_and_the_rest_is_locked(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < SLICES; k++) {
		if (k) {
			teardown(NULL);
			setup(NULL);
		}
		fake.refuse = k + 1;
		fill_all();
		assert_int_equal(fake.n, k + 1); /* the refusal was the last call */
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
		assert_non_null(strstr(figures(NULL)->refusal, arena.slices[k].name));
		assert_int_equal(figures(NULL)->locked_bytes, bytes_of(k, SLICES));
		assert_int_equal(locked_bytes, bytes_of(k, SLICES));
		assert_string_equal(figures(NULL)->locked_note, "");
	}
}

static void
a_refused_lock_is_noted_and_the_start_goes_on(void **state)
{
	(void)state;
	fake.refuse = 3;
	refuse_lock = true;
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
	pinner.pin_config = (struct pin_config){ .capped = true, .cap = bytes_of(0, 3) + 4095 };
	fill_all();
	assert_int_equal(fake.n, 3);
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
	pinner.pin_config.capped = true;
	fill_all();
	assert_int_equal(fake.n, 0);
	expect_ready();
	assert_int_equal(figures(NULL)->locked_bytes, bytes_of(0, SLICES));
}

static void
on_the_cpu_what_is_not_registered_is_left_alone(void **state)
{
	(void)state;
	fake.device.info.cuda = false;
	fake.device.info.computes_from_host = true;
	pinner.pin_config.capped = true;
	fill_all();
	assert_int_equal(fake.n, 0);
	assert_int_equal(locked_bytes, 0);
	expect_slice(1, HEARTH__SLICE_STATE__SLICE_FILLED, true, "over --pin-gib 0");
}

static void
before_registers_as_soon_as_the_arena_is_named(void **state)
{
	(void)state;
	pinner.pin_config =
	    (struct pin_config){ .order = PIN_BEFORE, .capped = true, .cap = bytes_of(0, 4) };
	follow();
	assert_int_equal(fake.n, 4);
	for (uint32_t i = 0; i < SLICES; i++) { /* the reader waits for none of them */
		expect_slice(i, HEARTH__SLICE_STATE__SLICE_RESERVED, true,
			     i < 4 ? NULL : "over --pin-gib");
		assert_false(pinner.usable[i]);
	}
	assert_int_equal(locked_bytes, 0);
	fill(2);
	expect_slice(2, HEARTH__SLICE_STATE__SLICE_REGISTERED, true, NULL);
	assert_true(pinner.usable[2]);
	assert_false(pinner.usable[1]);
	fill_all();
	assert_int_equal(fake.n, 4);
	assert_int_equal(figures(NULL)->locked_bytes, bytes_of(4, SLICES));
	expect_ready();
}

static void
before_a_refusal_holds_up_no_reader(void **state)
{
	(void)state;
	pinner.pin_config.order = PIN_BEFORE;
	fake.refuse = 2;
	follow();
	assert_int_equal(fake.n, 2);
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
	pinner.pin_config.order = PIN_BEFORE;
	assert_int_equal(registrar_follow(&pinner, NULL, &err), 0);
	assert_int_equal(registrar_follow(&pinner, loader, &err), 1);
	assert_int_equal(fake.n, 1);
	for (uint32_t i = 1; i < SLICES; i++)
		assert_int_equal(registrar_follow(&pinner, NULL, &err), 1);
	assert_int_equal(fake.n, SLICES);
	assert_int_equal(registrar_follow(&pinner, NULL, &err), 0);
}

static void
calls_are_small_once_a_worker_serves(void **state)
{
	struct lend_wish kv = { .key = KV_KEY, .bytes = 4096 };
	const struct region *region;
	bool fresh;

	(void)state;
	fill(0);
	assert_int_equal(pinner.plan.slices[0].call_bytes, PIN_CALL_BYTES);
	assert_int_equal(lending_lend(&pinner.lending, &kv, &region, &fresh, &err), 0);
	fill(1);
	assert_int_equal(pinner.plan.slices[1].call_bytes, PIN_CALL_BYTES_SERVING);
}

/* Moves every expert of layer 1 into slots. */
static void
move_layer(uint8_t *slots)
{
	const struct model_layer *layer = &pinner.model.layers[1];
	uint64_t slot_bytes = model_slot_bytes(&pinner.model);

	for (uint32_t e = 0; e < pinner.model.n_experts; e++) {
		for (int role = 0; role < N_ROLES; role++) {
			const struct experts *experts = &layer->role[role];
			uint64_t offset = experts->offset + e * experts->stride;
			uint8_t *to = slots + e * slot_bytes + model_slot_offset(layer, role);

			assert_int_equal(pin_copy(&pinner, to, 2, offset, experts->bytes, &err), 0);
			assert_memory_equal(to, arena.base + offset, experts->bytes);
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
		pinner.plan.slices[i].call_bytes = i == 2 ? 3 * 4096 : CALL_BYTES;
	fill_all();
	assert_true(fake.n > 2 * SLICES);
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, SLICES));
	slots = malloc(pinner.model.n_experts * model_slot_bytes(&pinner.model));
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
	pinner.plan.slices[2].call_bytes = 3 * 4096;
	fake.refuse = 5; /* trunk, layer 0, and two calls for layer 1 are granted */
	fill_all();
	assert_int_equal(fake.n, 5);
	assert_int_equal(figures(NULL)->registered_bytes, bytes_of(0, 2) + 6 * 4096);
	assert_int_equal(figures(NULL)->refused_bytes, bytes_of(2, SLICES) - 6 * 4096);
	slots = malloc(pinner.model.n_experts * model_slot_bytes(&pinner.model));
	move_layer(slots);
	free(slots);
	expect_ready();
}

static void
another_arena_is_not_followed(void **state)
{
	(void)state;
	follow();
	loader->arena->inode++;
	assert_int_equal(registrar_follow(&pinner, loader, &err), -ESTALE);
}

#define REGISTRAR_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
		REGISTRAR_TEST(another_arena_is_not_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
