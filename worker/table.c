#include "worker/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/clock.h"
#include "common/log.h"
#include "proto/limits.h"

/* A forward, a cancel, a launch wait no longer than one of these takes (about 2 ms). */
#define PIECE_BYTES (64ull << 20)

static int
table_alloc(struct table *table)
{
	const struct model *model = table->model;
	size_t all = (size_t)model->n_layers * model->n_experts;

	table->places = calloc(all, sizeof(*table->places));
	table->home = calloc(all, sizeof(*table->home));
	table->homeless = calloc(model->n_layers, sizeof(*table->homeless));
	table->filled = calloc(1 + model->n_layers, sizeof(*table->filled));
	table->usable = calloc(1 + model->n_layers, sizeof(*table->usable));
	table->registrable = calloc(1 + model->n_layers, sizeof(*table->registrable));
	table->fetched = calloc(all, sizeof(*table->fetched));
	table->lent = calloc(model->n_experts, sizeof(*table->lent));
	table->absent = calloc(model->n_experts, sizeof(*table->absent));
	table->registered = calloc(model->n_layers, sizeof(*table->registered));
	table->moves = calloc(table->move_max, sizeof(*table->moves));
	table->movable = calloc(model->n_layers, sizeof(*table->movable));
	return table->places != NULL && table->home != NULL && table->homeless != NULL &&
		       table->filled != NULL && table->usable != NULL &&
		       table->registrable != NULL && table->fetched != NULL &&
		       table->lent != NULL && table->absent != NULL && table->registered != NULL &&
		       table->moves != NULL && table->movable != NULL
		   ? 0
		   : -ENOMEM;
}

/* An expert outside the resident budget has none, and gets no slot: the pinner moves from homes. */
static void
find_home(struct table *table, uint32_t layer, uint32_t expert)
{
	uint32_t which = table_which(table, layer, expert);

	for (enum role role = 0; role < N_ROLES; role++) {
		uint64_t at = arena_expert_offset(table->arena, table->model, layer, expert, role);

		if (at != 0)
			table->home[which].role[role] = table->arena->base + at;
	}
	if (table->home[which].role[ROLE_GATE] == NULL) {
		table->homeless[layer]++;
		table->slots.barred[which] = true;
	}
}

static void
find_homes(struct table *table)
{
	const struct model *model = table->model;

	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		for (uint32_t expert = 0; expert < model->n_experts; expert++)
			find_home(table, layer, expert);
}

int
table_open(struct table *table, uint32_t n_slots, struct error *err)
{
	const struct model *model = table->model;
	uint64_t move_max;

	table->slot_bytes = model_slot_bytes(model);
	move_max = PIECE_BYTES / table->slot_bytes;
	move_max = move_max > MAX_MOVES ? MAX_MOVES : move_max;
	table->move_max = move_max > 0 ? (uint32_t)move_max : 1;
	if (slot_plan_open(&table->slots, n_slots, model->n_layers, model->n_experts) < 0 ||
	    table_alloc(table) < 0) {
		table_close(table);
		return error_set(err, -ENOMEM, "no memory for the expert table");
	}
	find_homes(table);
	table->filling = n_slots != 0;
	return 0;
}

/* Registrations end with the process: undoing them here would only make leaving slow. */
void
table_close(struct table *table)
{
	slot_plan_close(&table->slots);
	free(table->places);
	free(table->home);
	free(table->homeless);
	free(table->filled);
	free(table->usable);
	free(table->registrable);
	free(table->fetched);
	free(table->lent);
	free(table->absent);
	free(table->registered);
	free(table->moves);
	free(table->movable);
	*table = (struct table){ 0 };
}

void
table_place_expert(struct table *table, uint32_t layer, uint32_t expert)
{
	const struct model_layer *shape = &table->model->layers[layer];
	uint32_t which = table_which(table, layer, expert);
	uint32_t slot = table->slots.slot_of[which];

	if (slot == SLOT_NONE) {
		table->places[which] = table->home[which];
		return;
	}
	for (enum role role = 0; role < N_ROLES; role++)
		table->places[which].role[role] =
		    table->slots_at + slot * table->slot_bytes + model_slot_offset(shape, role);
}

void
table_place_layer(struct table *table, uint32_t layer)
{
	for (uint32_t expert = 0; expert < table->model->n_experts; expert++)
		table_place_expert(table, layer, expert);
}

void
table_place(struct table *table)
{
	for (uint32_t layer = 0; layer < table->model->n_layers; layer++)
		table_place_layer(table, layer);
}

uint32_t
table_look(struct table *table)
{
	const Hearth__State *state = table->upstream->state;
	uint32_t n = 0;

	for (uint32_t i = 0; i < 1 + table->model->n_layers; i++) {
		/* Once true, it stays so as long as this pinner is there. */
		if (state != NULL) {
			table->filled[i] = table->filled[i] || upstream_slice_filled(state, i);
			table->usable[i] = table->usable[i] || upstream_slice_usable(state, i);
			table->registrable[i] =
			    table->registrable[i] || upstream_slice_registered(state, i);
		}
		n += table->usable[i];
	}
	return n;
}

bool
table_in_place(const struct table *table, uint32_t layer)
{
	return device_describe(table->device)->computes_from_host ||
	       table->registered[layer] == table->arena->slices[1 + layer].bytes;
}

enum table_source
table_source(const struct table *table, uint32_t layer)
{
	if (table->slots.in_layer[layer] == table->model->n_experts)
		return SOURCE_SLOTS;
	if (!table->filled[1 + layer] || table->homeless[layer] != 0)
		return SOURCE_FETCH;
	return table_in_place(table, layer) ? SOURCE_ARENA : SOURCE_STAGING;
}

bool
table_settled(const struct table *table)
{
	for (uint32_t layer = 0; layer < table->model->n_layers; layer++)
		if (table_source(table, layer) > SOURCE_ARENA)
			return false;
	return true;
}

/* The layer that is registered next; n_layers: none.  Where every expert gets a slot, none is. */
static uint32_t
register_next(const struct table *table)
{
	const struct model *model = table->model;
	uint32_t layer = 0;

	if (device_describe(table->device)->computes_from_host || table->refused.text[0] != '\0' ||
	    (table->slots.n == model->n_layers * model->n_experts && !table->fill_refused))
		return model->n_layers;
	while (layer < model->n_layers &&
	       (!table->registrable[1 + layer] || table_in_place(table, layer) ||
		table->slots.in_layer[layer] == model->n_experts))
		layer++;
	return layer;
}

int
table_register(struct table *table)
{
	uint32_t layer = register_next(table);
	const struct arena_slice *slice;
	uint64_t begin = clock_ns(), n;
	int rc;

	if (layer == table->model->n_layers)
		return 0;
	slice = &table->arena->slices[1 + layer];
	n = slice->bytes - table->registered[layer];
	n = n < PIECE_BYTES ? n : PIECE_BYTES;
	rc = device_register(table->device,
			     table->arena->base + slice->offset + table->registered[layer], n, true,
			     &table->refused);
	table->register_ns += clock_ns() - begin;
	if (rc < 0) {
		log_warn("%s: %s; its experts go through the staging ring", slice->name,
			 table->refused.text);
		return 0;
	}
	table->registered[layer] += n;
	table->register_bytes += n;
	if (table_in_place(table, layer))
		table_place_layer(table, layer);
	return 1;
}
