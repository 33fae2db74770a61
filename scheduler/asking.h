/* One request as its client sees it: submitted, read to its end, and taken up again where it was
 * when the scheduler goes away and comes back.  Hands what comes to a taker; prints nothing. */
#ifndef HEARTH_SCHEDULER_ASKING_H
#define HEARTH_SCHEDULER_ASKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "common/error.h"
#include "proto/front.pb-c.h"
#include "scheduler/interrupt.h"

/* How long the scheduler may be away (or still starting) before the request is given up. */
#define ASKING_PATIENCE_S 60

struct asking {
	const char *dir;
	Hearth__Submit submit; /* the caller's, but for `request` and `given_ids` */
	/* New ids and text since the last call, in order; < 0 cancels the request, and is what
	 * asking_run returns. */
	int (*take)(void *arg, const uint32_t *ids, size_t n_ids, const uint8_t *text,
		    size_t n_text);
	void *arg;

	struct client *client;
	struct interrupt *interrupt;
	bool supervised;      /* at its begin */
	uint64_t patience_ns; /* when it ends, while nothing answers; 0: all is well */
	uint64_t pause_ns;    /* the next pause */
	uint32_t *prompt_ids;
	size_t n_prompt_ids;
	uint32_t *ids; /* all tokens so far, and the answer's text */
	size_t n_ids, ids_room;
	uint8_t *text;
	size_t n_text, text_room;
	uint8_t *logits;
	size_t n_logits;
	char finish[16]; /* "": not over */
	struct error why;
	Hearth__FrontError cause; /* of the finish "error" */
	double queued_s, first_token_s, total_s;
	double compute_s, compute_before_s; /* of earlier schedulers, within the first */
	uint64_t begin_ns;
};

/* Fill dir, submit, take and arg before.  Takes over SIGINT, SIGTERM and SIGHUP: they cancel. */
int asking_open(struct asking *asking, struct error *err);
/* 0: over, `finish` says how.  -EINVAL: refused; -EBUSY: the queue is full; -ENOTCONN: there is
 * nobody to serve it, and that stays so; other -errno. */
int asking_run(struct asking *asking, struct error *err);
void asking_close(struct asking *asking);

#endif
