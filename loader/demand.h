/* Demand first: while the whole model is read in order, the experts that somebody waits for are
 * read before the rest, and their wish is fulfilled when all of them are in place and hashed.  A
 * source for the fetch desk.  Its lock is taken inside the reader's events and outside of the
 * queue's. */
#ifndef HEARTH_LOADER_DEMAND_H
#define HEARTH_LOADER_DEMAND_H

#include "loader/fetch_desk.h"
#include "loader/piece_queue.h"

struct demand;

struct demand_figures {
	uint64_t requests, wait_ns, first_ns;
	uint64_t bytes; /* read ahead of the rest */
};

/* Plan, pieces and queue must outlive it; `tensors` are looked at here only. */
int demand_open(struct demand **ret, const struct checksum_plan *plan,
		const struct arena_tensor *tensors, const struct pieces *pieces,
		struct piece_queue *queue, struct error *err);
struct fetch_source demand_source(struct demand *demand);

/* Demanded pieces are done (the reader's event; arg is the demand). */
void demand_look(void *demand);

void demand_figures(struct demand *demand, struct demand_figures *ret);

/* Reading ended too early: wishes that wait for it, now or later, are refused with this.  The first
 * reason stays. */
void demand_end(struct demand *demand, int rc, const struct error *why);

void demand_close(struct demand *demand); /* after demand_end and the desk; NULL is fine */

#endif
