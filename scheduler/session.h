/* One request: its prompt, every token given so far, the answer's text, and when it all happened.
 * Plain memory: whoever holds it locks. */
#ifndef HEARTH_SCHEDULER_SESSION_H
#define HEARTH_SCHEDULER_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "proto/front.pb-c.h"
#include "scheduler/tokenizer.h"

struct session {
	uint64_t request;
	uint32_t *ids; /* the prompt, and behind it the tokens */
	uint32_t n_prompt, n_tokens, room;
	uint32_t max_tokens;
	float temperature, top_p;
	uint32_t top_k;
	uint64_t seed;
	bool want_logits, ignore_stop;
	uint8_t *text; /* of the tokens */
	size_t n_text, text_room;
	uint8_t *logits; /* of token 0, once it is there and if wanted */
	size_t n_logits;
	const char *finish; /* NULL: goes on; "length", "stop", "cancelled" or "error" */
	struct error why;   /* of an "error", and whose it is: FRONT_BAD, FRONT_AWAY or FRONT_OK */
	Hearth__FrontError cause;
	uint32_t handed; /* how often it was given to a worker */
	/* clock_ns; 0 = not yet */
	uint64_t submit_ns, begin_ns, first_ns, end_ns;
	uint64_t heard_ns;   /* a client was there at last; of a read that waits: its end */
	uint64_t compute_ns; /* the workers' own time for the tokens */
};

/* From a checked submit; tokens that it brings along are its first ones.  `tokenizer` may be NULL:
 * there is no text then.  0 or -ENOMEM. */
int session_open(struct session **ret, const Hearth__Submit *submit, const uint32_t *prompt,
		 uint32_t n_prompt, const struct tokenizer *tokenizer);
void session_close(struct session *session);

enum session_added {
	SESSION_ADDED,
	SESSION_KNOWN,     /* it is there already, the same */
	SESSION_DIFFERENT, /* another one is there: kept */
	SESSION_BEYOND,    /* tokens before it are missing */
};

/* 0 or -ENOMEM; nothing changed then. */
int session_add(struct session *session, uint32_t index, uint32_t id,
		const struct tokenizer *tokenizer, enum session_added *ret);

int session_keep_logits(struct session *session, const uint8_t *at, size_t n); /* 0, -ENOMEM */

/* Why it is over by its tokens alone ("stop", "length"), or NULL. */
const char *session_over(const struct session *session, const struct tokenizer *tokenizer);

/* `why` may be NULL. */
void session_end(struct session *session, const char *finish, const char *why);

/* Bytes of the text that may be shown: up to a whole character until the end. */
size_t session_visible(const struct session *session);

#endif
