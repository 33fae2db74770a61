/* The rest of table.h: slots filled and refilled, between forwards. */
#include <errno.h>

#include "common/log.h"
#include "worker/table.h"

/* The slot holds the expert now: it is read there. */
static void
move_done(struct table *table, const struct slot_fill *move)
{
	const struct experts *role = table->model->layers[move->layer].role;

	slot_plan_hold(&table->slots, move);
	table_place_expert(table, move->layer, move->expert);
	table->moved++;
	for (int i = 0; i < N_ROLES; i++)
		table->bytes_moved += role[i].bytes;
}

/* Whatever was under way: its slots stay free, and its experts are read where they were. */
static int
give_up(struct table *table, int rc, const struct error *err)
{
	table->n_moves = 0;
	if (rc == -ECANCELED)
		return rc;
	log_error("%s; experts without a slot stay in the arena", err->text);
	table->fill_refused = true;
	table->filling = false;
	return 0;
}

int
table_moved(struct table *table, struct error *err)
{
	int rc = table->n_moves != 0 ? moving_look(table->moving, err) : 0;

	if (rc < 0)
		return give_up(table, rc, err);
	if (rc == 0)
		return 0;
	for (uint32_t i = 0; i < table->n_moves; i++)
		move_done(table, &table->moves[i]);
	table->n_moves = 0;
	return 1;
}

/* Free slots that are wanted, of layers that are there; `filling` while there may be more. */
static uint32_t
choose_fills(struct table *table)
{
	uint32_t n = 0;

	table->filling = table->slots.filled < table->slots.open;
	if (!table->filling)
		return 0;
	n = slot_plan_next(&table->slots, table->usable + 1, table->moves, table->move_max);
	for (uint32_t layer = 0; n == 0 && layer < table->model->n_layers; layer++)
		if (!table->usable[1 + layer])
			return 0;
	table->filling = n != 0;
	return n;
}

/* A victim is read at home from now on: where the device can. */
static uint32_t
choose_swaps(struct table *table, uint32_t most)
{
	const struct model *model = table->model;
	uint32_t n;

	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		table->movable[layer] = table->usable[1 + layer] && table->filled[1 + layer] &&
					table_in_place(table, layer);
	n = slot_policy_next(&table->policy, &table->slots, table->movable, table->moves,
			     most < table->move_max ? most : table->move_max);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t victim = table->slots.expert_of[table->moves[i].slot];

		slot_plan_free(&table->slots, table->moves[i].slot);
		table_place_expert(table, victim / model->n_experts, victim % model->n_experts);
	}
	return n;
}

bool
table_choose(struct table *table, uint32_t most)
{
	if (table->slots.n == 0 || table->n_moves != 0 || table->fill_refused)
		return false;
	table->n_moves = choose_fills(table);
	if (table->n_moves == 0 && table->policy.heat != NULL)
		table->n_moves = choose_swaps(table, most);
	return table->n_moves != 0;
}

int
table_move(struct table *table, struct error *err)
{
	int rc = moving_begin(table->moving, table->slot_bytes, table->moves, table->n_moves, err);

	return rc < 0 ? give_up(table, rc, err) : 0;
}
