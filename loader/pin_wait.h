/* In the order `before` a slice's bytes are written only once the pinner is through with that slice
 * and the next: they are registered, or given up with a note.  Follows the pinner's board; the main
 * thread looks, any thread asks. */
#ifndef HEARTH_LOADER_PIN_WAIT_H
#define HEARTH_LOADER_PIN_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/board.h"
#include "common/error.h"
#include "common/service.h"

/* Which of the n slices may be written by what the pinner says (NULL: it is away) of the arena with
 * this inode.  A pinner that registers after the reader holds up none. */
void pin_wait_judge(const Hearth__State *pinner, uint64_t inode, uint32_t n, bool *ret_may);

struct pin_wait;

/* Wakes `service` when there is something to look at. */
int pin_wait_open(struct pin_wait **ret, const char *dir, struct service *service,
		  uint32_t n_slices, struct error *err);

/* From now on the slices are those of this arena, and none may be written yet.  Nobody asks. */
void pin_wait_aim(struct pin_wait *wait, uint64_t inode);

/* Takes over what the pinner says now; true: another slice may be written. */
bool pin_wait_look(struct pin_wait *wait);

bool pin_wait_may_write(void *wait, uint32_t slice);

void pin_wait_close(struct pin_wait *wait); /* nobody asks any more; NULL is fine */

#endif
