/* Requests that wait for the worker, first come, first served, up to a limit.  Holds sessions and
 * owns none.  Whoever holds it locks. */
#ifndef HEARTH_SCHEDULER_QUEUE_H
#define HEARTH_SCHEDULER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

struct session;

struct queue {
	struct session **waiting; /* a ring */
	uint32_t limit, head, n;
};

int queue_open(struct queue *ret, uint32_t limit);            /* limit >= 1; 0 or -ENOMEM */
int queue_push(struct queue *queue, struct session *session); /* -ENOSPC: full */
struct session *queue_pop(struct queue *queue);               /* NULL: empty */
/* Leaves the others in their order; false: it is not in there. */
bool queue_remove(struct queue *queue, const struct session *session);
void queue_close(struct queue *queue); /* of a zeroed one is fine */

#endif
