/* An order is done in two rounds of parts: groups of rows of gate and up, then rows of down.  Parts
 * are taken a few at a time, from words that hold the order's sequence, as much as fits, above a
 * count: so a thread that comes late, with an order that others have long done, takes nothing.
 * Whoever holds a part that is not counted as done knows that order and act stay as they are. */
#include "worker/cpu_share.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/cpu_pause.h"
#include "worker/cpu_pool.h"
#include "worker/cpu_share_work.h"
#include "worker/share_probe.h"

#define SPINS 20000 /* about a millisecond of pauses: longer than from token to token */

#define COUNT_BITS 20 /* parts; the rest lasts for years without an order */
#define COUNT_MASK ((1u << COUNT_BITS) - 1)

/* In lines of their own. */
struct counter {
	_Alignas(SHARE_LINE) _Atomic uint64_t word;
};

struct member {
	struct cpu_share *share;
	pthread_t thread;
	uint64_t seen; /* sequence of the last order */
	struct share_room room;
};

struct cpu_share {
	struct share_work work;
	struct counter in_taken, in_done, out_taken, out_done, experts;
	_Atomic uint32_t awake;
	_Atomic uint32_t asleep; /* threads that sleep on `awake` */
	atomic_bool quit;
	struct member *members;
	uint32_t n_members; /* that have been started */
};

#ifdef CUDA_PROBE
struct share_probe share_probes[SHARE_PROBES];
#endif

static uint64_t
whole_lines(uint64_t bytes)
{
	return (bytes + SHARE_LINE - 1) / SHARE_LINE * SHARE_LINE;
}

static uint32_t
most_experts(const struct model *model)
{
	return model->top_k < SHARE_MAX ? model->top_k : SHARE_MAX;
}

uint64_t
cpu_share_order_bytes(const struct model *model)
{
	return whole_lines(SHARE_ORDER_BYTES +
			   lanes_blocks(model->hidden) * sizeof(struct lanes_fixed));
}

uint64_t
cpu_share_answer_bytes(const struct model *model)
{
	return whole_lines(SHARE_ANSWER_BYTES +
			   (uint64_t)most_experts(model) * model->hidden * sizeof(float));
}

bool
cpu_share_layer_possible(const struct model *model, uint32_t layer)
{
	for (enum role role = 0; role < N_ROLES; role++)
		if (!lanes_type_known(model->layers[layer].role[role].type))
			return false;
	return lanes_kernels_best() != NULL;
}

bool
cpu_share_possible(const struct model *model)
{
	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		if (cpu_share_layer_possible(model, layer))
			return true;
	return false;
}

uint32_t
cpu_share_threads(const struct cpu_share *share)
{
	return share->work.config.threads;
}

uint64_t
cpu_share_experts(const struct cpu_share *share)
{
	return atomic_load_explicit(&share->experts.word, memory_order_relaxed);
}

/* -- parts -- */

/* The word of an order of which nothing has been counted. */
static uint64_t
first_word(uint64_t sequence)
{
	return sequence << COUNT_BITS;
}

/* Whether the word is of a later order. */
static bool
is_past(uint64_t word, uint64_t first)
{
	return (int64_t)((word & ~(uint64_t)COUNT_MASK) - first) > 0;
}

static uint32_t
count_of(uint64_t word, uint64_t first)
{
	return word - first <= COUNT_MASK ? (uint32_t)(word - first) : 0;
}

/* Parts of order `sequence`, of `n`, from *ret on, that nobody has taken: many while many are left,
 * for all threads take them from this line.  0: none is left, or it is past. */
static uint32_t
take_parts(struct counter *counter, uint64_t sequence, uint32_t n, uint32_t threads, uint32_t *ret)
{
	uint64_t now = atomic_load_explicit(&counter->word, memory_order_acquire);
	uint64_t first = first_word(sequence);
	uint32_t count, taken;

	do {
		count = count_of(now, first);
		if (is_past(now, first) || count >= n)
			return 0;
		taken = (n - count) / (2 * threads);
		if (taken == 0)
			taken = 1;
	} while (!atomic_compare_exchange_weak_explicit(&counter->word, &now, first + count + taken,
							memory_order_acq_rel,
							memory_order_acquire));
	*ret = count;
	return taken;
}

/* So many more parts of an order, which the caller holds, are done; gives how many are.  What the
 * others wrote before is seen. */
static uint32_t
count_done(struct counter *counter, uint64_t sequence, uint32_t parts)
{
	uint64_t now = atomic_load_explicit(&counter->word, memory_order_acquire);
	uint64_t first = first_word(sequence);
	uint32_t count;

	do {
		count = count_of(now, first) + parts;
	} while (!atomic_compare_exchange_weak_explicit(
	    &counter->word, &now, first + count, memory_order_acq_rel, memory_order_acquire));
	return count;
}

/* Waits until `n` have been; false: the order is past. */
static bool
await_count(struct counter *counter, uint64_t sequence, uint32_t n)
{
	const uint64_t first = first_word(sequence);

	for (;;) {
		uint64_t now = atomic_load_explicit(&counter->word, memory_order_acquire);

		if (now == first + n)
			return true;
		if (is_past(now, first))
			return false;
		cpu_pause();
	}
}

/* -- orders -- */

/* False: no order that is not answered yet.  The next one is written once this one is answered: so
 * what was read before is this one's. */
static bool
look(const struct cpu_share *share, uint64_t *seen, struct share_job *ret)
{
	const struct share_order *order = share->work.config.order;

	ret->sequence = __atomic_load_n(&order->sequence, __ATOMIC_ACQUIRE);
	if (ret->sequence == *seen)
		return false;
	*seen = ret->sequence;
	ret->layer = __atomic_load_n(&order->layer, __ATOMIC_ACQUIRE);
	ret->n = __atomic_load_n(&order->n, __ATOMIC_ACQUIRE);
	if (__atomic_load_n(&share->work.config.answer->sequence, __ATOMIC_ACQUIRE) ==
	    ret->sequence)
		return false;
	share_job_cut(&share->work, ret);
	return true;
}

typedef void (*part_fn)(const struct share_work *work, struct share_room *room,
			const struct share_job *job, uint32_t part);

/* Whether it did the last of n parts that was left. */
static bool
member_parts(struct member *member, const struct share_job *job, part_fn part_do, uint32_t n,
	     struct counter *taken, struct counter *done)
{
	const struct share_work *work = &member->share->work;
	uint32_t part, some, mine = 0;

	while ((some = take_parts(taken, job->sequence, n, work->config.threads, &part)) > 0) {
		SHARE_PROBE(part == 0 && part_do == share_in_part, job, seen);
		for (; some > 0; some--, mine++)
			part_do(work, &member->room, job, part++);
	}
	return mine > 0 && count_done(done, job->sequence, mine) == n;
}

static void
member_work(struct member *member, const struct share_job *job)
{
	struct cpu_share *share = member->share;
	uint32_t in_parts = job->n * job->in_parts, out_parts = job->n * job->out_parts;

	if (member_parts(member, job, share_in_part, in_parts, &share->in_taken, &share->in_done))
		SHARE_PROBE(true, job, acts);
	if (!await_count(&share->in_done, job->sequence, in_parts))
		return;
	if (!member_parts(member, job, share_out_part, out_parts, &share->out_taken,
			  &share->out_done))
		return;
	atomic_fetch_add_explicit(&share->experts.word, job->n, memory_order_relaxed);
	SHARE_PROBE(true, job, answered);
	/* Once it is seen, so is what all threads wrote. */
	__atomic_store_n(&share->work.config.answer->sequence, job->sequence, __ATOMIC_RELEASE);
}

static void
futex(_Atomic uint32_t *word, int what, uint32_t value)
{
	syscall(SYS_futex, word, what, value, NULL, NULL, 0);
}

/* Either it is woken after this, and somebody is known to sleep, or before, and this ends at once.
 */
static void
member_sleep(struct cpu_share *share)
{
	atomic_fetch_add(&share->asleep, 1);
	if (!atomic_load(&share->awake))
		futex(&share->awake, FUTEX_WAIT_PRIVATE, 0);
	atomic_fetch_sub(&share->asleep, 1);
}

static void *
member_run(void *arg)
{
	struct member *member = arg;
	struct cpu_share *share = member->share;
	uint32_t spins = 0;
	struct share_job job;

	while (!atomic_load(&share->quit)) {
		if (look(share, &member->seen, &job)) {
			member_work(member, &job);
			spins = 0;
		} else if (spins < SPINS) {
			spins++;
			cpu_pause();
		} else if (atomic_load(&share->awake)) {
			sched_yield();
		} else {
			member_sleep(share);
		}
	}
	return NULL;
}

void
cpu_share_wake(struct cpu_share *share)
{
	atomic_store(&share->awake, 1);
	if (atomic_load(&share->asleep) > 0)
		futex(&share->awake, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

void
cpu_share_settle(const struct cpu_share *share)
{
	const struct cpu_share_config *config = &share->work.config;
	uint64_t last = __atomic_load_n(&config->order->sequence, __ATOMIC_ACQUIRE);

	while (__atomic_load_n(&config->answer->sequence, __ATOMIC_ACQUIRE) != last)
		cpu_pause();
}

void
cpu_share_rest(struct cpu_share *share)
{
	atomic_store(&share->awake, 0);
}

/* -- life -- */

static int
member_start(struct cpu_share *share, struct member *member)
{
	char name[16];
	int rc = share_room_open(&member->room, &share->work);

	if (rc < 0)
		return rc;
	member->share = share;
	rc = pthread_create(&member->thread, NULL, member_run, member);
	if (rc != 0) {
		share_room_close(&member->room);
		return -rc;
	}
	snprintf(name, sizeof(name), "share %u", share->n_members);
	pthread_setname_np(member->thread, name);
	share->n_members++;
	return 0;
}

static int
members_start(struct cpu_share *share)
{
	uint32_t threads = share->work.config.threads;
	sigset_t all, before;
	int rc = 0;

	share->members = calloc(threads, sizeof(*share->members));
	if (!share->members)
		return -ENOMEM;
	/* Signals are for the process's main thread. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (uint32_t i = 0; rc == 0 && i < threads; i++)
		rc = member_start(share, &share->members[i]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

int
cpu_share_open(struct cpu_share **ret, const struct cpu_share_config *config, struct error *err)
{
	struct cpu_share *share;
	int rc;

	if (config->threads < 1 || config->threads > CPU_MAX_THREADS)
		return error_set(err, -EINVAL, "%u threads, want 1 to %u", config->threads,
				 CPU_MAX_THREADS);
	if (!cpu_share_possible(config->model))
		return error_set(err, -ENOTSUP,
				 "the model's experts are of types that a CPU "
				 "cannot compute as the GPU does");
	share = aligned_alloc(SHARE_LINE, whole_lines(sizeof(*share)));
	if (!share)
		return error_sys(err, -ENOMEM, "opening the CPU's share");
	*share = (struct cpu_share){ 0 };
	rc = share_work_open(&share->work, config);
	if (rc == 0)
		rc = members_start(share);
	if (rc < 0) {
		error_sys(err, rc, "starting %u threads for the CPU's share", config->threads);
		cpu_share_close(share);
		return rc;
	}
	*ret = share;
	return 0;
}

void
cpu_share_close(struct cpu_share *share)
{
	if (!share)
		return;
	atomic_store(&share->quit, true);
	cpu_share_wake(share);
	for (uint32_t i = 0; i < share->n_members; i++) {
		pthread_join(share->members[i].thread, NULL);
		share_room_close(&share->members[i].room);
	}
	free(share->members);
	share_work_close(&share->work);
	free(share);
}
