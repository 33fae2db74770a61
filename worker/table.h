/* The expert table: where each expert's matrices are now.  A layer's experts are read
 *   - in slots of device memory, filled by the pinner on request and refilled by use;
 *   - in the arena, in place: on a device that reads the arena only where this process has
 *     registered it, once that is done: behind serving, piece by piece, between forwards;
 *   - until then through the staging ring, those that the router chose, layer by layer;
 *   - and bytes that are not in the arena are first asked of the loader.
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
#include "worker/fetcher.h"
#include "worker/moving.h"
#include "worker/slot_plan.h"
#include "worker/slot_policy.h"
#include "worker/staging.h"
#include "worker/upstream.h"

/* Of a layer's experts, where those that need the most are read. */
enum table_source {
	SOURCE_SLOTS,
	SOURCE_ARENA,
	SOURCE_STAGING,
	SOURCE_FETCH,
	N_SOURCES,
};

struct table {
	const struct arena *arena;
	const struct model *model;
	struct device *device;
	struct upstream *upstream;
	struct fetcher *fetcher;     /* NULL: nobody to ask, what is not there is waited for */
	struct staging *staging;     /* NULL: nothing needs it */
	struct expert_place *places; /* (layers, experts) */
	struct slot_plan slots;
	uint8_t *slots_at; /* (slots.n, slot_bytes) as the device reads it; NULL while n is 0 */
	uint64_t slot_bytes;
	struct moving *moving;
	struct slot_policy policy; /* heat NULL: what is in a slot stays there */
	struct slot_fill *moves;   /* (move_max): of one request */
	uint32_t move_max;
	uint32_t n_moves;  /* chosen, and perhaps under way: in no slot until they are there */
	bool *movable;     /* (layers) of one choice: an expert without slot can be read */
	bool filling;      /* there may be free slots to fill */
	bool fill_refused; /* the pinner does not move: the arena serves the rest */

	struct expert_place *home; /* (layers, experts) in the arena; NULL: no place of its own */
	uint32_t *homeless;        /* (layers) experts without one */
	bool *filled;      /* (1 + layers): slices, as the pinner tells: every byte is there */
	bool *usable;      /* and the pinner is through with it */
	bool *registrable; /* and a process of this device may register it */
	bool *fetched;     /* (layers, experts) there ahead of its slice */
	struct expert_place *lent; /* (experts) of one call: those without a home, as fetched */
	uint32_t *absent;          /* (experts) of one call: to be fetched */

	uint64_t *registered; /* (layers): bytes from the slice's begin, by this process */
	uint64_t register_ns; /* inside the calls */
	uint64_t register_bytes;
	struct error refused;     /* why a registration was refused; "" = none was */
	struct error failure;     /* of table_need; "" = none */
	uint64_t staged_experts;  /* in all calls */
	uint64_t fetched_experts; /* asked of the loader and got */
	uint64_t fetch_ns;        /* waiting for them */
	uint64_t moved;           /* experts that came into slots */
	uint64_t bytes_moved;     /* of these */
	/* Ends a wait for a slice: the main thread is wanted elsewhere.  May be NULL. */
	bool (*interrupted)(void *arg);
	void *interrupted_arg;
};

/* `table` has its first fields set, up to staging; `n_slots` may be 0. */
int table_open(struct table *table, uint32_t n_slots, struct error *err);
void table_close(struct table *table);

/* Points every expert to its slot or home.  slots_at is set by then. */
void table_place(struct table *table);
void table_place_layer(struct table *table, uint32_t layer);
void table_place_expert(struct table *table, uint32_t layer, uint32_t expert);

/* Takes over what the pinner's state says of the slices.  Returns how many are usable. */
uint32_t table_look(struct table *table);

static inline uint32_t
table_which(const struct table *table, uint32_t layer, uint32_t expert)
{
	return layer * table->model->n_experts + expert;
}

/* The device reads the layer's part of the arena where it lies. */
bool table_in_place(const struct table *table, uint32_t layer);
enum table_source table_source(const struct table *table, uint32_t layer);
/* Nothing is left to stage or to fetch: need_experts has nothing to do any more. */
bool table_settled(const struct table *table);

/* Waits until a slice's bytes are there.  -ECANCELED: interrupted, leaving, or the pinner is lost.
 */
int table_wait_slice(struct table *table, uint32_t slice, struct error *err);

/* compute_config.need_experts: these experts of the layer may be read.  arg is the struct table. */
int table_need(void *table, uint32_t layer, const uint32_t *experts, uint32_t n);

/* What is moved into slots goes through three steps, all between forwards, so that no forward reads
 * a slot that is being written.
 *
 * table_choose: what is moved next, if nothing is under way.  Free slots come first; then up to
 * `most` experts take the places of colder ones, which are read in the arena from now on.  False:
 * nothing.  True: places may have changed.
 * table_move: once the device knows these places, asks the pinner for the moves.
 * table_moved: 1: the pinner is through with them, and the places have changed; 0: nothing new.
 *
 * -ECANCELED: the pinner is gone.  Any other refusal ends moving for good: the arena serves. */
bool table_choose(struct table *table, uint32_t most);
int table_move(struct table *table, struct error *err);
int table_moved(struct table *table, struct error *err);

/* Registers the next piece of the first layer that wants it, of those that the pinner has told to
 * be registered: its calls for them are over, so no arena_lock is taken.  1: there may be more to
 * do; 0: nothing to do now.  A refusal is no failure: the staging ring serves that layer for good.
 */
int table_register(struct table *table);

#endif
