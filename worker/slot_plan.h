/* Which experts lie in slots of device memory: how many slots there are, what each holds, what goes
 * into the free ones.  A plan in plain C: it moves nothing.  Wanted are the first n experts that
 * are not barred, in an order: at first that of their index, each over all layers, so that every
 * layer gets an equal share. */
#ifndef HEARTH_WORKER_SLOT_PLAN_H
#define HEARTH_WORKER_SLOT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

/* Device memory left alone: for the driver, contexts, and whoever else uses the device. */
#define SLOTS_RESERVE_BYTES (512ull << 20)

/* What decides the number of slots; bytes. */
struct slot_room {
	uint64_t cap;       /* of all device memory, whoever takes it; 0: none */
	uint64_t free;      /* on the device now; 0: its memory is not the limit */
	uint64_t lent;      /* by the pinner now */
	uint64_t kv_now;    /* of these, the KV cache */
	uint64_t slots_now; /* and the slots: kept as they are as long as they fit */
	uint64_t kv;        /* the KV cache wanted */
	uint64_t own;       /* what the worker allocates itself: scratch, staging */
};

/* What the cap must hold without any slot: what is lent beside the cache, the cache, the own. */
uint64_t slot_plan_need(const struct slot_room *room);

/* Slots that are there are kept as long as the rest has room, the reserve not counted: it is for
 * those who come later. */

uint32_t slot_plan_fit(const struct slot_room *room, uint64_t slot_bytes, uint32_t n_experts);

#define SLOT_NONE UINT32_MAX

struct slot_plan {
	uint32_t n;
	uint32_t open; /* the first so many may be filled: all, unless others have another use */
	uint32_t layers, experts;
	uint32_t filled;
	uint32_t *expert_of; /* (n): layer * experts + expert, or SLOT_NONE */
	uint32_t *slot_of;   /* (layers, experts): a slot, or SLOT_NONE */
	uint32_t *in_layer;  /* (layers): how many of its experts have slots */
	bool *barred;        /* (layers, experts): never in a slot; false at first */
	uint32_t *order;     /* (layers, experts): of which the first are wanted */
};

struct slot_fill {
	uint32_t layer, expert, slot;
};

int slot_plan_open(struct slot_plan *ret, uint32_t n, uint32_t layers, uint32_t experts);
void slot_plan_close(struct slot_plan *plan);

/* Wanted in the order of heat[(layers, experts)], the hottest first; of equals as at first. */
void slot_plan_rank(struct slot_plan *plan, const float *heat);

/* The slot holds this expert.  False, and nothing changed: out of range, or one of the two is
 * taken. */
bool slot_plan_hold(struct slot_plan *plan, const struct slot_fill *move);

/* Nothing is in the slot any more; it may have been empty. */
void slot_plan_free(struct slot_plan *plan, uint32_t slot);

/* Up to `max` moves of wanted experts, of layers with allowed[layer], into free slots. */
uint32_t slot_plan_next(const struct slot_plan *plan, const bool *allowed, struct slot_fill *ret,
			uint32_t max);

#endif
