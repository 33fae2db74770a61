/* The link to the worker: hands it one request at a time, takes its tokens, and when it goes hands
 * the request with its tokens so far to the next one. */
#ifndef HEARTH_SCHEDULER_WORK_H
#define HEARTH_SCHEDULER_WORK_H

#include "common/endpoint.h"
#include "scheduler/serving.h"

/* Listens on `work`; serving->work is the link from now on. */
int work_open(struct serving *serving, const char *dir, struct error *err);
void work_close(struct serving *serving);

/* With the lock held: the worker has nothing to do and somebody waits?  Then hand over. */
void work_advance(struct serving *serving);

/* With the lock held: ends all that go on with this error; stages are away. */
void work_end_all(struct serving *serving, const char *why);

/* With the lock held: ends a session that goes on, wherever it is. */
void work_cancel(struct serving *serving, struct session *session);

#endif
