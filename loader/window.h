/* Which expert lies in which slot of a budget's window.  What the latest fetch got stays until the
 * next; of the older ones, those that were not used for longest make room.  Plain data. */
#ifndef HEARTH_LOADER_WINDOW_H
#define HEARTH_LOADER_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_NONE UINT32_MAX

struct window {
	uint32_t n;
	uint32_t *holds;   /* (n) an expert of all, or WINDOW_NONE */
	uint64_t *used;    /* (n) the fetch that last wanted it */
	uint32_t *slot_of; /* (all experts) or WINDOW_NONE */
	uint64_t fetch;    /* counts */
};

int window_open(struct window *ret, uint32_t n, uint32_t n_experts); /* -ENOMEM */
void window_close(struct window *window);                            /* of a zeroed one is fine */

void window_begin(struct window *window); /* another fetch */

/* The expert's slot; *ret_fresh: its bytes are still to be brought.  WINDOW_NONE: this fetch has
 * all slots already. */
uint32_t window_take(struct window *window, uint32_t expert, bool *ret_fresh);

/* Its bytes did not come. */
void window_forget(struct window *window, uint32_t expert);

#endif
