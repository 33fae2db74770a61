#include "loader/piece_queue.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "loader/batch.h"

enum piece_state { PIECE_FREE, PIECE_TAKEN, PIECE_DONE };

struct piece_queue {
	const struct pieces *pieces;
	bool (*may_write)(void *arg, uint32_t slice);
	void *arg;
	const uint32_t *batch; /* (pieces) or NULL: all are one */
	bool merge;
	uint64_t *order;            /* (pieces) as they are read; NULL: in the order of place */
	uint64_t *batch_left;       /* (batches) pieces that are not done */
	uint32_t n_batches, oldest; /* the first that is not done */
	pthread_mutex_t lock;       /* for all below */
	pthread_cond_t changed;
	uint8_t *state;   /* (pieces) enum piece_state */
	bool *demanded;   /* (pieces) */
	uint64_t *wanted; /* (n_wanted) demanded, and free when last looked at; in order */
	uint64_t n_wanted;
	uint64_t next;  /* of the order: all before it are not free */
	uint64_t *left; /* (slices) pieces that are not done */
	uint64_t demanded_bytes;
	uint32_t calm;
	bool stopped;
};

int
piece_queue_open(struct piece_queue **ret, const struct pieces *pieces, struct error *err)
{
	struct piece_queue *queue = calloc(1, sizeof(*queue));

	if (!queue)
		return error_sys(err, -ENOMEM, "%" PRIu64 " pieces", pieces->n);
	queue->pieces = pieces;
	pthread_mutex_init(&queue->lock, NULL);
	pthread_cond_init(&queue->changed, NULL);
	queue->state = calloc(pieces->n + 1, sizeof(*queue->state));
	queue->demanded = calloc(pieces->n + 1, sizeof(*queue->demanded));
	queue->wanted = calloc(pieces->n + 1, sizeof(*queue->wanted));
	queue->left = calloc(pieces->n_slices + 1, sizeof(*queue->left));
	if (!queue->state || !queue->demanded || !queue->wanted || !queue->left) {
		piece_queue_close(queue);
		return error_sys(err, -ENOMEM, "%" PRIu64 " pieces", pieces->n);
	}
	memcpy(queue->left, pieces->in_slice, pieces->n_slices * sizeof(*queue->left));
	*ret = queue;
	return 0;
}

void
piece_queue_close(struct piece_queue *queue)
{
	if (!queue)
		return;
	pthread_cond_destroy(&queue->changed);
	pthread_mutex_destroy(&queue->lock);
	free(queue->state);
	free(queue->demanded);
	free(queue->wanted);
	free(queue->left);
	free(queue->order);
	free(queue->batch_left);
	free(queue);
}

void
piece_queue_gate(struct piece_queue *queue, bool (*may_write)(void *arg, uint32_t slice), void *arg)
{
	queue->may_write = may_write;
	queue->arg = arg;
}

/* Those of a batch stay in the order of place.  Leaves batch_left as it will be counted down. */
static void
sort_batches(struct piece_queue *queue)
{
	uint64_t *next = queue->batch_left, at = 0;

	for (uint32_t i = 0; i < queue->n_batches; i++) {
		uint64_t n = next[i];

		next[i] = at;
		at += n;
	}
	for (uint64_t i = 0; i < queue->pieces->n; i++)
		queue->order[next[queue->batch[i]]++] = i;
	/* Now each is where the next one began. */
	for (uint32_t i = queue->n_batches; i-- > 1;)
		next[i] -= next[i - 1];
}

int
piece_queue_batches(struct piece_queue *queue, const uint32_t *batch, bool merge)
{
	uint64_t n = queue->pieces->n;

	for (uint64_t i = 0; i < n; i++)
		if (batch[i] >= queue->n_batches)
			queue->n_batches = batch[i] + 1;
	queue->order = calloc(n + 1, sizeof(*queue->order));
	queue->batch_left = calloc(queue->n_batches + 1ull, sizeof(*queue->batch_left));
	if (!queue->order || !queue->batch_left)
		return -ENOMEM;
	for (uint64_t i = 0; i < n; i++)
		queue->batch_left[batch[i]]++;
	queue->batch = batch;
	queue->merge = merge;
	sort_batches(queue);
	return 0;
}

void
piece_queue_wake(struct piece_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}

static bool
may_take(const struct piece_queue *queue, uint64_t i)
{
	return !queue->may_write || queue->may_write(queue->arg, queue->pieces->list[i].slice);
}

/* The first demanded piece that may be read; those that are taken leave the list. */
static uint64_t
find_wanted(struct piece_queue *queue)
{
	uint64_t kept = 0, found = PIECE_NONE;

	for (uint64_t i = 0; i < queue->n_wanted; i++) {
		uint64_t piece = queue->wanted[i];

		if (queue->state[piece] != PIECE_FREE)
			continue;
		if (found == PIECE_NONE && may_take(queue, piece))
			found = piece;
		else
			queue->wanted[kept++] = piece;
	}
	queue->n_wanted = kept;
	return found;
}

static uint64_t
find_next(struct piece_queue *queue)
{
	uint64_t n = queue->pieces->n, found = queue->next;

	while (queue->next < n) {
		found = queue->order ? queue->order[queue->next] : queue->next;
		if (queue->state[found] == PIECE_FREE)
			break;
		queue->next++;
	}
	if (queue->next == n || !may_take(queue, found))
		return PIECE_NONE;
	return queue->batch && queue->batch[found] > queue->oldest + 1 ? PIECE_NONE : found;
}

/* The piece `i`, of another run than the one before it, is near enough to be read with the span. */
static bool
merges(const struct piece_queue *queue, const struct span *span, uint64_t i)
{
	const struct piece *next = &queue->pieces->list[i];
	uint64_t end = next[-1].file_offset + next[-1].bytes;

	return queue->merge && !span->demanded && next->slice == span->whole.slice &&
	       next->shard == span->whole.shard && span->n_runs < SCATTER_MOST &&
	       next->file_offset >= end && next->file_offset - end < BATCH_GAP &&
	       next->file_offset + next->bytes - span->whole.file_offset <= BATCH_REQUEST;
}

/* The piece `i`, behind the span, is read with it.  A demanded one takes demanded ones only. */
static bool
extends(const struct piece_queue *queue, const struct span *span, uint64_t i)
{
	const struct piece *next = &queue->pieces->list[i];

	if (queue->state[i] != PIECE_FREE || (span->demanded ? !queue->demanded[i] : queue->calm) ||
	    (queue->batch && queue->batch[i] != queue->batch[span->first]) ||
	    next->arena_offset + next->bytes - span->whole.arena_offset > SPAN_BYTES)
		return false;
	return next->run == next[-1].run || merges(queue, span, i);
}

static void
take_span(struct piece_queue *queue, uint64_t first, struct span *ret)
{
	const struct piece *list = queue->pieces->list;
	struct span span = { .whole = list[first],
			     .first = first,
			     .n_runs = 1,
			     .demanded = queue->demanded[first] };
	uint64_t i = first;

	do {
		span.n_runs += i > first && list[i].run != list[i - 1].run;
		queue->state[i++] = PIECE_TAKEN;
		span.whole.bytes =
		    list[i - 1].arena_offset + list[i - 1].bytes - span.whole.arena_offset;
		span.whole.n_units =
		    list[i - 1].first_unit + list[i - 1].n_units - span.whole.first_unit;
	} while (i < queue->pieces->n && extends(queue, &span, i));
	span.n = i - first;
	if (span.demanded)
		queue->demanded_bytes += span.whole.bytes;
	else if (queue->calm)
		queue->calm--;
	*ret = span;
}

bool
piece_queue_take(struct piece_queue *queue, struct span *ret)
{
	uint64_t found = PIECE_NONE;

	pthread_mutex_lock(&queue->lock);
	while (!queue->stopped) {
		found = find_wanted(queue);
		if (found == PIECE_NONE)
			found = find_next(queue);
		if (found != PIECE_NONE || queue->next == queue->pieces->n)
			break;
		pthread_cond_wait(&queue->changed, &queue->lock);
	}
	if (found != PIECE_NONE)
		take_span(queue, found, ret);
	/* The others need not wait for what is not left. */
	if (queue->next == queue->pieces->n)
		pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
	return found != PIECE_NONE;
}

/* Who waits for the batch behind the next one may go on. */
static void
end_batches(struct piece_queue *queue)
{
	while (queue->oldest < queue->n_batches && queue->batch_left[queue->oldest] == 0) {
		queue->oldest++;
		pthread_cond_broadcast(&queue->changed);
	}
}

bool
piece_queue_done(struct piece_queue *queue, const struct span *span, bool *ret_filled)
{
	bool demanded = false;

	pthread_mutex_lock(&queue->lock);
	for (uint64_t i = span->first; i < span->first + span->n; i++) {
		queue->state[i] = PIECE_DONE;
		demanded |= queue->demanded[i];
		if (queue->batch)
			queue->batch_left[queue->batch[i]]--;
	}
	end_batches(queue);
	queue->left[span->whole.slice] -= span->n;
	*ret_filled = queue->left[span->whole.slice] == 0;
	pthread_mutex_unlock(&queue->lock);
	return demanded;
}

void
piece_queue_demand(struct piece_queue *queue, const uint64_t *pieces, uint64_t n)
{
	pthread_mutex_lock(&queue->lock);
	for (uint64_t i = 0; i < n; i++) {
		if (pieces[i] == PIECE_NONE || queue->demanded[pieces[i]])
			continue;
		queue->demanded[pieces[i]] = true;
		if (queue->state[pieces[i]] != PIECE_FREE)
			continue;
		queue->wanted[queue->n_wanted++] = pieces[i];
		queue->calm = QUEUE_CALM;
	}
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}

bool
piece_queue_all_done(struct piece_queue *queue, const uint64_t *pieces, uint64_t n)
{
	bool done = true;

	pthread_mutex_lock(&queue->lock);
	for (uint64_t i = 0; i < n; i++)
		done &= pieces[i] == PIECE_NONE || queue->state[pieces[i]] == PIECE_DONE;
	pthread_mutex_unlock(&queue->lock);
	return done;
}

uint64_t
piece_queue_demanded_bytes(struct piece_queue *queue)
{
	uint64_t bytes;

	pthread_mutex_lock(&queue->lock);
	bytes = queue->demanded_bytes;
	pthread_mutex_unlock(&queue->lock);
	return bytes;
}

void
piece_queue_stop(struct piece_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->stopped = true;
	pthread_cond_broadcast(&queue->changed);
	pthread_mutex_unlock(&queue->lock);
}
