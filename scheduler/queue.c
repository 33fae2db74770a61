#include "scheduler/queue.h"

#include <errno.h>
#include <stdlib.h>

int
queue_open(struct queue *ret, uint32_t limit)
{
	struct session **waiting = calloc(limit, sizeof(struct session *));

	if (!waiting)
		return -ENOMEM;
	*ret = (struct queue){ .waiting = waiting, .limit = limit };
	return 0;
}

static struct session **
queue_at(const struct queue *queue, uint32_t i)
{
	return &queue->waiting[((uint64_t)queue->head + i) % queue->limit];
}

int
queue_push(struct queue *queue, struct session *session)
{
	if (queue->n == queue->limit)
		return -ENOSPC;
	*queue_at(queue, queue->n++) = session;
	return 0;
}

struct session *
queue_pop(struct queue *queue)
{
	struct session *first;

	if (!queue->n)
		return NULL;
	first = *queue_at(queue, 0);
	queue->head = (queue->head + 1) % queue->limit;
	queue->n--;
	return first;
}

bool
queue_remove(struct queue *queue, const struct session *session)
{
	uint32_t i = 0;

	while (i < queue->n && *queue_at(queue, i) != session)
		i++;
	if (i == queue->n)
		return false;
	for (; i + 1 < queue->n; i++)
		*queue_at(queue, i) = *queue_at(queue, i + 1);
	queue->n--;
	return true;
}

void
queue_close(struct queue *queue)
{
	free(queue->waiting);
	*queue = (struct queue){ 0 };
}
