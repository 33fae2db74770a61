#include "scheduler/sessions.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* all[0 .. n_ended - 1] have ended, the oldest end first; the others follow. */

int
sessions_add(struct sessions *sessions, struct session *session)
{
	struct session **more;
	uint32_t room = sessions->room ? 2 * sessions->room : 64;

	if (sessions->n == sessions->room) {
		more = realloc(sessions->all, room * sizeof(struct session *));
		if (!more)
			return -ENOMEM;
		sessions->all = more;
		sessions->room = room;
	}
	sessions->all[sessions->n++] = session;
	return 0;
}

struct session *
sessions_find(const struct sessions *sessions, uint64_t request)
{
	for (uint32_t i = 0; i < sessions->n; i++) {
		if (sessions->all[i]->request == request)
			return sessions->all[i];
	}
	return NULL;
}

struct session *
sessions_unheard(const struct sessions *sessions)
{
	struct session *first = NULL;

	for (uint32_t i = sessions->n_ended; i < sessions->n; i++) {
		if (!first || sessions->all[i]->heard_ns < first->heard_ns)
			first = sessions->all[i];
	}
	return first;
}

/* Takes the place `from` out and puts it in at `to` <= from. */
static void
move_down(struct session **all, uint32_t from, uint32_t to)
{
	struct session *moved = all[from];

	memmove(all + to + 1, all + to, (from - to) * sizeof(struct session *));
	all[to] = moved;
}

void
sessions_retire(struct sessions *sessions, struct session *session)
{
	uint32_t i = sessions->n_ended;

	while (i < sessions->n && sessions->all[i] != session)
		i++;
	assert(i < sessions->n);
	move_down(sessions->all, i, sessions->n_ended++);
	if (sessions->n_ended <= MAX_KEPT_SESSIONS)
		return;
	session_close(sessions->all[0]);
	sessions->n--;
	sessions->n_ended--;
	memmove(sessions->all, sessions->all + 1, sessions->n * sizeof(struct session *));
}

void
sessions_close(struct sessions *sessions)
{
	for (uint32_t i = 0; i < sessions->n; i++)
		session_close(sessions->all[i]);
	free(sessions->all);
	*sessions = (struct sessions){ 0 };
}
