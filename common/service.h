/* A process's life: ready is one line on fd 3, stop is the end of stdin (or SIGTERM, SIGINT), and
 * everything that happens in between wakes one waiting main thread.  One per process. */
#ifndef HEARTH_COMMON_SERVICE_H
#define HEARTH_COMMON_SERVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct service {
	const char *stage;
	pthread_mutex_t lock; /* for whatever the main thread waits on */
	pthread_cond_t wake;
	uint64_t events; /* counts wakes; under lock */
	bool leaving;    /* under lock */
	int signal_fd;   /* SIGTERM, SIGINT, SIGHUP */
	int wake_fd;     /* ends the life thread */
	/* from the order to stop to SIGALRM, if the main thread does not close */
	atomic_int leave_ms;
	pthread_t life;
	bool told; /* fd 3 took the ready line and is still open */
};

/* Blocks SIGTERM, SIGINT and SIGHUP in all threads to come, ignores SIGPIPE, starts the life
 * thread.  Call before any other thread exists. */
int service_open(struct service *service, const char *stage, struct error *err);

/* "ready <stage>" on fd 3, once; nothing where there is no fd 3. */
void service_ready(struct service *service);

/* "served <stage>" on fd 3, once, after "ready": the process has been of use, so that its death
 * does not count as one of a row of failed starts.  From the thread that said ready. */
void service_served(struct service *service);

/* Something happened: wakes the main thread.  From any thread. */
void service_wake(struct service *service);

/* Waits until events differs from *seen, or leaving, or the deadline (clock_ns; 0 = none), and sets
 * *seen.  False: leaving. */
bool service_wait(struct service *service, uint64_t *seen, uint64_t deadline_ns);
bool service_leaving(struct service *service);
void service_leave(struct service *service); /* as if stdin had ended */

/* From now on the process is gone within five seconds, whatever hangs. */
void service_watchdog(void);
void service_close(struct service *service);

#endif
