/* The scheduler's whole state and the rules it moves by: requests come in by `front` (front.c),
 * tokens by `work` (work.c), both on threads of the endpoints.  One lock for everything; what is
 * called here says whether it must be held. */
#ifndef HEARTH_SCHEDULER_SERVING_H
#define HEARTH_SCHEDULER_SERVING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/board.h"
#include "common/endpoint.h"
#include "common/service.h"
#include "scheduler/parked.h"
#include "scheduler/queue.h"
#include "scheduler/sessions.h"
#include "scheduler/tokenizer.h"

struct serving_figures {
	uint64_t done, cancelled, failed, refused, handed_on, tokens;
	uint64_t first_request; /* the first that got a token, */
	uint64_t first_tokens;  /* how many it got, and when the first and the 16th came */
	uint64_t first_token_ns, sixteenth_token_ns;
};

struct serving {
	pthread_mutex_t lock; /* taken before those of board, endpoint and service */
	struct service *service;
	struct board *board;
	struct link *work;
	bool decided;                /* about the tokenizer; afterwards it does not change */
	struct tokenizer *tokenizer; /* NULL: none, and `note` says why */
	struct error note;
	struct sessions sessions;
	uint32_t queue_limit; /* of those that wait behind the active one */
	uint64_t unread_ns;   /* a request is cancelled that nobody reads for so long */
	struct queue queue;
	struct parked parked;
	struct session *active;       /* the worker's, or waiting for the next worker */
	bool linked;                  /* a worker has said Hello */
	struct error away;            /* no request can be served now, and why; "": they can */
	uint32_t context, vocabulary; /* the last worker's; 0: none yet */
	struct serving_figures figures;
};

int serving_open(struct serving *serving, struct service *service, struct board *board,
		 uint32_t queue_limit, struct error *err);
void serving_close(struct serving *serving); /* the endpoints are closed before */

/* Once: text can be served (tokenizer not NULL, owned from now on), or not, and why.  Takes the
 * lock. */
void serving_decide(struct serving *serving, struct tokenizer *tokenizer, const char *note);

/* A stage stays away without which nothing can be served, and why: what waits ends with that, and
 * so does what comes.  "" once it is back.  Takes the lock. */
void serving_away(struct serving *serving, const char *why);

/* -- with the lock held -- */

/* Tokens the prompt may have and the ids it may hold, as far as a worker has said.  -EINVAL. */
int serving_check_prompt(const struct serving *serving, const uint32_t *ids, uint32_t n,
			 struct error *err);

/* Puts a new session in the queue; -ENOSPC: full (nothing taken), -ENOMEM. */
int serving_take(struct serving *serving, struct session *session);

/* Whether it has answered a request. */
bool serving_has_answered(struct serving *serving);

/* A session's tokens or end have changed: parked reads, figures. */
void serving_told(struct serving *serving, struct session *session);

void serving_end(struct serving *serving, struct session *session, const char *finish,
		 const char *why);

/* Everything the board says of this stage. */
void serving_publish(struct serving *serving);

#endif
