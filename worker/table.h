/* The expert table: where each expert's matrices are now.  An expert in a slot is read there, any
 * other in the arena, in place.  Slots are filled by the pinner, on request, between forwards.  On
 * a device that reads the arena only where this process has registered it, a layer that is not
 * wholly in slots is registered at its first use.
 * For the main thread alone.  The arena, the device and the slots' memory are the caller's. */
#ifndef HEARTH_WORKER_TABLE_H
#define HEARTH_WORKER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/device.h"
#include "common/error.h"
#include "common/model.h"
#include "worker/compute.h"
#include "worker/lender.h"
#include "worker/slot_plan.h"
#include "worker/upstream.h"

struct table {
	const struct arena *arena;
	const struct model *model;
	struct device *device;
	struct upstream *upstream;
	struct lender *lender;
	struct expert_place *places; /* (layers, experts) */
	struct slot_plan slots;
	uint8_t *slots_at; /* (slots.n, slot_bytes) as the device reads it; NULL while n is 0 */
	uint64_t slot_bytes;
	struct slot_fill *moves; /* (move_max): of one request */
	uint32_t move_max;
	bool fill_refused;    /* the pinner does not move: the arena serves the rest */
	bool *usable;         /* (1 + layers): slices, as the pinner tells */
	uint64_t *registered; /* (layers): bytes from the slice's begin, by this process */
	uint64_t register_ns; /* inside the calls */
	uint64_t register_bytes;
	struct error refused; /* why a registration was refused; "" = none was */
	/* Ends a wait for a slice: the main thread is wanted elsewhere.  May be NULL. */
	bool (*interrupted)(void *arg);
	void *interrupted_arg;
};

/* `table` has its first five fields set; `n_slots` may be 0. */
int table_open(struct table *table, uint32_t n_slots, struct error *err);
void table_close(struct table *table);

/* Points every expert to where it is.  slots_at is set by then. */
void table_place(struct table *table);

/* Takes over what the pinner's state says of the slices.  Returns how many are usable. */
uint32_t table_look(struct table *table);

/* Waits until a slice is usable.  -ECANCELED: interrupted, leaving, or the pinner is lost. */
int table_wait_slice(struct table *table, uint32_t slice, struct error *err);

/* compute_config.need_experts: these experts of the layer may be read.  arg is the struct table. */
int table_need(void *table, uint32_t layer, const uint32_t *experts, uint32_t n);

/* Fills the next few slots, of usable layers.  1: places have changed, and there may be more to
 * do; 0: nothing to do now. */
int table_fill(struct table *table, struct error *err);

#endif
