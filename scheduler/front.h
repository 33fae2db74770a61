/* What clients ask: submit, read (which may wait for more), cancel.  A message that makes no sense
 * is answered so and changes nothing. */
#ifndef HEARTH_SCHEDULER_FRONT_H
#define HEARTH_SCHEDULER_FRONT_H

#include "common/endpoint.h"
#include "scheduler/serving.h"

int front_open(struct server **ret, struct serving *serving, const char *dir, struct error *err);

/* With the lock held: answers the parked reads that wait for what the session now has. */
void front_answer_parked(struct serving *serving, const struct session *session);

/* Answers the reads that have waited long enough, cancels the requests that nobody reads; gives the
 * next such time, 0: none.  Takes the lock. */
uint64_t front_expire(struct serving *serving, uint64_t now_ns);

#endif
