/* What the pinner's threads share.  main registers slices in order and uploads the trunk; nng's
 * threads answer `pinner.lend`; the mover copies experts into slots. */
#ifndef HEARTH_PINNER_PINNER_H
#define HEARTH_PINNER_PINNER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/board.h"
#include "common/device.h"
#include "common/endpoint.h"
#include "common/model.h"
#include "common/service.h"
#include "pinner/lending.h"
#include "pinner/pin_plan.h"
#include "pinner/slot_table.h"
#include "proto/lend.pb-c.h"

#define TRUNK_KEY "trunk"
#define SLOTS_KEY "slots"
#define KV_KEY "kv" /* lent: a worker serves */

struct move_order; /* moves asked for and not done, with the call to answer */

struct pinner {
	struct service *service;
	struct board *board;
	struct device *device;
	pthread_mutex_t lock; /* for all below, and for every call into the device */
	bool attached;        /* arena and model are there, for good */
	struct arena arena;
	struct model model;
	/* What is registered; main only, but for what a copy asks of a usable slice. */
	struct pin_config pin_config;
	struct pin_plan plan;
	bool asks_huge; /* of the pages that it is the first to touch */
	bool ready;
	bool *usable;     /* (slices): filled, and registered or not for good */
	bool trunk_there; /* the region "trunk" is complete */
	struct lending lending;
	struct slot_table slots; /* of the region "slots"; n = 0: none */
	uint32_t slots_lease;    /* of its last grant */
	struct move_order *first, *last;
	uint64_t moved;
	uint64_t moved_told_ns; /* when the board last said so; the mover's */
	pthread_cond_t moves;   /* there is an order, or stopping */
	bool stopping;
};

/* desk.c: answers one message of `pinner.lend`. */
void desk_answer(void *arg, struct call *call, const uint8_t *bytes, size_t n);
/* The regions and the device's room, to the board.  Lock not held. */
void desk_publish(struct pinner *pinner);

/* mover.c: the thread, and an order for it (lock held; takes over the call; moves are copied; their
 * slots are empty from then on).  -ENOMEM; -ECANCELED: it has been stopped. */
int mover_start(struct pinner *pinner, pthread_t *ret);
void mover_stop(struct pinner *pinner, pthread_t thread);
int mover_order(struct pinner *pinner, struct call *call, const struct slot_move *moves,
		uint32_t n);

/* pin.c: carries out what the plan says of one slice, and tells it on the board. */
void pin_register(struct pinner *pinner, uint32_t slice);
void pin_lock(struct pinner *pinner, uint32_t slice);
/* What the plan has decided, to the board. */
void pin_publish(struct pinner *pinner);
/* Starts a copy from the arena; `offset` and `bytes` lie in `slice`.  Lock held. */
int pin_copy(struct pinner *pinner, void *to, uint32_t slice, uint64_t offset, uint64_t bytes,
	     struct error *err);

/* registrar.c: one step of what the loader's state (NULL: it is away) and the plan call for.  1:
 * there may be more to do at once, by the newest state; 0: nothing until that changes; or -errno
 * with a line, -ESTALE: the loader has another arena now. */
int registrar_follow(struct pinner *pinner, const Hearth__State *loader, struct error *err);
/* Tells on the board how it ended: with 0, told to leave, or with what registrar_follow gave.
 * Returns what the process ends with: another arena is no failure. */
int registrar_leave(struct pinner *pinner, int rc, const struct error *why);
void registrar_close(struct pinner *pinner);

#endif
