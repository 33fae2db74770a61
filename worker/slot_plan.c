#include "worker/slot_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t
less(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static uint64_t
others_of(const struct slot_room *room)
{
	return less(room->lent, room->kv_now + room->slots_now);
}

uint64_t
slot_plan_need(const struct slot_room *room)
{
	return others_of(room) + room->kv + room->own;
}

/* For slots, those that are there included. */
static uint64_t
left_for_slots(const struct slot_room *room, uint64_t reserve)
{
	uint64_t left = UINT64_MAX, usable;

	if (room->cap != 0)
		left = less(room->cap, slot_plan_need(room));
	if (room->free != 0) {
		usable = less(room->free + room->kv_now + room->slots_now,
			      reserve + room->own + room->kv);
		left = usable < left ? usable : left;
	}
	return left;
}

uint32_t
slot_plan_fit(const struct slot_room *room, uint64_t slot_bytes, uint32_t n_experts)
{
	uint64_t left = left_for_slots(room, SLOTS_RESERVE_BYTES);
	uint64_t kept = left_for_slots(room, 0);

	kept = kept < room->slots_now ? kept : room->slots_now;
	if (kept != 0 && kept == room->slots_now && kept % slot_bytes == 0 &&
	    kept / slot_bytes <= n_experts)
		return (uint32_t)(kept / slot_bytes);
	left = kept > left ? kept : left;
	return left / slot_bytes < n_experts ? (uint32_t)(left / slot_bytes) : n_experts;
}

int
slot_plan_open(struct slot_plan *ret, uint32_t n, uint32_t layers, uint32_t experts)
{
	uint64_t all = (uint64_t)layers * experts;
	struct slot_plan plan = { .n = n, .open = n, .layers = layers, .experts = experts };

	plan.expert_of = malloc((n + 1ull) * sizeof(*plan.expert_of));
	plan.slot_of = malloc(all * sizeof(*plan.slot_of));
	plan.in_layer = calloc(layers, sizeof(*plan.in_layer));
	plan.barred = calloc(all, sizeof(*plan.barred));
	plan.order = malloc(all * sizeof(*plan.order));
	if (plan.expert_of == NULL || plan.slot_of == NULL || plan.in_layer == NULL ||
	    plan.barred == NULL || plan.order == NULL) {
		slot_plan_close(&plan);
		return -ENOMEM;
	}
	memset(plan.expert_of, 0xff, (n + 1ull) * sizeof(*plan.expert_of));
	memset(plan.slot_of, 0xff, all * sizeof(*plan.slot_of));
	for (uint32_t i = 0; i < all; i++)
		plan.order[i] = i % layers * experts + i / layers;
	*ret = plan;
	return 0;
}

void
slot_plan_close(struct slot_plan *plan)
{
	free(plan->expert_of);
	free(plan->slot_of);
	free(plan->in_layer);
	free(plan->barred);
	free(plan->order);
	*plan = (struct slot_plan){ 0 };
}

struct ranking {
	const struct slot_plan *plan;
	const float *heat;
};

static int
compare_heat(const void *a, const void *b, void *arg)
{
	const struct ranking *ranking = arg;
	uint32_t experts = ranking->plan->experts;
	uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

	if (ranking->heat[i] != ranking->heat[j])
		return ranking->heat[i] > ranking->heat[j] ? -1 : 1;
	if (i % experts != j % experts)
		return i % experts < j % experts ? -1 : 1;
	return i < j ? -1 : i > j;
}

void
slot_plan_rank(struct slot_plan *plan, const float *heat)
{
	struct ranking ranking = { plan, heat };

	qsort_r(plan->order, (size_t)plan->layers * plan->experts, sizeof(*plan->order),
		compare_heat, &ranking);
}

bool
slot_plan_hold(struct slot_plan *plan, const struct slot_fill *move)
{
	uint32_t which;

	if (move->slot >= plan->n || move->layer >= plan->layers || move->expert >= plan->experts)
		return false;
	which = move->layer * plan->experts + move->expert;
	if (plan->expert_of[move->slot] != SLOT_NONE || plan->slot_of[which] != SLOT_NONE)
		return false;
	plan->expert_of[move->slot] = which;
	plan->slot_of[which] = move->slot;
	plan->in_layer[move->layer]++;
	plan->filled++;
	return true;
}

void
slot_plan_free(struct slot_plan *plan, uint32_t slot)
{
	uint32_t which = plan->expert_of[slot];

	if (which == SLOT_NONE)
		return;
	plan->expert_of[slot] = SLOT_NONE;
	plan->slot_of[which] = SLOT_NONE;
	plan->in_layer[which / plan->experts]--;
	plan->filled--;
}

uint32_t
slot_plan_next(const struct slot_plan *plan, const bool *allowed, struct slot_fill *ret,
	       uint32_t max)
{
	uint32_t slot = 0, n = 0, wanted = 0;

	for (uint32_t i = 0; i < plan->layers * plan->experts && wanted < plan->n && n < max; i++) {
		uint32_t which = plan->order[i];
		uint32_t layer = which / plan->experts, expert = which % plan->experts;

		if (plan->barred[which])
			continue;
		wanted++;
		if (!allowed[layer] || plan->slot_of[which] != SLOT_NONE)
			continue;
		while (slot < plan->open && plan->expert_of[slot] != SLOT_NONE)
			slot++;
		if (slot == plan->open)
			break;
		ret[n++] = (struct slot_fill){ layer, expert, slot++ };
	}
	return n;
}
