/* The other end of `work` for tests of the worker: listens, asks, and reads what comes, each time
 * with a limit after which the test fails. */
#ifndef HEARTH_TESTS_FAKE_SCHEDULER_H
#define HEARTH_TESTS_FAKE_SCHEDULER_H

#include <pthread.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "proto/work.pb-c.h"

#define FAKE_INBOX 4096u

struct fake_scheduler {
	struct link *link;
	pthread_mutex_t lock;
	pthread_cond_t came;
	Hearth__FromWorker *inbox[FAKE_INBOX];
	uint32_t head, n;
	uint32_t downs;
};

void fake_scheduler_open(struct fake_scheduler *scheduler, const char *dir);
void fake_scheduler_close(struct fake_scheduler *scheduler);
/* On a socket where none listens: link is closed. */
void fake_scheduler_listen(struct fake_scheduler *scheduler, const char *dir);
/* Gone and back again, as after its death; what was not read is lost. */
void fake_scheduler_restart(struct fake_scheduler *scheduler, const char *dir);
void fake_scheduler_wait_down(struct fake_scheduler *scheduler, uint32_t downs);

void fake_scheduler_send(struct fake_scheduler *scheduler, const Hearth__Generate *generate);
void fake_scheduler_cancel(struct fake_scheduler *scheduler, uint64_t request);
void fake_scheduler_send_bytes(struct fake_scheduler *scheduler, const uint8_t *bytes, size_t n);

/* The next message; the caller frees it. */
Hearth__FromWorker *fake_scheduler_next(struct fake_scheduler *scheduler);
/* It is a Hello; gives the context it names. */
uint32_t fake_scheduler_hello(struct fake_scheduler *scheduler);
/* It is this request's token of this index; gives its id. */
uint32_t fake_scheduler_token(struct fake_scheduler *scheduler, uint64_t request, uint32_t index);
/* It is this request's end; gives the tokens it names. */
uint32_t fake_scheduler_finish(struct fake_scheduler *scheduler, uint64_t request,
			       const char *finish);

#endif
