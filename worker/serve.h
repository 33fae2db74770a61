/* The token loop: takes requests from the scheduler over `work`, computes, sends each token before
 * it waits for the next one.  It runs on the thread that calls serve_run and allocates nothing
 * there; the link's threads only fill `requests`. */
#ifndef HEARTH_WORKER_SERVE_H
#define HEARTH_WORKER_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/service.h"
#include "worker/compute.h"
#include "worker/journal.h"
#include "worker/requests.h"

/* Counted since serve_open. */
struct serve_tally {
	uint64_t request;     /* at work; 0 = none */
	uint64_t tokens_in;   /* prompt tokens computed (those a dead worker was given included) */
	uint64_t tokens_kept; /* prompt tokens whose keys and values were there */
	uint64_t tokens_out;
	uint64_t compute_ns;
	uint64_t first_token_ns, sixteenth_token_ns; /* when */
};

struct serve_config {
	struct service *service;
	struct requests *requests; /* open; closed by the caller after serve_close */
	const char *dir;
	const struct compute_ops *ops;
	struct compute *compute;
	struct journal *journal;
	uint32_t vocabulary, context;
	/* Called between two forwards and while idle; `woken`: something has happened since.
	 * 1 = has more to do at once, < 0 ends serve_run with that code.  May be NULL. */
	int (*upkeep)(void *arg, bool woken, struct error *err);
	/* Called before each forward: waits until the trunk may be read.  -ECANCELED as with
	 * compute_config.need_experts.  May be NULL. */
	int (*wait_trunk)(void *arg, struct error *err);
	/* The tally has moved; `now`: by what should be known at once.  May be NULL. */
	void (*report)(void *arg, const struct serve_tally *tally, bool now);
	void *arg;
};

struct serve;

int serve_open(struct serve **ret, const struct serve_config *config, struct error *err);
/* 0: told to leave. */
int serve_run(struct serve *serve, struct error *err);
void serve_close(struct serve *serve);

#endif
