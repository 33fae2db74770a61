/* The pinner, as its board tells of it: whether it is there and still the one that was attached,
 * and which slices may be used.  For the main thread alone; the state belongs to the upstream and
 * holds until the next look. */
#ifndef HEARTH_WORKER_UPSTREAM_H
#define HEARTH_WORKER_UPSTREAM_H

#include <stdbool.h>
#include <stdint.h>

#include "common/board.h"
#include "common/error.h"
#include "common/service.h"

struct upstream {
	struct service *service;
	struct watch *watch;
	uint64_t seen;        /* of the service's events */
	uint64_t changes;     /* of the watch, as last looked at */
	Hearth__State *state; /* the last one heard; NULL: none, or lost */
	bool bound;           /* to the pid and arena below */
	uint32_t pid;
	uint64_t inode;
};

int upstream_open(struct upstream *ret, const char *dir, struct service *service,
		  struct error *err);
void upstream_close(struct upstream *upstream);

/* Reads the board again.  -ECANCELED once bound: the pinner is lost, or another one (or another
 * arena) is there; the line says which. */
int upstream_look(struct upstream *upstream, struct error *err);

/* Waits for the service's next event, then looks.  -ECANCELED: leaving, too. */
int upstream_wait(struct upstream *upstream, struct error *err);

/* It names an arena and a device.  With it, this very pinner is the one: bound. */
bool upstream_bind(struct upstream *upstream);

/* The slice's bytes are whole. */
bool upstream_slice_filled(const Hearth__State *state, uint32_t slice);
/* And the pinner has registered it. */
bool upstream_slice_registered(const Hearth__State *state, uint32_t slice);
/* Or it is through with it otherwise. */
bool upstream_slice_usable(const Hearth__State *state, uint32_t slice);

/* "cpu", "cuda:0": the word that device_open takes. */
void upstream_device(const Hearth__State *state, char ret_word[32]);

/* Bytes of the region lent under this key now; 0 = none. */
uint64_t upstream_region_bytes(const Hearth__State *state, const char *key);

#endif
