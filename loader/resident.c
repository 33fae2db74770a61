#include "loader/resident.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "loader/io.h"

#define GIB (1ull << 30)

struct candidate {
	uint64_t count;
	uint32_t layer, expert;
};

static uint64_t
plain_bytes(const struct model_layer *layer)
{
	uint64_t bytes = 0;

	for (enum role role = 0; role < N_ROLES; role++)
		bytes += layer->role[role].bytes;
	return bytes;
}

/* A matrix at any offset in a block, with the blocks it touches to itself. */
static uint64_t
room_of(uint64_t bytes)
{
	return round_up(bytes, IO_BLOCK) + IO_BLOCK;
}

static uint64_t
padded_bytes(const struct model_layer *layer)
{
	uint64_t bytes = 0;

	for (enum role role = 0; role < N_ROLES; role++)
		bytes += room_of(layer->role[role].bytes);
	return bytes;
}

uint64_t
resident_all_bytes(const struct model *model)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < model->n_layers; i++)
		bytes += model->n_experts * plain_bytes(&model->layers[i]);
	return bytes;
}

static int
compare_candidates(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;

	if (x->count != y->count)
		return x->count > y->count ? -1 : 1;
	if (x->expert != y->expert)
		return x->expert < y->expert ? -1 : 1;
	return (x->layer > y->layer) - (x->layer < y->layer);
}

static uint64_t
window_slots(const struct resident *resident, uint32_t n_in)
{
	uint64_t out = (uint64_t)resident->n_layers * resident->n_experts - n_in;

	return out < resident->n_experts ? out : resident->n_experts;
}

static void
lay_out_slot(struct resident *resident, const struct model *model)
{
	for (uint32_t i = 0; i < model->n_layers; i++)
		for (enum role role = 0; role < N_ROLES; role++)
			if (model->layers[i].role[role].bytes > resident->expert_bytes[role])
				resident->expert_bytes[role] = model->layers[i].role[role].bytes;
	for (enum role role = 0; role < N_ROLES; role++) {
		resident->role_at[role] = resident->slot_bytes;
		resident->slot_bytes += room_of(resident->expert_bytes[role]);
	}
}

void
resident_take(struct resident *resident, const struct model *model, const bool *in)
{
	uint64_t all = (uint64_t)resident->n_layers * resident->n_experts;

	if (in != resident->in)
		memcpy(resident->in, in, all * sizeof(*in));
	resident->n_in = 0;
	resident->bytes_in = 0;
	for (uint64_t i = 0; i < all; i++) {
		if (!in[i])
			continue;
		resident->n_in++;
		resident->bytes_in += plain_bytes(&model->layers[i / resident->n_experts]);
	}
	resident->bytes_out = resident_all_bytes(model) - resident->bytes_in;
	resident->window_slots = window_slots(resident, resident->n_in);
}

/* As many as fit beside a window that gets no smaller before all but a layer's worth are in. */
static void
choose(struct resident *resident, const struct model *model, const struct candidate *list)
{
	uint64_t all = (uint64_t)resident->n_layers * resident->n_experts, taken = 0;

	for (uint64_t i = 0; i < all; i++) {
		uint64_t bytes = padded_bytes(&model->layers[list[i].layer]);
		uint64_t slots = window_slots(resident, resident->n_in + 1);

		if (taken + bytes + slots * resident->slot_bytes > resident->budget)
			continue;
		taken += bytes;
		resident->n_in++;
		resident->in[(uint64_t)list[i].layer * resident->n_experts + list[i].expert] = true;
	}
	resident_take(resident, model, resident->in);
}

static int
check_window(const struct resident *resident, struct error *err)
{
	uint64_t least = resident->slot_bytes * resident->window_slots;

	if (resident->budget >= least)
		return 0;
	return error_set(err, -EOVERFLOW,
			 "--resident-gib %.4g: %" PRIu64 " KiB, and the window for the %" PRIu64
			 " experts of a layer that are read as they are needed alone takes %" PRIu64
			 " KiB (the trunk comes on top): want %.4f or more",
			 (double)resident->budget / (double)GIB, resident->budget >> 10,
			 resident->window_slots, least >> 10, (double)least / (double)GIB + 0.0001);
}

int
resident_open(struct resident *ret, const struct model *model, uint64_t budget,
	      const uint64_t *counts, struct error *err)
{
	struct resident resident = { .n_layers = model->n_layers,
				     .n_experts = model->n_experts,
				     .budget = budget };
	uint64_t all = (uint64_t)model->n_layers * model->n_experts;
	struct candidate *list = calloc(all + 1, sizeof(*list));
	int rc;

	resident.in = calloc(all + 1, sizeof(*resident.in));
	if (!list || !resident.in) {
		free(list);
		resident_close(&resident);
		return error_sys(err, -ENOMEM, "%" PRIu64 " experts", all);
	}
	for (uint64_t i = 0; i < all; i++)
		list[i] =
		    (struct candidate){ counts ? counts[i] : 0, (uint32_t)(i / model->n_experts),
					(uint32_t)(i % model->n_experts) };
	qsort(list, all, sizeof(*list), compare_candidates);
	lay_out_slot(&resident, model);
	resident.window_slots = window_slots(&resident, 0);
	rc = check_window(&resident, err);
	if (rc == 0)
		choose(&resident, model, list);
	free(list);
	if (rc < 0)
		resident_close(&resident);
	else
		*ret = resident;
	return rc;
}

void
resident_close(struct resident *resident)
{
	free(resident->in);
	*resident = (struct resident){ 0 };
}
