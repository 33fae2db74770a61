/* The job's fields belong to the caller and are written while no part is left to take; a thread
 * reads them only after it has taken a part of that job, so they stay as they are until it is done.
 *
 * `tickets` holds the job's number above and the parts left to take below: taking one is a
 * compare-and-swap, which fails when the job is another one by then. */
#include "worker/cpu_pool.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* About 50 microseconds of pauses: longer than the gap between two jobs of one token. */
#define SPINS 1000

struct member {
	struct cpu_pool *pool;
	pthread_t thread;
	uint32_t index;
};

struct cpu_pool {
	_Alignas(64) _Atomic uint64_t tickets;
	cpu_part_fn *fn;
	void *arg;
	uint32_t n_parts;
	uint32_t job;

	_Alignas(64) _Atomic uint32_t undone; /* parts of this job; the caller may sleep on it */
	atomic_bool caller_sleeps;

	_Alignas(64) _Atomic uint32_t bell; /* changes with each job; idle threads sleep on it */
	_Atomic uint32_t n_asleep;
	atomic_bool quit;
	uint32_t n_members; /* threads beside the caller that have been started */
	struct member *members;
};

static void
futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void
futex_wake(_Atomic uint32_t *word, int n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static void
pause_briefly(void)
{
#ifdef __x86_64__
	__builtin_ia32_pause();
#endif
}

/* Takes one part of whatever job there is, and does it.  False: none is left to take. */
static bool
do_part(struct cpu_pool *pool, uint32_t thread)
{
	/* Acquire: with a part taken, the job's fields are seen. */
	uint64_t tickets = atomic_load_explicit(&pool->tickets, memory_order_acquire);

	do {
		if ((uint32_t)tickets == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
	    &pool->tickets, &tickets, tickets - 1, memory_order_acq_rel, memory_order_acquire));
	pool->fn(pool->arg, pool->n_parts - (uint32_t)tickets, thread);
	/* What the part wrote is visible to the caller once it sees that none is undone. */
	if (atomic_fetch_sub(&pool->undone, 1) == 1 && atomic_load(&pool->caller_sleeps))
		futex_wake(&pool->undone, 1);
	return true;
}

static void *
member_run(void *arg)
{
	struct member *member = arg;
	struct cpu_pool *pool = member->pool;
	int spins = 0;

	while (!atomic_load(&pool->quit)) {
		uint32_t seen = atomic_load(&pool->bell);

		if (do_part(pool, member->index)) {
			spins = 0;
		} else if (spins++ < SPINS) {
			pause_briefly();
		} else {
			/* Either the bell is rung after this, and somebody is known to sleep, or
			 * before, and the wait ends at once. */
			atomic_fetch_add(&pool->n_asleep, 1);
			if (!atomic_load(&pool->quit))
				futex_wait(&pool->bell, seen);
			atomic_fetch_sub(&pool->n_asleep, 1);
			spins = 0;
		}
	}
	return NULL;
}

static void
ring(struct cpu_pool *pool)
{
	atomic_fetch_add(&pool->bell, 1);
	if (atomic_load(&pool->n_asleep) > 0)
		futex_wake(&pool->bell, INT32_MAX);
}

static void
wait_until_done(struct cpu_pool *pool)
{
	uint32_t undone;

	for (int spins = 0; spins < SPINS; spins++) {
		if (atomic_load(&pool->undone) == 0)
			return;
		pause_briefly();
	}
	atomic_store(&pool->caller_sleeps, true);
	while ((undone = atomic_load(&pool->undone)) > 0)
		futex_wait(&pool->undone, undone);
	atomic_store(&pool->caller_sleeps, false);
}

void
cpu_pool_run(struct cpu_pool *pool, cpu_part_fn *fn, void *arg, uint32_t n_parts)
{
	if (n_parts == 0)
		return;
	if (n_parts == 1 || pool->n_members == 0) {
		for (uint32_t i = 0; i < n_parts; i++)
			fn(arg, i, 0);
		return;
	}
	pool->fn = fn;
	pool->arg = arg;
	pool->n_parts = n_parts;
	pool->job++;
	atomic_store(&pool->undone, n_parts);
	/* Release: whoever takes a part sees the fields above. */
	atomic_store(&pool->tickets, (uint64_t)pool->job << 32 | n_parts);
	ring(pool);
	while (do_part(pool, 0))
		;
	wait_until_done(pool);
}

static int
member_start(struct cpu_pool *pool, uint32_t index)
{
	struct member *member = &pool->members[index - 1];
	char name[16];
	int rc;

	member->pool = pool;
	member->index = index;
	rc = pthread_create(&member->thread, NULL, member_run, member);
	if (rc != 0)
		return -rc;
	snprintf(name, sizeof(name), "compute %u", index);
	pthread_setname_np(member->thread, name);
	pool->n_members++;
	return 0;
}

int
cpu_pool_open(struct cpu_pool **ret, uint32_t threads, struct error *err)
{
	struct cpu_pool *pool;
	sigset_t all, before;
	int rc = 0;

	if (threads < 1 || threads > CPU_MAX_THREADS)
		return error_set(err, -EINVAL, "%u threads, want 1 to %u", threads,
				 CPU_MAX_THREADS);
	pool = aligned_alloc(64, (sizeof(*pool) + 63) / 64 * 64);
	if (!pool)
		return error_sys(err, -ENOMEM, "the pool of %u threads", threads);
	*pool = (struct cpu_pool){ 0 };
	pool->members = calloc(threads, sizeof(*pool->members));
	if (!pool->members)
		rc = -ENOMEM;
	/* Signals are for the process's main thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (uint32_t i = 1; rc == 0 && i < threads; i++)
		rc = member_start(pool, i);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc < 0) {
		error_sys(err, rc, "starting thread %u of %u", pool->n_members + 1, threads);
		cpu_pool_close(pool);
		return rc;
	}
	*ret = pool;
	return 0;
}

void
cpu_pool_close(struct cpu_pool *pool)
{
	if (!pool)
		return;
	atomic_store(&pool->quit, true);
	ring(pool);
	for (uint32_t i = 0; i < pool->n_members; i++)
		pthread_join(pool->members[i].thread, NULL);
	free(pool->members);
	free(pool);
}
