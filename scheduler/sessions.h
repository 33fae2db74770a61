/* All sessions by request id: those that go on, and the last MAX_KEPT_SESSIONS that have ended, for
 * late reads.  Owns them.  Whoever holds it locks. */
#ifndef HEARTH_SCHEDULER_SESSIONS_H
#define HEARTH_SCHEDULER_SESSIONS_H

#include <stdint.h>

#include "scheduler/session.h"

/* A client whose reply was lost asks again within a minute; 256 answers are longer than that. */
#define MAX_KEPT_SESSIONS 256

struct sessions {
	struct session *
	    *all; /* in the order of their coming, the ended ones in that of their end */
	uint32_t n, room;
	uint32_t n_ended;
};

int sessions_add(struct sessions *sessions, struct session *session);             /* 0 or -ENOMEM */
struct session *sessions_find(const struct sessions *sessions, uint64_t request); /* or NULL */
/* Of those that go on, the one that no client has been heard of for longest, or NULL. */
struct session *sessions_unheard(const struct sessions *sessions);
/* It has ended: from now on it is among those that may be forgotten, oldest first. */
void sessions_retire(struct sessions *sessions, struct session *session);
void sessions_close(struct sessions *sessions); /* of a zeroed one is fine */

#endif
