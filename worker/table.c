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
table_no_memory(struct error *err)
{
	return error_set(err, -ENOMEM, "no memory for the expert table");
}

int
table_open(struct table *table, uint32_t n_slots, struct error *err)
{
	const struct model *model = table->model;
	uint64_t move_max;
	int rc;

	table->slot_bytes = model_slot_bytes(model);
	move_max = PIECE_BYTES / table->slot_bytes;
	move_max = move_max > MAX_MOVES ? MAX_MOVES : move_max;
	table->move_max = move_max > 0 ? (uint32_t)move_max : 1;
	rc = slot_plan_open(&table->slots, n_slots, model->n_layers, model->n_experts);
	if (rc < 0)
		return table_no_memory(err);
	table->places =
	    calloc((uint64_t)model->n_layers * model->n_experts, sizeof(*table->places));
	table->usable = calloc(1 + model->n_layers, sizeof(*table->usable));
	table->registered = calloc(model->n_layers, sizeof(*table->registered));
	table->moves = calloc(table->move_max, sizeof(*table->moves));
	if (table->places == NULL || table->usable == NULL || table->registered == NULL ||
	    table->moves == NULL) {
		table_close(table);
		return table_no_memory(err);
	}
	return 0;
}

static uint8_t *
slice_at(const struct table *table, uint32_t layer)
{
	return table->arena->base + table->arena->slices[1 + layer].offset;
}

/* The n-th piece of a layer's slice; 0 bytes behind the last. */
static uint64_t
piece_bytes(const struct table *table, uint32_t layer, uint64_t from)
{
	uint64_t left = table->arena->slices[1 + layer].bytes - from;

	return left < PIECE_BYTES ? left : PIECE_BYTES;
}

/* Registrations end with the process: undoing them here would only make leaving slow. */
void
table_close(struct table *table)
{
	slot_plan_close(&table->slots);
	free(table->places);
	free(table->usable);
	free(table->registered);
	free(table->moves);
	table->places = NULL;
	table->usable = NULL;
	table->registered = NULL;
	table->moves = NULL;
}

static void
place_set(struct table *table, uint32_t layer, uint32_t expert)
{
	const struct model_layer *shape = &table->model->layers[layer];
	uint32_t which = layer * table->model->n_experts + expert;
	uint32_t slot = table->slots.slot_of[which];
	struct expert_place *place = &table->places[which];

	for (enum role role = 0; role < N_ROLES; role++) {
		const struct experts *experts = &shape->role[role];

		if (slot != SLOT_NONE)
			place->role[role] = table->slots_at + slot * table->slot_bytes +
					    model_slot_offset(shape, role);
		else
			place->role[role] =
			    table->arena->base + experts->offset + expert * experts->stride;
	}
}

void
table_place(struct table *table)
{
	for (uint32_t layer = 0; layer < table->model->n_layers; layer++)
		for (uint32_t expert = 0; expert < table->model->n_experts; expert++)
			place_set(table, layer, expert);
}

uint32_t
table_look(struct table *table)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < 1 + table->model->n_layers; i++) {
		/* Once usable, a slice stays so as long as this pinner is there. */
		if (!table->usable[i] && table->upstream->state != NULL)
			table->usable[i] = upstream_slice_usable(table->upstream->state, i);
		n += table->usable[i];
	}
	return n;
}

int
table_wait_slice(struct table *table, uint32_t slice, struct error *err)
{
	int rc;

	while (!table->usable[slice]) {
		if (table->interrupted != NULL && table->interrupted(table->interrupted_arg))
			return error_set(err, -ECANCELED, "interrupted");
		rc = upstream_wait(table->upstream, err);
		if (rc < 0)
			return rc;
		table_look(table);
	}
	return 0;
}

/* Piece by piece: a call stalls everything else on the device for as long as it lasts. */
static int
layer_register(struct table *table, uint32_t layer, struct error *err)
{
	uint64_t begin = clock_ns(), n;
	int rc = 0;

	while ((n = piece_bytes(table, layer, table->registered[layer])) != 0) {
		rc = device_register(
		    table->device, slice_at(table, layer) + table->registered[layer], n, true, err);
		if (rc < 0)
			break;
		table->registered[layer] += n;
		table->register_bytes += n;
	}
	table->register_ns += clock_ns() - begin;
	return rc;
}

int
table_need(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	struct table *table = arg;
	struct error err;
	int rc = table_wait_slice(table, 1 + layer, &err);

	(void)experts;
	(void)n;
	if (rc < 0)
		return rc;
	if (device_describe(table->device)->computes_from_host ||
	    table->slots.in_layer[layer] == table->model->n_experts)
		return 0;
	rc = layer_register(table, layer, &err);
	if (rc < 0) {
		table->refused = err;
		return rc;
	}
	return 0;
}

int
table_fill(struct table *table, struct error *err)
{
	uint32_t n;
	int rc;

	if (table->slots.filled == table->slots.n || table->fill_refused)
		return 0;
	n = slot_plan_next(&table->slots, table->usable + 1, table->moves, table->move_max);
	if (n == 0)
		return 0;
	rc = lender_move(table->lender, table->slot_bytes, table->moves, n, err);
	if (rc == -ECANCELED || rc == -ETIMEDOUT)
		return rc;
	if (rc < 0) {
		log_error("%s; experts without a slot stay in the arena", err->text);
		table->fill_refused = true;
		return 0;
	}
	for (uint32_t i = 0; i < n; i++) {
		slot_plan_hold(&table->slots, &table->moves[i]);
		place_set(table, table->moves[i].layer, table->moves[i].expert);
	}
	return 1;
}
