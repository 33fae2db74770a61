/* The scheduler's inside over real sockets in a folder of its own, and a client.  Every wait has a
 * limit after which the test fails. */
#ifndef HEARTH_TESTS_FRONT_STAGE_H
#define HEARTH_TESTS_FRONT_STAGE_H

#include <pthread.h>
#include <stdint.h>

#include "common/board.h"
#include "common/endpoint.h"
#include "common/service.h"
#include "proto/front.pb-c.h"
#include "scheduler/serving.h"
#include "tests/scratch.h"

struct front_stage {
	struct scratch scratch;
	struct service service;
	struct board *board;
	struct serving serving;
	struct server *front;
	pthread_t main; /* answers the reads whose time is over */
	uint32_t queue_limit;
};

/* The tokenizer of the demo model; the caller closes it or gives it to front_stage_decide. */
struct tokenizer *front_stage_tokenizer(void);

void front_stage_open(struct front_stage *stage, uint32_t queue_limit); /* not decided yet */
void front_stage_decide(struct front_stage *stage, struct tokenizer *tokenizer);
/* Dead and started anew: whatever it knew is gone. */
void front_stage_stop(struct front_stage *stage);
void front_stage_start(struct front_stage *stage);
void front_stage_close(struct front_stage *stage);
/* Until `n` reads are parked. */
void front_stage_wait_parked(struct front_stage *stage, uint32_t n);
/* Until the scheduler has seen its worker go. */
void front_stage_wait_unlinked(struct front_stage *stage);

/* -- the client -- */

/* The caller frees the reply. */
Hearth__FrontReply *front_ask(struct front_stage *stage, const Hearth__FrontRequest *request);
/* Prompt ids 1 .. n_prompt; gives the answer's error. */
Hearth__FrontError front_submit(struct front_stage *stage, uint64_t request, uint32_t n_prompt,
				uint32_t max_tokens);
Hearth__FrontReply *front_submit_message(struct front_stage *stage, Hearth__Submit *submit);
Hearth__FrontReply *front_read(struct front_stage *stage, uint64_t request, uint32_t from_index,
			       uint64_t from_byte, uint32_t wait_ms);
Hearth__FrontError front_cancel(struct front_stage *stage, uint64_t request);
/* The reply is this error and says that; frees it. */
void front_assert_refused(Hearth__FrontReply *reply, Hearth__FrontError error, const char *said);
/* Reads to the end; it must be this one, after `n` tokens. */
void front_assert_finish(struct front_stage *stage, uint64_t request, const char *finish,
			 uint32_t n);
/* Reads until the token `index` is there; gives its id. */
uint32_t front_token(struct front_stage *stage, uint64_t request, uint32_t index);

#endif
