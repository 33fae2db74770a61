#include "loader/outside.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/clock.h"
#include "loader/outside_plan.h"
#include "loader/outside_read.h"

struct outside {
	struct outside_config config;
	struct fetch fetches[2]; /* buffered, direct */
	bool opened[2];
	pthread_t *threads;
	uint32_t n_threads;
	pthread_mutex_t lock; /* for all below but the figures */
	pthread_cond_t work, idle;
	bool quit;
	bool direct;
	struct fetch_wish *first, *last; /* that wait for their turn */
	struct fetch_wish *current;
	struct outside_plan plan; /* of the current one, as the next three */
	uint64_t next, left;      /* requests: not begun, not done */
	int rc;
	struct error err;
	int ended;
	struct error why;
	pthread_mutex_t count; /* for the figures; inside of all others */
	struct outside_figures figures;
};

static void
add_figures(struct outside *outside, const struct outside_figures *more)
{
	struct outside_figures *figures = &outside->figures;

	pthread_mutex_lock(&outside->count);
	figures->requests += more->requests;
	figures->experts += more->experts;
	figures->hits += more->hits;
	figures->windows += more->windows;
	figures->reads += more->reads;
	figures->bytes += more->bytes;
	figures->wait_ns += more->wait_ns;
	if (figures->first_ns == 0)
		figures->first_ns = more->first_ns;
	pthread_mutex_unlock(&outside->count);
}

/* -- a wish; all with the lock held -- */

static void
begin_wish(struct outside *outside)
{
	struct outside_plan *plan = &outside->plan;

	outside->current = outside->first;
	outside->first = outside->first->next;
	if (!outside->first)
		outside->last = NULL;
	outside->rc = outside_plan_wish(plan, outside->current, &outside->err);
	outside->next = 0;
	outside->left = plan->n_requests;
	add_figures(outside, &(struct outside_figures){ .experts = plan->fresh,
							.hits = plan->kept,
							.windows = plan->n_windows });
	piece_queue_demand(outside->config.queue, plan->wanted, plan->n_wanted);
	pthread_cond_broadcast(&outside->work);
}

/* False: it must wait. */
static bool
end_wish(struct outside *outside)
{
	struct outside_plan *plan = &outside->plan;
	struct fetch_wish *wish = outside->current;

	if (outside->left != 0)
		return false;
	if (outside->rc == 0 &&
	    !piece_queue_all_done(outside->config.queue, plan->wanted, plan->n_wanted)) {
		if (outside->ended == 0)
			return false;
		outside->rc = outside->ended;
		outside->err = outside->why;
	}
	outside->current = NULL;
	add_figures(outside, &(struct outside_figures){ .wait_ns = clock_ns() - wish->begun_ns });
	if (outside->rc < 0)
		fetch_wish_fail(wish, outside->rc, &outside->err);
	else
		fetch_wish_done(wish, plan->places);
	pthread_cond_broadcast(&outside->idle);
	return true;
}

static void
go_on(struct outside *outside)
{
	while (outside->current ? end_wish(outside) : outside->first != NULL)
		if (!outside->current && outside->first)
			begin_wish(outside);
}

static int
bring(void *arg, struct fetch_wish *wish, struct error *err)
{
	struct outside *outside = arg;
	int rc;

	pthread_mutex_lock(&outside->lock);
	rc = outside->ended;
	if (rc < 0) {
		*err = outside->why;
	} else {
		add_figures(outside,
			    &(struct outside_figures){ .requests = 1, .first_ns = wish->begun_ns });
		wish->next = NULL;
		if (outside->last)
			outside->last->next = wish;
		else
			outside->first = wish;
		outside->last = wish;
		go_on(outside);
	}
	pthread_mutex_unlock(&outside->lock);
	return rc;
}

void
outside_look(void *arg)
{
	struct outside *outside = arg;

	pthread_mutex_lock(&outside->lock);
	go_on(outside);
	pthread_mutex_unlock(&outside->lock);
}

static void *
outside_thread(void *arg)
{
	struct outside *outside = arg;
	struct outside_plan *plan = &outside->plan;
	struct bounce bounce = { 0 };
	struct error err;

	pthread_mutex_lock(&outside->lock);
	while (!outside->quit) {
		struct fetch *fetch = &outside->fetches[outside->direct];
		struct batch_request request;
		int rc;

		if (!outside->current || outside->next == plan->n_requests) {
			pthread_cond_wait(&outside->work, &outside->lock);
			continue;
		}
		request = plan->requests[outside->next++];
		pthread_mutex_unlock(&outside->lock);
		rc = outside_read(&outside->config, fetch, &request, &plan->windows[request.first],
				  &bounce, &err);
		add_figures(outside,
			    &(struct outside_figures){ .reads = 1, .bytes = request.bytes });
		pthread_mutex_lock(&outside->lock);
		if (rc < 0 && outside->rc == 0) {
			outside->rc = rc;
			outside->err = err;
			outside_plan_forget(plan);
		}
		outside->left--;
		go_on(outside);
	}
	pthread_mutex_unlock(&outside->lock);
	bounce_close(&bounce);
	return NULL;
}

/* -- its life -- */

static int
open_fetch(struct outside *outside, bool direct, struct error *err)
{
	const struct outside_config *config = &outside->config;
	int rc = 0;

	if (!outside->opened[direct])
		rc = fetch_open(&outside->fetches[direct], config->io, config->files,
				config->placement, config->arena, direct, &config->fallback, err);
	if (rc == 0)
		outside->opened[direct] = true;
	return rc;
}

static int
start_threads(struct outside *outside)
{
	int rc = 0;

	while (outside->n_threads < outside->config.threads && rc == 0) {
		rc = -pthread_create(&outside->threads[outside->n_threads], NULL, outside_thread,
				     outside);
		outside->n_threads += rc == 0;
	}
	return outside->n_threads ? 0 : rc; /* fewer are slower, and as good */
}

int
outside_open(struct outside **ret, const struct outside_config *config, struct error *err)
{
	struct outside *outside = calloc(1, sizeof(*outside));
	int rc;

	if (!outside)
		return error_sys(err, -ENOMEM, "outside");
	outside->config = *config;
	outside->direct = config->direct;
	pthread_mutex_init(&outside->lock, NULL);
	pthread_mutex_init(&outside->count, NULL);
	pthread_cond_init(&outside->work, NULL);
	pthread_cond_init(&outside->idle, NULL);
	outside->threads = calloc(config->threads + 1ull, sizeof(*outside->threads));
	rc = outside->threads ? 0 : error_sys(err, -ENOMEM, "outside");
	if (rc == 0)
		rc = outside_plan_open(&outside->plan, config->files, config->placement,
				       config->resident, config->pieces, err);
	if (rc == 0)
		rc = open_fetch(outside, config->direct, err);
	if (rc == 0) {
		rc = start_threads(outside);
		if (rc < 0)
			error_sys(err, rc, "%" PRIu32 " threads", config->threads);
	}
	if (rc < 0)
		outside_close(outside);
	else
		*ret = outside;
	return rc;
}

struct fetch_source
outside_source(struct outside *outside)
{
	return (struct fetch_source){ .arg = outside,
				      .n_layers = outside->config.resident->n_layers,
				      .n_experts = outside->config.resident->n_experts,
				      .bring = bring };
}

int
outside_switch(struct outside *outside, bool direct, struct error *err)
{
	int rc;

	pthread_mutex_lock(&outside->lock);
	rc = open_fetch(outside, direct, err);
	if (rc == 0)
		outside->direct = direct;
	pthread_mutex_unlock(&outside->lock);
	return rc;
}

void
outside_figures(struct outside *outside, struct outside_figures *ret)
{
	pthread_mutex_lock(&outside->count);
	*ret = outside->figures;
	pthread_mutex_unlock(&outside->count);
}

/* Of the current wish, what has not begun does not begin any more. */
static void
cancel_reads(struct outside *outside)
{
	struct outside_plan *plan = &outside->plan;
	uint64_t n = plan->n_requests - outside->next;

	if (!outside->current || n == 0)
		return;
	outside->left -= n;
	outside->next = plan->n_requests;
	if (outside->rc == 0) {
		outside->rc = outside->ended;
		outside->err = outside->why;
		outside_plan_forget(plan);
	}
}

void
outside_end(struct outside *outside, int rc, const struct error *why)
{
	struct fetch_wish *next;

	pthread_mutex_lock(&outside->lock);
	if (outside->ended == 0) {
		outside->ended = rc;
		outside->why = *why;
	}
	for (struct fetch_wish *wish = outside->first; wish; wish = next) {
		next = wish->next;
		fetch_wish_fail(wish, outside->ended, &outside->why);
	}
	outside->first = outside->last = NULL;
	cancel_reads(outside);
	go_on(outside);
	while (outside->current)
		pthread_cond_wait(&outside->idle, &outside->lock);
	pthread_mutex_unlock(&outside->lock);
}

void
outside_close(struct outside *outside)
{
	if (!outside)
		return;
	pthread_mutex_lock(&outside->lock);
	outside->quit = true;
	pthread_cond_broadcast(&outside->work);
	pthread_mutex_unlock(&outside->lock);
	for (uint32_t i = 0; i < outside->n_threads; i++)
		pthread_join(outside->threads[i], NULL);
	for (int i = 0; i < 2; i++)
		if (outside->opened[i])
			fetch_close(&outside->fetches[i]);
	pthread_cond_destroy(&outside->work);
	pthread_cond_destroy(&outside->idle);
	pthread_mutex_destroy(&outside->lock);
	pthread_mutex_destroy(&outside->count);
	outside_plan_close(&outside->plan);
	free(outside->threads);
	free(outside);
}
