/* worker/table.h on a device that reads the arena only where this process has registered it:
 * registering. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/device_ops.h"
#include "worker/table.h"

#define MIB (1ull << 20)
#define LAYERS 2u
#define EXPERTS 3u
#define SLICE_BYTES (150 * MIB + 4096)

static struct {
	uint64_t calls, bytes, largest;
	const uint8_t *next; /* where the next piece of a slice must begin */
	bool refuse;
} seen;

static int
count_register(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	(void)device;
	if (seen.refuse)
		return error_set(err, -ENOMEM, "no more memory may be locked");
	assert_true(read_only);
	assert_int_not_equal(bytes, 0);
	assert_int_equal((uintptr_t)at % ARENA_SLICE_ALIGN, 0);
	if ((uintptr_t)at % (256 * MIB) != 0) /* not a slice's first */
		assert_ptr_equal(at, seen.next);
	seen.next = (const uint8_t *)at + bytes;
	seen.calls++;
	seen.bytes += bytes;
	seen.largest = bytes > seen.largest ? bytes : seen.largest;
	return 0;
}

struct stage {
	struct device device;
	struct arena arena;
	struct arena_slice slices[1 + LAYERS];
	struct model model;
	struct model_layer layers[LAYERS];
	struct upstream upstream;
	struct table table;
	struct error err;
};

static const struct device_ops counting = { .register_range = count_register };

/* Nothing in it is touched: a made-up address does. */
#define ARENA_AT ((uint8_t *)(1ull << 40))

static void
stage_open(struct stage *stage, uint32_t n_slots)
{
	memset(&seen, 0, sizeof(seen));
	memset(stage, 0, sizeof(*stage));
	stage->device.ops = &counting;
	stage->arena.base = ARENA_AT;
	stage->arena.slices = stage->slices;
	for (uint32_t i = 0; i < 1 + LAYERS; i++) {
		stage->slices[i].offset = (uint64_t)i * 256 * MIB;
		stage->slices[i].bytes = SLICE_BYTES;
	}
	stage->model.n_layers = LAYERS;
	stage->model.n_experts = EXPERTS;
	stage->model.layers = stage->layers;
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		for (int role = 0; role < N_ROLES; role++)
			stage->layers[layer].role[role] =
			    (struct experts){ .offset = stage->slices[1 + layer].offset +
							(uint64_t)role * 50 * MIB,
					      .stride = 10 * MIB,
					      .bytes = 9 * MIB };
	stage->table = (struct table){ .arena = &stage->arena,
				       .model = &stage->model,
				       .device = &stage->device,
				       .upstream = &stage->upstream };
	assert_int_equal(table_open(&stage->table, n_slots, &stage->err), 0);
	for (uint32_t i = 0; i < 1 + LAYERS; i++)
		stage->table.filled[i] = stage->table.usable[i] = stage->table.registrable[i] =
		    true;
	table_place(&stage->table);
}

static void
hold(struct stage *stage, uint32_t layer, uint32_t experts)
{
	for (uint32_t i = 0; i < experts; i++)
		assert_true(
		    slot_plan_hold(&stage->table.slots,
				   &(struct slot_fill){ layer, i, stage->table.slots.filled }));
}

static void
layers_are_registered_in_order_in_small_pieces(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, 0);
	assert_int_equal(table_source(&stage.table, 0), SOURCE_STAGING);
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(table_source(&stage.table, 0), SOURCE_STAGING);
		assert_int_equal(table_register(&stage.table), 1);
		assert_int_equal(seen.calls, i);
	}
	assert_int_equal(seen.bytes, SLICE_BYTES);
	assert_true(seen.largest <= 64 * MIB);
	assert_ptr_equal(seen.next, ARENA_AT + 256 * MIB + SLICE_BYTES);
	assert_int_equal(table_source(&stage.table, 0), SOURCE_ARENA);
	assert_int_equal(table_source(&stage.table, 1), SOURCE_STAGING);
	assert_false(table_settled(&stage.table));
	while (table_register(&stage.table) == 1)
		;
	assert_ptr_equal(seen.next, ARENA_AT + 512 * MIB + SLICE_BYTES);
	assert_int_equal(stage.table.register_bytes, 2 * SLICE_BYTES);
	assert_int_equal(seen.calls, 6);
	assert_true(table_settled(&stage.table));
	table_close(&stage.table);
}

static void
a_layer_in_place_is_read_in_the_arena_whatever_was_staged(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, 0);
	stage.table.places[1].role[ROLE_UP] = &stage; /* as staging leaves it */
	while (table_register(&stage.table) == 1)
		;
	assert_ptr_equal(stage.table.places[1].role[ROLE_UP], ARENA_AT + (256 + 50 + 10) * MIB);
	table_close(&stage.table);
}

static void
a_layer_wholly_in_slots_is_not_registered(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, LAYERS * EXPERTS - 1);
	hold(&stage, 0, EXPERTS);
	hold(&stage, 1, EXPERTS - 1);
	assert_int_equal(table_source(&stage.table, 0), SOURCE_SLOTS);
	while (table_register(&stage.table) == 1)
		;
	assert_int_equal(seen.bytes, SLICE_BYTES);
	assert_ptr_equal(seen.next, ARENA_AT + 512 * MIB + SLICE_BYTES);
	assert_true(table_settled(&stage.table));
	table_close(&stage.table);
}

static void
where_every_expert_gets_a_slot_nothing_is_registered(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, LAYERS * EXPERTS);
	assert_int_equal(table_register(&stage.table), 0);
	assert_int_equal(seen.calls, 0);
	/* but if they are refused, the arena serves */
	stage.table.fill_refused = true;
	assert_int_equal(table_register(&stage.table), 1);
	table_close(&stage.table);
}

static void
what_the_pinner_has_not_registered_is_not_registered_here(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, 0);
	stage.table.registrable[1] = false;
	while (table_register(&stage.table) == 1)
		;
	assert_int_equal(seen.bytes, SLICE_BYTES);
	assert_int_equal(table_source(&stage.table, 0), SOURCE_STAGING);
	assert_int_equal(table_source(&stage.table, 1), SOURCE_ARENA);
	table_close(&stage.table);
}

static void
a_refused_registration_leaves_the_rest_to_the_staging_ring(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, 0);
	assert_int_equal(table_register(&stage.table), 1);
	seen.refuse = true;
	assert_int_equal(table_register(&stage.table), 0);
	assert_non_null(strstr(stage.table.refused.text, "no more memory may be locked"));
	assert_int_equal(table_source(&stage.table, 0), SOURCE_STAGING);
	seen.refuse = false;
	assert_int_equal(table_register(&stage.table), 0); /* asked no more */
	assert_int_equal(seen.calls, 1);
	assert_false(table_settled(&stage.table));
	table_close(&stage.table);
}

static void
a_device_that_computes_from_the_host_registers_nothing(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, 0);
	stage.device.info.computes_from_host = true;
	assert_int_equal(table_register(&stage.table), 0);
	assert_int_equal(seen.calls, 0);
	assert_true(table_settled(&stage.table));
	table_close(&stage.table);
}

static void
places_are_slots_where_they_hold_the_expert_else_the_arena(void **state)
{
	struct stage stage;
	uint8_t *slots_at = (uint8_t *)(1ull << 41);

	(void)state;
	stage_open(&stage, 2);
	stage.table.slots_at = slots_at;
	hold(&stage, 1, 2);
	table_place(&stage.table);
	assert_ptr_equal(stage.table.places[EXPERTS + 1].role[ROLE_UP],
			 slots_at + stage.table.slot_bytes +
			     model_slot_offset(&stage.layers[1], ROLE_UP));
	assert_ptr_equal(stage.table.places[EXPERTS + 2].role[ROLE_DOWN],
			 ARENA_AT + 512 * MIB + 100 * MIB + 20 * MIB);
	assert_ptr_equal(stage.table.places[0].role[ROLE_GATE], ARENA_AT + 256 * MIB);
	table_close(&stage.table);
}

/* Two slots hold what is cold, the rest is hot. */
static void
stage_open_restless(struct stage *stage, float heat[LAYERS * EXPERTS])
{
	stage_open(stage, 2);
	stage->table.slots_at = ARENA_AT;
	hold(stage, 0, 1);
	hold(stage, 1, 1);
	for (uint32_t i = 0; i < LAYERS * EXPERTS; i++)
		heat[i] = i % EXPERTS == 0 ? 0 : 10;
	stage->table.policy = (struct slot_policy){
		.layers = LAYERS, .experts = EXPERTS, .half_life = 1, .margin = 1, .heat = heat
	};
	table_place(&stage->table);
}

static void
who_loses_its_slot_is_in_a_layer_that_is_read_in_place(void **state)
{
	float heat[LAYERS * EXPERTS];
	struct stage stage;

	(void)state;
	stage_open_restless(&stage, heat);
	assert_false(table_choose(&stage.table, SLOT_POLICY_MAX));
	for (uint32_t i = 0; i < 3; i++) /* layer 0 */
		assert_int_equal(table_register(&stage.table), 1);
	assert_true(table_choose(&stage.table, SLOT_POLICY_MAX));
	assert_int_equal(stage.table.n_moves, 1);
	assert_int_equal(stage.table.moves[0].layer, 0);
	assert_int_equal(stage.table.moves[0].expert, 1);
	assert_int_equal(stage.table.moves[0].slot, 0);
	assert_ptr_equal(stage.table.places[0].role[ROLE_GATE], ARENA_AT + 256 * MIB);
	table_close(&stage.table);
}

static void
while_moves_are_under_way_nothing_else_is_chosen(void **state)
{
	float heat[LAYERS * EXPERTS];
	struct stage stage;

	(void)state;
	stage_open_restless(&stage, heat);
	while (table_register(&stage.table) == 1)
		;
	assert_false(table_choose(&stage.table, 0));
	assert_true(table_choose(&stage.table, 1));
	assert_int_equal(stage.table.n_moves, 1);
	assert_false(table_choose(&stage.table, SLOT_POLICY_MAX));
	table_close(&stage.table);
}

static void
without_heat_what_is_in_a_slot_stays_there(void **state)
{
	float heat[LAYERS * EXPERTS];
	struct stage stage;

	(void)state;
	stage_open_restless(&stage, heat);
	while (table_register(&stage.table) == 1)
		;
	stage.table.policy.heat = NULL;
	assert_false(table_choose(&stage.table, SLOT_POLICY_MAX));
	table_close(&stage.table);
}

static void
one_request_moves_no_more_than_a_piece(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, 6);
	assert_int_equal(stage.table.slot_bytes, 27 * MIB);
	assert_int_equal(stage.table.move_max, 2);
	table_close(&stage.table);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(layers_are_registered_in_order_in_small_pieces),
		cmocka_unit_test(a_layer_in_place_is_read_in_the_arena_whatever_was_staged),
		cmocka_unit_test(a_layer_wholly_in_slots_is_not_registered),
		cmocka_unit_test(where_every_expert_gets_a_slot_nothing_is_registered),
		cmocka_unit_test(what_the_pinner_has_not_registered_is_not_registered_here),
		cmocka_unit_test(a_refused_registration_leaves_the_rest_to_the_staging_ring),
		cmocka_unit_test(a_device_that_computes_from_the_host_registers_nothing),
		cmocka_unit_test(places_are_slots_where_they_hold_the_expert_else_the_arena),
		cmocka_unit_test(who_loses_its_slot_is_in_a_layer_that_is_read_in_place),
		cmocka_unit_test(while_moves_are_under_way_nothing_else_is_chosen),
		cmocka_unit_test(without_heat_what_is_in_a_slot_stays_there),
		cmocka_unit_test(one_request_moves_no_more_than_a_piece),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
