/* One request on its way: its ids so far, and the rules of when it ends.  No sockets, no kernels.
 * The room for ids is made once; begin copies what it needs but for stop_ids, which point into the
 * message: the caller keeps it as long as the answer goes on. */
#ifndef HEARTH_WORKER_ANSWER_H
#define HEARTH_WORKER_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "proto/work.pb-c.h"
#include "worker/sample.h"

struct answer {
	uint32_t *ids;       /* (context): the prompt, then what was generated */
	uint32_t context;    /* tokens it may have in all */
	uint32_t vocabulary; /* ids are below this */
	uint64_t request;
	uint32_t n_ids;
	uint32_t prompt_tokens;
	uint32_t max_tokens;
	uint32_t done; /* positions whose keys and values are complete */
	struct sampling sampling;
	const uint32_t *stop_ids;
	size_t n_stop_ids;
	bool want_logits;
};

int answer_open(struct answer *ret, uint32_t context, uint32_t vocabulary);
void answer_close(struct answer *answer);

/* -EINVAL: it asks for what cannot be; the line says what could. */
int answer_begin(struct answer *answer, const Hearth__Generate *generate, struct error *err);

/* Tokens generated so far: the index of the next one. */
uint32_t answer_index(const struct answer *answer);
void answer_add(struct answer *answer, uint32_t id);

/* Behind the next token there is room for another: only a stop id would end the answer with it. */
bool answer_has_room(const struct answer *answer);

/* "stop", "length", or NULL while it goes on. */
const char *answer_finish(const struct answer *answer);

#endif
