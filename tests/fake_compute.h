/* Arithmetic for tests of the worker: the next token is a hash of all keys in the KV cache, so that
 * a cache which is not what the journal says gives another answer.  It goes ahead wherever it may:
 * then rubbish is in the cache, behind the last position, until the token is asked for. */
#ifndef HEARTH_TESTS_FAKE_COMPUTE_H
#define HEARTH_TESTS_FAKE_COMPUTE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/compute.h"

#define FAKE_VOCABULARY 97u

struct compute {
	struct compute_config config;
	uint32_t vocabulary;
	float *logits; /* (vocabulary) */
	pthread_mutex_t lock;
	pthread_cond_t moved;
	bool gated;            /* each forward waits to be let through */
	uint32_t entered;      /* forwards begun */
	uint32_t let;          /* of these, let through */
	uint32_t forwards;     /* completed */
	uint32_t tokens;       /* in them */
	uint32_t logits_given; /* forwards that gave all */
	uint32_t ahead;        /* that were told to go ahead */
	uint32_t begun;        /* that found their token begun */
	uint32_t dropped;      /* such tokens that nobody was going to ask for */
	uint32_t next_pos;     /* of such a token; 0: there is none */
	uint32_t next_id;
	uint32_t places_changed;
	int fails;       /* the next forward's code */
	bool no_numbers; /* the logits are NaN */
	bool asks;       /* need_experts */
	uint64_t *used;  /* (layers, experts) */
};

/* One that needs no model: `kv` has room for `context` positions of 8 bytes. */
void fake_compute_init(struct compute *compute, uint64_t *kv, uint32_t context);
void fake_compute_done(struct compute *compute);

/* From now on forwards stop at the gate; wait until one stands there; let it through. */
void fake_compute_gate(struct compute *compute, bool gated);
void fake_compute_wait_entered(struct compute *compute, uint32_t n);
void fake_compute_let(struct compute *compute, uint32_t n);

/* What follows ids[0..n-1]. */
uint32_t fake_compute_next(const uint32_t *ids, uint32_t n, uint32_t vocabulary);

/* The one expert of a layer that a token chooses. */
uint32_t fake_compute_expert(const struct model *model, uint32_t id, uint32_t layer);

extern const struct compute_ops fake_compute_ops;
/* What fake_compute_ops.open opened last. */
extern struct compute *fake_compute_opened;

#endif
