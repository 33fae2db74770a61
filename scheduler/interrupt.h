/* SIGINT, SIGTERM and SIGHUP as a flag that wakes a pause, and as a call on a thread of its own: so
 * that a request is cancelled while the main thread waits for its next token. */
#ifndef HEARTH_SCHEDULER_INTERRUPT_H
#define HEARTH_SCHEDULER_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct interrupt;

/* Blocks the signals in all threads to come.  `fn` is called at the first of them; the second ends
 * the process. */
int interrupt_open(struct interrupt **ret, void (*fn)(void *arg), void *arg, struct error *err);
bool interrupt_came(struct interrupt *interrupt);
/* Until the time (clock_ns), or the interrupt.  False: it came. */
bool interrupt_pause(struct interrupt *interrupt, uint64_t until_ns);
void interrupt_close(struct interrupt *interrupt); /* `fn` does not run afterwards */

#endif
