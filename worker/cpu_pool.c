/* The job's fields belong to the caller and are written while no part is left to take; a thread
 * reads them only after it has taken a part of that job, so they stay as they are until it is done.
 *
 * Each thread has a share of the parts, and takes others' when its own is done: so most parts cost
 * nothing that is contended.  A share's `tickets` hold the job's number above and the parts left to
 * take below: taking one is a compare-and-swap, which fails when the job is another one by then. */
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

#include "worker/cpu_pause.h"

/* About 50 microseconds of pauses: longer than the gap between two jobs of one token. */
#define SPINS 1000

struct member {
	struct cpu_pool *pool;
	pthread_t thread;
	uint32_t index;
};

/* A word that threads wait for, in a line of its own. */
struct waited {
	_Alignas(64) _Atomic uint32_t word;
	_Atomic uint32_t asleep; /* threads that sleep on it */
};

struct share {
	_Alignas(64) _Atomic uint64_t tickets;
};

struct cpu_pool {
	cpu_part_fn *fn;
	void *arg;
	struct member *members;
	struct share *shares; /* (n_threads), the caller's first */
	uint32_t n_parts;
	uint32_t job;
	uint32_t n_threads; /* the caller among them */
	uint32_t n_members; /* threads beside the caller that have been started */
	atomic_bool quit;

	struct waited undone; /* parts of this job; for the caller */
	struct waited bell;   /* changes with each job; for idle threads */
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

/* Of the job in progress, the parts before it are those of earlier shares. */
static uint32_t
first_part(const struct cpu_pool *pool, uint32_t share)
{
	return (uint32_t)((uint64_t)pool->n_parts * share / pool->n_threads);
}

/* Takes one part of a share of whatever job there is.  False: none is left to take. */
static bool
take_part(struct cpu_pool *pool, uint32_t share, uint32_t *ret_part)
{
	_Atomic uint64_t *at = &pool->shares[share].tickets;
	/* Acquire: with a part taken, the job's fields are seen. */
	uint64_t tickets = atomic_load_explicit(at, memory_order_acquire);

	do {
		if ((uint32_t)tickets == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(
	    at, &tickets, tickets - 1, memory_order_acq_rel, memory_order_acquire));
	*ret_part = first_part(pool, share + 1) - (uint32_t)tickets;
	return true;
}

/* What the parts wrote is visible to the caller once it sees that none is undone. */
static void
count_done(struct cpu_pool *pool, uint32_t n)
{
	if (n > 0 && atomic_fetch_sub(&pool->undone.word, n) == n &&
	    atomic_load(&pool->undone.asleep) > 0)
		futex_wake(&pool->undone.word, 1);
}

/* Does what is left of the thread's own share, then of the others'.  False: there was nothing. */
static bool
do_parts(struct cpu_pool *pool, uint32_t thread)
{
	uint32_t n_shares = pool->n_threads, part, done = 0;
	bool any;

	for (; take_part(pool, thread, &part); done++)
		pool->fn(pool->arg, part, thread);
	count_done(pool, done);
	any = done > 0;
	for (uint32_t i = 1; i < n_shares; i++)
		while (take_part(pool, (thread + i) % n_shares, &part)) {
			pool->fn(pool->arg, part, thread);
			count_done(pool, 1);
			any = true;
		}
	return any;
}

/* Waits some time for the bell; false: it was not rung. */
static bool
await_bell(struct cpu_pool *pool, uint32_t seen)
{
	for (int spins = 0; spins < SPINS; spins++) {
		if (atomic_load(&pool->bell.word) != seen)
			return true;
		cpu_pause();
	}
	return false;
}

static void *
member_run(void *arg)
{
	struct member *member = arg;
	struct cpu_pool *pool = member->pool;

	while (!atomic_load(&pool->quit)) {
		uint32_t seen = atomic_load(&pool->bell.word);

		if (do_parts(pool, member->index) || await_bell(pool, seen))
			continue;
		/* Either the bell is rung after this, and somebody is known to sleep, or before,
		 * and the wait ends at once. */
		atomic_fetch_add(&pool->bell.asleep, 1);
		if (!atomic_load(&pool->quit))
			futex_wait(&pool->bell.word, seen);
		atomic_fetch_sub(&pool->bell.asleep, 1);
	}
	return NULL;
}

static void
ring(struct cpu_pool *pool)
{
	atomic_fetch_add(&pool->bell.word, 1);
	if (atomic_load(&pool->bell.asleep) > 0)
		futex_wake(&pool->bell.word, INT32_MAX);
}

static void
wait_until_done(struct cpu_pool *pool)
{
	uint32_t undone;

	for (int spins = 0; spins < SPINS; spins++) {
		if (atomic_load(&pool->undone.word) == 0)
			return;
		cpu_pause();
	}
	atomic_store(&pool->undone.asleep, 1);
	while ((undone = atomic_load(&pool->undone.word)) > 0)
		futex_wait(&pool->undone.word, undone);
	atomic_store(&pool->undone.asleep, 0);
}

void
cpu_pool_run(struct cpu_pool *pool, cpu_part_fn *fn, void *arg, uint32_t n_parts)
{
	if (n_parts == 0)
		return;
	if (n_parts == 1 || pool->n_threads == 1) {
		for (uint32_t i = 0; i < n_parts; i++)
			fn(arg, i, 0);
		return;
	}
	pool->fn = fn;
	pool->arg = arg;
	pool->n_parts = n_parts;
	pool->job++;
	atomic_store(&pool->undone.word, n_parts);
	/* Release: whoever takes a part sees the fields above. */
	for (uint32_t i = 0; i < pool->n_threads; i++)
		atomic_store_explicit(&pool->shares[i].tickets,
				      (uint64_t)pool->job << 32 |
					  (first_part(pool, i + 1) - first_part(pool, i)),
				      memory_order_release);
	ring(pool);
	do_parts(pool, 0);
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
	pool->n_threads = threads;
	pool->members = calloc(threads, sizeof(*pool->members));
	pool->shares = aligned_alloc(sizeof(*pool->shares), threads * sizeof(*pool->shares));
	if (!pool->members || !pool->shares)
		rc = -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < threads; i++)
		atomic_init(&pool->shares[i].tickets, 0);
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
	free(pool->shares);
	free(pool->members);
	free(pool);
}
