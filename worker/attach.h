/* All that a worker works on, none of it its own: the arena, the device, what the pinner lends, and
 * over them the model, the expert table, the arithmetic and the KV cache's journal. */
#ifndef HEARTH_WORKER_ATTACH_H
#define HEARTH_WORKER_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/board.h"
#include "common/device.h"
#include "common/error.h"
#include "common/model.h"
#include "common/shared_memory.h"
#include "worker/compute.h"
#include "worker/journal.h"
#include "worker/lender.h"
#include "worker/slot_use.h"
#include "worker/table.h"
#include "worker/upstream.h"
#include "worker/usage.h"

/* Where --ctx does not say: what a KV cache of modest size holds. */
#define ATTACH_DEFAULT_CONTEXT 8192u

struct attach_config {
	const char *dir;
	uint32_t context;    /* 0: the model's, at most ATTACH_DEFAULT_CONTEXT */
	uint32_t threads;    /* of compute_config; 0: one a core this process may use */
	float slot_margin;   /* of slot_policy.h */
	float cpu_share;     /* of compute_config */
	const char *profile; /* file of how often each expert was used; NULL: none */
	struct upstream *upstream;
	struct board *board;   /* told what is waited for */
	struct device *device; /* to compute on, taken over; NULL: the one that the pinner names */
	/* The arithmetic of each kind of device. */
	const struct compute_ops *cpu, *cuda;
};

struct attached {
	struct arena arena;
	struct model model;
	struct device *device;
	const struct device_info *info;
	struct lender lender;
	struct shared_memory journal_memory, usage_memory, heat_memory;
	struct device_memory kv, trunk, slots;
	struct fetcher fetcher;
	struct moving moving; /* zeroed without slots */
	struct table table;
	const struct compute_ops *ops;
	struct compute *compute;
	struct journal journal;
	struct slot_use slot_use;
	struct usage usage; /* page NULL: not recorded */
	uint32_t context, threads;
	uint32_t n_slots;     /* 0: all experts are read in the arena */
	bool staged_in_slots; /* the staging ring's device memory is the last of them */
	uint64_t begin_ns, end_ns;
};

/* Waits until the pinner has what is needed.  -ECANCELED: leaving, or the pinner was lost.  The
 * same `ret` stays where it is until attach_close: parts of it point to others.  On failure nothing
 * is left to close. */
int attach_open(struct attached *ret, const struct attach_config *config, struct error *err);
void attach_close(struct attached *attached);

/* Nothing is left to stage: lets the room for it go. */
void attach_unstage(struct attached *attached);

#endif
