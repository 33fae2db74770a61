/* Answers `loader.fetch`: checks what is asked and hands it to a source of experts as a wish, which
 * the source fulfils when it can.  Any number of wishes wait at once, up to SERVER_CALLS.  The desk
 * owns the wishes; one that is done is gone. */
#ifndef HEARTH_LOADER_FETCH_DESK_H
#define HEARTH_LOADER_FETCH_DESK_H

#include <stdint.h>

#include "common/error.h"

/* What a source is asked for. */
struct fetch_wish {
	uint32_t layer;
	uint32_t n;        /* 1 or more */
	uint32_t *experts; /* (n), ascending */
	uint64_t begun_ns;
	struct fetch_wish *next; /* the source's, for its own list */
};

/* Where an expert lies in the arena: gate, up, down. */
struct fetch_place {
	uint64_t role[3];
};

/* Brings experts into the arena: of the whole model while it loads (demand.h), or with a resident
 * budget those that are not in it. */
struct fetch_source {
	void *arg;
	uint32_t n_layers, n_experts;
	/* Takes the wish on and ends it once, from any thread, perhaps before this returns; or
	 * refuses it.  Must not wait. */
	int (*bring)(void *arg, struct fetch_wish *wish, struct error *err);
};

/* (n) places, in the order of the wish's experts: they may be read from now on. */
void fetch_wish_done(struct fetch_wish *wish, const struct fetch_place *places);
void fetch_wish_fail(struct fetch_wish *wish, int rc, const struct error *why);

struct fetch_desk;

int fetch_desk_open(struct fetch_desk **ret, const char *dir, const struct fetch_source *source,
		    struct error *err);
/* The source has refused all wishes for a while and holds none; NULL is fine. */
void fetch_desk_close(struct fetch_desk *desk);

#endif
