/* A worker on the scheduler's `work` that does as the test says.  Every wait has a limit after
 * which the test fails. */
#ifndef HEARTH_TESTS_FAKE_WORKER_H
#define HEARTH_TESTS_FAKE_WORKER_H

#include <pthread.h>
#include <stdint.h>

#include "common/endpoint.h"
#include "proto/work.pb-c.h"

#define FAKE_WORKER_INBOX 256u

struct fake_worker {
	struct link *link;
	pthread_mutex_t lock;
	pthread_cond_t came;
	Hearth__ToWorker *inbox[FAKE_WORKER_INBOX];
	uint32_t head, n;
	uint32_t ups;
	uint32_t context, vocabulary; /* what it says in its Hello */
};

void fake_worker_open(struct fake_worker *worker, const char *dir, uint32_t context,
		      uint32_t vocabulary); /* says Hello */
void fake_worker_close(struct fake_worker *worker);
Hearth__ToWorker *fake_worker_next(struct fake_worker *worker); /* the caller frees it */
/* The next message is this request with so many ids in all. */
void fake_worker_assert_asked(struct fake_worker *worker, uint64_t request, uint32_t n_ids);
void fake_worker_token(struct fake_worker *worker, uint64_t request, uint32_t index, uint32_t id);
void fake_worker_send(struct fake_worker *worker, const Hearth__FromWorker *message);
void fake_worker_finish(struct fake_worker *worker, uint64_t request, const char *finish,
			uint32_t tokens);

#endif
