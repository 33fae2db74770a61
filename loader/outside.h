/* Experts outside the resident budget, brought into the arena's window as they are asked for: a
 * source for the fetch desk.  One wish after the other: all its windows are read at once, by
 * threads of its own, and while the resident set is still being read, what the wish needs of that
 * goes first.  A wish ends when all its experts are in place; the next one may overwrite what older
 * ones got.  Its lock is taken inside the reader's events and outside of the queue's. */
#ifndef HEARTH_LOADER_OUTSIDE_H
#define HEARTH_LOADER_OUTSIDE_H

#include "loader/fetch.h"
#include "loader/fetch_desk.h"
#include "loader/piece_queue.h"
#include "loader/resident.h"

struct outside_config {
	const struct io_calls *io;
	const struct model_files *files;
	const struct placement *placement; /* with a window */
	const struct resident *resident;
	const struct pieces *pieces;
	struct piece_queue *queue;
	const uint64_t *hashes; /* (layers, experts, N_ROLES) each matrix must have; NULL */
	uint8_t *arena;
	bool direct;
	struct fetch_fallback fallback; /* called from any thread */
	uint32_t threads;
};

struct outside;

struct outside_figures {
	uint64_t requests;          /* wishes */
	uint64_t experts, hits;     /* brought; found in the window */
	uint64_t windows;           /* matrices that were to be read */
	uint64_t reads, bytes;      /* that took so many requests, gaps included */
	uint64_t wait_ns, first_ns; /* of the wishes */
};

/* The config's things must outlive it. */
int outside_open(struct outside **ret, const struct outside_config *config, struct error *err);
struct fetch_source outside_source(struct outside *outside);

/* Resident pieces are done that somebody waits for (the reader's event; arg is the outside). */
void outside_look(void *outside);

/* Reads go direct from now on, or buffered. */
int outside_switch(struct outside *outside, bool direct, struct error *err);

/* At any time, with any lock held. */
void outside_figures(struct outside *outside, struct outside_figures *ret);

/* Wishes that wait, and all to come, are refused with this; none is left when it returns.  The
 * first reason stays. */
void outside_end(struct outside *outside, int rc, const struct error *why);
void outside_close(struct outside *outside); /* after outside_end and the desk; NULL is fine */

#endif
