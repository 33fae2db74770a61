#include "pinner/slot_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"

int
slot_table_open(struct slot_table *ret, uint64_t bytes, uint64_t slot_bytes)
{
	struct slot_table table = { 0 };

	if (bytes / slot_bytes > (uint64_t)MAX_LAYERS * MAX_EXPERTS)
		return -EOVERFLOW;
	table.n = (uint32_t)(bytes / slot_bytes);
	table.content = calloc(table.n + 1, sizeof(*table.content));
	table.named = calloc(table.n + 1, sizeof(*table.named));
	if (!table.content || !table.named) {
		slot_table_close(&table);
		return -ENOMEM;
	}
	*ret = table;
	return 0;
}

void
slot_table_close(struct slot_table *table)
{
	free(table->content);
	free(table->named);
	*table = (struct slot_table){ 0 };
}

int
slot_table_check(struct slot_table *table, const struct model *model, const bool *slice_usable,
		 const struct slot_move *moves, uint32_t n, struct error *err)
{
	memset(table->named, 0, table->n);
	for (uint32_t i = 0; i < n; i++) {
		const struct slot_move *move = &moves[i];

		if (!move->empty &&
		    (move->layer >= model->n_layers || move->expert >= model->n_experts))
			return error_set(
			    err, -EINVAL, "expert %u of layer %u: the model has %u of %u layers",
			    move->expert, move->layer, model->n_experts, model->n_layers);
		if (move->slot >= table->n)
			return error_set(err, -EINVAL, "slot %u: there are %u", move->slot,
					 table->n);
		if (table->named[move->slot])
			return error_set(err, -EINVAL, "slot %u: named twice", move->slot);
		if (!move->empty && !slice_usable[move->layer + 1])
			return error_set(err, -EAGAIN, "layer %u: not loaded yet", move->layer);
		table->named[move->slot] = true;
	}
	return 0;
}

void
slot_table_begin(struct slot_table *table, const struct slot_move *moves, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		table->content[moves[i].slot].filled = false;
		table->content[moves[i].slot].coming++;
	}
}

static void
slot_table_fill(struct slot_table *table, const struct slot_move *move)
{
	for (uint32_t i = 0; i < table->n; i++) {
		struct slot_content *other = &table->content[i];

		if (other->layer == move->layer && other->expert == move->expert)
			other->filled = false;
	}
	table->content[move->slot] =
	    (struct slot_content){ .filled = true, .layer = move->layer, .expert = move->expert };
}

void
slot_table_end(struct slot_table *table, const struct slot_move *moves, uint32_t n, bool done)
{
	for (uint32_t i = 0; i < n; i++)
		if (--table->content[moves[i].slot].coming == 0 && done && !moves[i].empty)
			slot_table_fill(table, &moves[i]);
}
