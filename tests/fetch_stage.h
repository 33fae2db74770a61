/* `loader.fetch` over real sockets, with files that read as a test lets them, and who asks
 * (cmocka). One at a time. */
#ifndef HEARTH_TESTS_FETCH_STAGE_H
#define HEARTH_TESTS_FETCH_STAGE_H

#include <pthread.h>

#include "loader/demand.h"
#include "proto/fetch.pb-c.h"
#include "tests/read_case.h"
#include "tests/scratch.h"

struct fetch_stage {
	struct scratch scratch;
	struct read_case load;
	struct demand *demand;
	struct fetch_desk *desk;
	struct fetch_source source; /* the demand's own */
	struct reader *reader;
	struct gate brought;  /* a wish has reached its source */
	struct gate at_trunk; /* a read of the trunk waits */
};

extern struct fetch_stage fetching;

/* skip: slices that are filled already, or NULL. */
void fetch_stage_open(const bool *skip);
void fetch_stage_start_reader(uint32_t threads);
/* Reads of the trunk's first tensor that begin below this offset in the file may go on; none at
 * first.
 */
void fetch_stage_let_trunk(uint64_t until);
#define TRUNK_ALL UINT64_MAX
void fetch_stage_close(void);

struct asker {
	uint32_t layer, experts[3], n;
	Hearth__FetchReply *reply;
	pthread_t thread;
};

/* In a thread, until asker_expect, which wants the experts in place, or asker_join. */
void asker_start(struct asker *asker);
void asker_expect(struct asker *asker);
void asker_join(struct asker *asker); /* gives reply */

Hearth__FetchReply *fetch_ask(uint32_t layer, const uint32_t *experts, uint32_t n);
Hearth__FetchReply *fetch_ask_bytes(const uint8_t *bytes, size_t n);

/* The bytes at the places that the reply names are the file's.  Both free the reply. */
void fetch_expect_in_place(Hearth__FetchReply *reply, uint32_t layer, const uint32_t *experts,
			   uint32_t n);
void fetch_expect_refused(Hearth__FetchReply *reply, int code, const char *part);

#endif
