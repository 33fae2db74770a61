#include "scheduler/interrupt.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "scheduler/hearth.h"

struct interrupt {
	void (*fn)(void *arg);
	void *arg;
	sigset_t signals;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool came, closing; /* under lock */
};

/* SIGUSR1 from interrupt_close ends it. */
static void *
interrupt_wait(void *arg)
{
	struct interrupt *interrupt = arg;
	int number;

	for (;;) {
		bool first, closing;

		if (sigwait(&interrupt->signals, &number) != 0)
			continue;
		pthread_mutex_lock(&interrupt->lock);
		closing = interrupt->closing;
		first = !interrupt->came;
		if (!closing)
			interrupt->came = true;
		pthread_cond_broadcast(&interrupt->wake);
		pthread_mutex_unlock(&interrupt->lock);
		if (closing)
			return NULL;
		if (!first)
			_exit(HEARTH_INTERRUPTED);
		interrupt->fn(interrupt->arg);
	}
}

int
interrupt_open(struct interrupt **ret, void (*fn)(void *arg), void *arg, struct error *err)
{
	struct interrupt *interrupt = calloc(1, sizeof(*interrupt));
	pthread_condattr_t attributes;
	int code;

	if (!interrupt)
		return error_sys(err, -ENOMEM, "signals");
	interrupt->fn = fn;
	interrupt->arg = arg;
	pthread_mutex_init(&interrupt->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&interrupt->wake, &attributes);
	pthread_condattr_destroy(&attributes);
	sigemptyset(&interrupt->signals);
	sigaddset(&interrupt->signals, SIGINT);
	sigaddset(&interrupt->signals, SIGTERM);
	sigaddset(&interrupt->signals, SIGHUP);
	sigaddset(&interrupt->signals, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &interrupt->signals, NULL);
	code = pthread_create(&interrupt->thread, NULL, interrupt_wait, interrupt);
	if (code) {
		pthread_cond_destroy(&interrupt->wake);
		pthread_mutex_destroy(&interrupt->lock);
		free(interrupt);
		return error_sys(err, -code, "a thread for signals");
	}
	*ret = interrupt;
	return 0;
}

bool
interrupt_came(struct interrupt *interrupt)
{
	bool came;

	pthread_mutex_lock(&interrupt->lock);
	came = interrupt->came;
	pthread_mutex_unlock(&interrupt->lock);
	return came;
}

bool
interrupt_pause(struct interrupt *interrupt, uint64_t until_ns)
{
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_SECOND),
				  .tv_nsec = (long)(until_ns % NS_PER_SECOND) };
	int code = 0;
	bool came;

	pthread_mutex_lock(&interrupt->lock);
	while (!interrupt->came && code != ETIMEDOUT)
		code = pthread_cond_timedwait(&interrupt->wake, &interrupt->lock, &until);
	came = interrupt->came;
	pthread_mutex_unlock(&interrupt->lock);
	return !came;
}

void
interrupt_close(struct interrupt *interrupt)
{
	if (!interrupt)
		return;
	pthread_mutex_lock(&interrupt->lock);
	interrupt->closing = true;
	pthread_mutex_unlock(&interrupt->lock);
	pthread_kill(interrupt->thread, SIGUSR1);
	pthread_join(interrupt->thread, NULL);
	pthread_cond_destroy(&interrupt->wake);
	pthread_mutex_destroy(&interrupt->lock);
	free(interrupt);
}
