/* The plan of registration, plain arithmetic: from the slices, what is filled, the order and the
 * cap it says which slice is registered next, which are not and why, and what is locked instead.
 * The caller does what it says, tells it the outcome, and locks. */
#ifndef HEARTH_PINNER_PIN_PLAN_H
#define HEARTH_PINNER_PIN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/error.h"

enum pin_order {
	PIN_AFTER,  /* a slice is registered once it is filled: resident pages cost a tenth */
	PIN_BEFORE, /* ahead of the reader, which waits for it */
};

/* Larger single calls are known to fail. */
#define PIN_CALL_BYTES (64ull << 30)
/* Once a worker serves: its launches stall for as long as a call lasts. */
#define PIN_CALL_BYTES_SERVING (64ull << 20)

/* Zeroed: after, the whole arena. */
struct pin_config {
	enum pin_order order;
	bool capped;
	uint64_t cap; /* bytes, if capped */
};

enum pin_fate {
	PIN_OPEN,       /* nothing is decided yet */
	PIN_REGISTERED, /* or there was nothing to register */
	PIN_OVER_CAP,
	PIN_REFUSED, /* by the driver */
	PIN_ENDED,   /* the driver had refused another one before */
};

struct pin_slice {
	bool filled; /* by the loader */
	enum pin_fate fate;
	uint64_t call_bytes; /* it was registered in calls of so many; 0 = not tried */
	bool lock_tried;
};

struct pin_plan {
	struct pin_config config;
	uint32_t n;
	uint32_t prefix;                 /* slices within the cap */
	const struct arena_slice *place; /* (n), the arena's */
	struct pin_slice *slices;        /* (n) */
	bool ended;                      /* a slice was refused */
	bool lock_refused;
};

/* N (GiB), "auto" (no cap) or 0; -EINVAL. */
int pin_config_read(struct pin_config *ret, const char *order, const char *gib, struct error *err);

/* Slices over the cap are decided at once.  `place` must live as long.  -ENOMEM. */
int pin_plan_open(struct pin_plan *ret, const struct pin_config *config,
		  const struct arena_slice *place, uint32_t n);
void pin_plan_close(struct pin_plan *plan);

void pin_plan_note_filled(struct pin_plan *plan, uint32_t slice);

/* The slice to register now; n: none. */
uint32_t pin_plan_next(const struct pin_plan *plan);

/* How many bytes the call has that goes on at `done` of `slice`; 0: the slice is through, and never
 * is a call of 0 bytes made.  The bound holds for a whole slice, from its first call on. */
uint64_t pin_plan_call(struct pin_plan *plan, uint32_t slice, uint64_t done, bool serving);

/* Huge pages that come so slowly cost more than small ones: memory is fragmented. */
bool pin_pages_are_slow(uint64_t bytes, uint64_t ns);

/* The outcome; a refusal ends registration for all that is open. */
void pin_plan_registered(struct pin_plan *plan, uint32_t slice);
void pin_plan_refused(struct pin_plan *plan, uint32_t slice);

/* Filled, and its fate is decided: others may use it. */
bool pin_plan_usable(const struct pin_plan *plan, uint32_t slice);
/* All slices are usable. */
bool pin_plan_done(const struct pin_plan *plan);

/* The filled slice to lock in RAM now, since it is not registered; n: none.  Locking comes after
 * all registration that is due, each slice is tried once, and a refusal ends it. */
uint32_t pin_plan_next_lock(const struct pin_plan *plan);
void pin_plan_lock_tried(struct pin_plan *plan, uint32_t slice, bool locked);

/* A copy must not straddle two registrations: of `bytes` from `offset` of the arena, in `slice`,
 * how many one copy may take. */
uint64_t pin_plan_copy_bytes(const struct pin_plan *plan, uint32_t slice, uint64_t offset,
			     uint64_t bytes);

#endif
