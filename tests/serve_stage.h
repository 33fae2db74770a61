/* A worker's token loop between a fake scheduler and fake arithmetic, on memory that outlives it;
 * and the texts it is asked to go on with. */
#ifndef HEARTH_TESTS_SERVE_STAGE_H
#define HEARTH_TESTS_SERVE_STAGE_H

#include <pthread.h>
#include <stdint.h>

#include "tests/fake_compute.h"
#include "tests/fake_scheduler.h"
#include "tests/scratch.h"
#include "worker/serve.h"

#define CONTEXT 4096u

struct stage {
	struct scratch scratch;
	struct fake_scheduler scheduler;
	uint64_t kv[CONTEXT];
	void *page; /* the journal's, as lent */
	/* one worker's life */
	struct service service;
	struct requests requests;
	struct journal journal;
	struct compute compute;
	struct serve *serve;
	pthread_t thread;
	int upkeep_code;
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t told;
	struct serve_tally tally;
	uint32_t upkeeps_after; /* with an answer through and none at work */
	struct error err;
};

/* cmocka's setup and teardown: the first worker is there. */
int serve_setup(void **state);
int serve_teardown(void **state);

/* A new process on the memory that is there. */
void worker_start(struct stage *stage);
/* Ends without a word to the scheduler, as one that is killed; at the gate if it stands there. */
void worker_end(struct stage *stage);
/* It ends by itself: with which code. */
int worker_join(struct stage *stage);

struct text {
	uint32_t ids[CONTEXT];
	uint32_t n;
	uint32_t prompt;
};

struct text text_make(uint32_t n, uint32_t seed);
/* Adds what the arithmetic gives. */
uint32_t text_grow(struct text *text);
Hearth__Generate ask(const struct text *text, uint64_t request, uint32_t max_tokens);
void send_ask(struct stage *stage, const struct text *text, uint64_t request, uint32_t max_tokens);
/* Reads tokens until the text has `until` generated ones; each must be the arithmetic's. */
void read_tokens(struct stage *stage, struct text *text, uint64_t request, uint32_t until);
void wait_for_upkeep_after(struct stage *stage);
struct serve_tally tally_when_idle(struct stage *stage);
/* Until the main thread has an order to take: it stands at the gate. */
void wait_for_order(struct stage *stage);

#endif
