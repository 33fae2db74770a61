#include "loader/outside.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "loader/outside_read.h"
#include "loader/window.h"

struct outside {
	struct outside_config config;
	const struct arena_tensor **tensors; /* (layers, N_ROLES) */
	struct fetch fetches[2];             /* buffered, direct */
	bool opened[2];
	pthread_t *threads;
	uint32_t n_threads;
	pthread_mutex_t lock; /* for all below */
	pthread_cond_t work, idle;
	bool quit;
	bool direct;
	struct window window;
	struct fetch_wish *first, *last; /* that wait for their turn */
	struct fetch_wish *current;
	struct fetch_place *places;     /* (experts) of the current one, as the next three */
	struct batch_window *windows;   /* (experts * N_ROLES) */
	struct batch_request *requests; /* (experts * N_ROLES) */
	uint64_t *pieces;               /* (experts * N_ROLES) resident ones it needs */
	uint64_t n_windows, n_requests, n_pieces;
	uint64_t next, left; /* requests: not begun, not done */
	int rc;              /* of the current one */
	struct error err;
	struct outside_figures figures;
	int ended;
	struct error why;
};

static uint64_t
which_expert(const struct outside *outside, uint32_t layer, uint32_t expert)
{
	return (uint64_t)layer * outside->config.resident->n_experts + expert;
}

/* -- a wish; all with the lock held -- */

static void
add_windows(struct outside *outside, uint32_t layer, uint32_t expert, const struct fetch_place *at)
{
	for (uint32_t role = 0; role < N_ROLES; role++) {
		const struct arena_tensor *tensor = outside->tensors[layer * N_ROLES + role];

		outside->windows[outside->n_windows++] = (struct batch_window){
			.shard = tensor->shard,
			.slice = tensor->slice,
			.file_offset = placement_expert_at(tensor, expert),
			.bytes = tensor->bytes / tensor->dims[2],
			.arena_offset = at->role[role],
			.tag = which_expert(outside, layer, expert) * N_ROLES + role,
		};
	}
}

/* The place in the slot is congruent to the place in the file: direct reads need no copy. */
static void
place_in_slot(const struct outside *outside, uint32_t layer, uint32_t expert, uint32_t slot,
	      struct fetch_place *ret)
{
	const struct placement *placement = outside->config.placement;
	const struct resident *resident = outside->config.resident;

	for (uint32_t role = 0; role < N_ROLES; role++)
		ret->role[role] =
		    placement->slices[placement->n_slices - 1].offset +
		    slot * resident->slot_bytes + resident->role_at[role] +
		    placement_expert_at(outside->tensors[layer * N_ROLES + role], expert) %
			IO_BLOCK;
}

/* The current wish's places, reads and resident pieces. */
static void
spell_out(struct outside *outside)
{
	const struct fetch_wish *wish = outside->current;
	const struct arena_expert *experts = outside->config.placement->experts;
	bool fresh;

	outside->n_windows = outside->n_pieces = 0;
	window_begin(&outside->window);
	for (uint32_t i = 0; i < wish->n && outside->rc == 0; i++) {
		uint64_t which = which_expert(outside, wish->layer, wish->experts[i]);
		struct fetch_place *place = &outside->places[i];
		uint32_t slot;

		if (outside->config.resident->in[which]) {
			for (uint32_t role = 0; role < N_ROLES; role++) {
				place->role[role] = experts[which].role_offset[role];
				outside->pieces[outside->n_pieces++] =
				    pieces_find(outside->config.pieces, place->role[role]);
			}
			continue;
		}
		slot = window_take(&outside->window, (uint32_t)which, &fresh);
		if (slot == WINDOW_NONE) {
			outside->rc = error_set(&outside->err, -ENOBUFS,
						"layer %" PRIu32 ": %" PRIu32
						" experts, the window has room for %" PRIu32,
						wish->layer, wish->n, outside->window.n);
			return;
		}
		place_in_slot(outside, wish->layer, wish->experts[i], slot, place);
		if (fresh)
			add_windows(outside, wish->layer, wish->experts[i], place);
		outside->figures.experts += fresh;
		outside->figures.hits += !fresh;
	}
}

/* What was to be brought is not known to be there. */
static void
forget_reads(struct outside *outside)
{
	for (uint64_t i = 0; i < outside->n_windows; i++)
		window_forget(&outside->window, (uint32_t)(outside->windows[i].tag / N_ROLES));
}

static void
begin_wish(struct outside *outside)
{
	outside->current = outside->first;
	outside->first = outside->first->next;
	if (!outside->first)
		outside->last = NULL;
	outside->rc = 0;
	spell_out(outside);
	if (outside->rc < 0)
		forget_reads(outside);
	outside->n_requests =
	    outside->rc < 0 ? 0
			    : batch_merge(outside->windows, outside->n_windows, outside->requests);
	outside->next = 0;
	outside->left = outside->n_requests;
	outside->figures.windows += outside->n_requests ? outside->n_windows : 0;
	piece_queue_demand(outside->config.queue, outside->pieces, outside->n_pieces);
	pthread_cond_broadcast(&outside->work);
}

/* False: it must wait. */
static bool
end_wish(struct outside *outside)
{
	struct fetch_wish *wish = outside->current;

	if (outside->left != 0)
		return false;
	if (outside->rc == 0 &&
	    !piece_queue_all_done(outside->config.queue, outside->pieces, outside->n_pieces)) {
		if (outside->ended == 0)
			return false;
		outside->rc = outside->ended;
		outside->err = outside->why;
	}
	outside->current = NULL;
	outside->figures.wait_ns += clock_ns() - wish->begun_ns;
	if (outside->rc < 0)
		fetch_wish_fail(wish, outside->rc, &outside->err);
	else
		fetch_wish_done(wish, outside->places);
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
		if (outside->figures.requests++ == 0)
			outside->figures.first_ns = wish->begun_ns;
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
	struct bounce bounce = { 0 };
	struct error err;

	pthread_mutex_lock(&outside->lock);
	while (!outside->quit) {
		struct fetch *fetch = &outside->fetches[outside->direct];
		struct batch_request request;
		int rc;

		if (!outside->current || outside->next == outside->n_requests) {
			pthread_cond_wait(&outside->work, &outside->lock);
			continue;
		}
		request = outside->requests[outside->next++];
		pthread_mutex_unlock(&outside->lock);
		rc = outside_read(&outside->config, fetch, &request,
				  &outside->windows[request.first], &bounce, &err);
		pthread_mutex_lock(&outside->lock);
		outside->figures.reads++;
		outside->figures.bytes += request.bytes;
		if (rc < 0 && outside->rc == 0) {
			outside->rc = rc;
			outside->err = err;
			forget_reads(outside);
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
find_tensors(struct outside *outside, struct error *err)
{
	const struct model_files *files = outside->config.files;
	const struct resident *resident = outside->config.resident;

	for (uint64_t i = 0; i < files->n_tensors; i++) {
		enum role role;
		int layer = model_expert_layer(files->tensors[i].name, &role);

		if (layer >= 0 && (uint32_t)layer < resident->n_layers)
			outside->tensors[(uint32_t)layer * N_ROLES + role] = &files->tensors[i];
	}
	for (uint32_t i = 0; i < resident->n_layers * N_ROLES; i++)
		if (!outside->tensors[i])
			return error_set(err, -EINVAL, "layer %" PRIu32 " has no experts",
					 i / N_ROLES);
	return 0;
}

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

static int
alloc(struct outside *outside)
{
	const struct resident *resident = outside->config.resident;
	uint64_t n = (uint64_t)resident->n_experts * N_ROLES + 1;

	outside->tensors =
	    calloc((uint64_t)resident->n_layers * N_ROLES + 1, sizeof(const struct arena_tensor *));
	outside->places = calloc(resident->n_experts + 1ull, sizeof(*outside->places));
	outside->windows = calloc(n, sizeof(*outside->windows));
	outside->requests = calloc(n, sizeof(*outside->requests));
	outside->pieces = calloc(n, sizeof(*outside->pieces));
	outside->threads = calloc(outside->config.threads + 1ull, sizeof(*outside->threads));
	if (!outside->tensors || !outside->places || !outside->windows || !outside->requests ||
	    !outside->pieces || !outside->threads)
		return -ENOMEM;
	return window_open(&outside->window, (uint32_t)resident->window_slots,
			   resident->n_layers * resident->n_experts);
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
	pthread_cond_init(&outside->work, NULL);
	pthread_cond_init(&outside->idle, NULL);
	rc = alloc(outside);
	if (rc < 0)
		error_sys(err, rc, "outside");
	if (rc == 0)
		rc = find_tensors(outside, err);
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
	pthread_mutex_lock(&outside->lock);
	*ret = outside->figures;
	pthread_mutex_unlock(&outside->lock);
}

/* Of the current wish, what has not begun does not begin any more. */
static void
cancel_reads(struct outside *outside)
{
	uint64_t n = outside->n_requests - outside->next;

	if (!outside->current || n == 0)
		return;
	outside->left -= n;
	outside->next = outside->n_requests;
	if (outside->rc == 0) {
		outside->rc = outside->ended;
		outside->err = outside->why;
		forget_reads(outside);
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
	window_close(&outside->window);
	free(outside->tensors);
	free(outside->places);
	free(outside->windows);
	free(outside->requests);
	free(outside->pieces);
	free(outside->threads);
	free(outside);
}
