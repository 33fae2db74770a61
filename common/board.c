#include "common/board.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/endpoint.h"
#include "common/utf8.h"

#define HEARTBEAT_NS NS_PER_SECOND
#define STATE_SOCKET_BYTES 64

/* The state is edited in place; what others get is its packed copy, so that a question is answered
 * while the state is being changed.  Strings that board_text set are freed with the state:
 * protobuf-c frees every string that is not its shared empty one. */
struct board {
	const char *stage;
	pthread_mutex_t edit; /* for state; held from board_edit to board_publish */
	Hearth__State *state;
	void (*refresh)(void *arg, Hearth__State *state); /* or NULL; under edit, as its arg */
	void *refresh_arg;
	pthread_mutex_t lock; /* for packed; taken after edit */
	uint8_t *packed;
	size_t n, room;
	atomic_uint_fast64_t progress_ns;
	struct server *server;
	struct publisher *publisher;
	pthread_t heart;
	pthread_cond_t stop;
	bool stopping; /* under lock */
	bool beating;
};

/* With the edit lock held: packs the state anew; false when there is no memory for it. */
static bool
board_pack(struct board *board)
{
	Hearth__State *state = board->state;
	uint8_t *grown;
	size_t n;

	state->sent_ns = clock_ns();
	state->progress_ns = atomic_load(&board->progress_ns);
	n = hearth__state__get_packed_size(state);
	pthread_mutex_lock(&board->lock);
	if (n > board->room) {
		grown = realloc(board->packed, 2 * n);
		if (!grown) {
			pthread_mutex_unlock(&board->lock);
			return false;
		}
		board->packed = grown;
		board->room = 2 * n;
	}
	board->n = hearth__state__pack(state, board->packed);
	pthread_mutex_unlock(&board->lock);
	return true;
}

static void
board_send(struct board *board)
{
	pthread_mutex_lock(&board->lock);
	if (board->publisher)
		publisher_send(board->publisher, board->packed, board->n);
	pthread_mutex_unlock(&board->lock);
}

static void
board_joined(void *arg)
{
	board_send(arg);
}

/* With the edit lock held. */
static bool
board_pack_fresh(struct board *board)
{
	if (board->refresh)
		board->refresh(board->refresh_arg, board->state);
	return board_pack(board);
}

/* While the state is being changed, the answer is what was told last. */
static void
board_answer(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	struct board *board = arg;

	(void)bytes; /* whatever is asked here, this is the answer */
	(void)n;
	if (pthread_mutex_trylock(&board->edit) == 0) {
		if (board->refresh)
			board_pack_fresh(board);
		pthread_mutex_unlock(&board->edit);
	}
	pthread_mutex_lock(&board->lock);
	call_reply(call, board->packed, board->n);
	pthread_mutex_unlock(&board->lock);
}

static void
board_beat(struct board *board)
{
	pthread_mutex_lock(&board->edit);
	if (board_pack_fresh(board))
		board_send(board);
	pthread_mutex_unlock(&board->edit);
}

static void *
board_heart(void *arg)
{
	struct board *board = arg;
	struct timespec until;
	bool stopping = false;
	uint64_t next;

	while (!stopping) {
		next = clock_ns() + HEARTBEAT_NS;
		until.tv_sec = (time_t)(next / NS_PER_SECOND);
		until.tv_nsec = (long)(next % NS_PER_SECOND);
		pthread_mutex_lock(&board->lock);
		while (!board->stopping &&
		       pthread_cond_timedwait(&board->stop, &board->lock, &until) != ETIMEDOUT)
			;
		stopping = board->stopping;
		pthread_mutex_unlock(&board->lock);
		if (!stopping)
			board_beat(board);
	}
	return NULL;
}

static Hearth__State *
board_first_state(const char *stage)
{
	Hearth__State *state = malloc(sizeof(*state));

	if (!state)
		return NULL;
	hearth__state__init(state);
	state->stage = strdup(stage);
	if (!state->stage) {
		free(state);
		return NULL;
	}
	state->phase = HEARTH__PHASE__PHASE_STARTING;
	state->pid = (uint32_t)getpid();
	state->since_ns = clock_ns();
	state->since_unix = (uint64_t)time(NULL);
	return state;
}

int
board_open(struct board **ret, const char *dir, const char *stage, struct error *err)
{
	struct board *board = calloc(1, sizeof(*board));
	char name[STATE_SOCKET_BYTES];
	pthread_condattr_t attr;
	int rc;

	if (!board)
		return error_set(err, -ENOMEM, "%s.state: no memory", stage);
	board->stage = stage;
	pthread_mutex_init(&board->edit, NULL);
	pthread_mutex_init(&board->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&board->stop, &attr);
	pthread_condattr_destroy(&attr);
	board->state = board_first_state(stage);
	atomic_store(&board->progress_ns, clock_ns());
	if (!board->state || !board_pack(board)) {
		rc = error_set(err, -ENOMEM, "%s.state: no memory", stage);
		goto fail;
	}
	snprintf(name, sizeof(name), "%s.state.pub", stage);
	pthread_mutex_lock(&board->lock); /* a follower may join before this returns */
	rc = publisher_open(&board->publisher, dir, name, board_joined, board, err);
	pthread_mutex_unlock(&board->lock);
	if (rc < 0)
		goto fail;
	snprintf(name, sizeof(name), "%s.state", stage);
	rc = server_open(&board->server, dir, name, board_answer, board, err);
	if (rc < 0)
		goto fail;
	rc = -pthread_create(&board->heart, NULL, board_heart, board);
	if (rc < 0) {
		error_sys(err, rc, "%s.state: thread", stage);
		goto fail;
	}
	pthread_setname_np(board->heart, "heartbeat");
	board->beating = true;
	*ret = board;
	return 0;
fail:
	board_close(board);
	return rc;
}

void
board_close(struct board *board)
{
	struct publisher *publisher;

	if (!board)
		return;
	pthread_mutex_lock(&board->lock);
	board->stopping = true;
	pthread_cond_broadcast(&board->stop);
	pthread_mutex_unlock(&board->lock);
	if (board->beating)
		pthread_join(board->heart, NULL);
	server_close(board->server);
	pthread_mutex_lock(&board->lock);
	publisher = board->publisher;
	board->publisher = NULL;
	pthread_mutex_unlock(&board->lock);
	publisher_close(publisher);
	if (board->state)
		hearth__state__free_unpacked(board->state, NULL);
	free(board->packed);
	pthread_cond_destroy(&board->stop);
	pthread_mutex_destroy(&board->lock);
	pthread_mutex_destroy(&board->edit);
	free(board);
}

Hearth__State *
board_edit(struct board *board)
{
	pthread_mutex_lock(&board->edit);
	return board->state;
}

void
board_publish(struct board *board)
{
	board->state->version++;
	if (board->state->phase == HEARTH__PHASE__PHASE_READY && board->state->ready_ns == 0)
		board->state->ready_ns = clock_ns();
	atomic_store(&board->progress_ns, clock_ns());
	if (board_pack(board))
		board_send(board);
	pthread_mutex_unlock(&board->edit);
}

static void
board_vtext(char **field, const char *format, va_list args)
{
	char *text;

	if (vasprintf(&text, format, args) < 0)
		return; /* the old text stays */
	utf8_clean(text);
	if (*field != (char *)protobuf_c_empty_string)
		free(*field);
	*field = text;
}

void
board_text(char **field, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	board_vtext(field, format, args);
	va_end(args);
}

void
board_phase(struct board *board, Hearth__Phase phase, const char *format, ...)
{
	Hearth__State *state = board_edit(board);
	va_list args;

	state->phase = phase;
	va_start(args, format);
	board_vtext(&state->reason, format, args);
	va_end(args);
	board_publish(board);
}

void
board_restarts(struct board *board, uint64_t n)
{
	board_edit(board)->restarts = n;
	board_publish(board);
}

void
board_progress(struct board *board)
{
	atomic_store(&board->progress_ns, clock_ns());
}

void
board_refresh(struct board *board, void (*fn)(void *arg, Hearth__State *state), void *arg)
{
	pthread_mutex_lock(&board->edit);
	board->refresh = fn;
	board->refresh_arg = arg;
	pthread_mutex_unlock(&board->edit);
}

/* The named part of a message, made on first use; NULL when there is no memory. */
#define BOARD_PART(Of, name, Name)                                \
	Hearth__##Name *board_##name(Hearth__##Of *of)            \
	{                                                         \
		if (!of->name) {                                  \
			of->name = malloc(sizeof(*of->name));     \
			if (of->name)                             \
				hearth__##name##__init(of->name); \
		}                                                 \
		return of->name;                                  \
	}

BOARD_PART(State, reader, Reader)
BOARD_PART(State, pinning, Pinning)
BOARD_PART(State, computing, Computing)
BOARD_PART(Computing, cache, Cache)
BOARD_PART(State, serving, Serving)
BOARD_PART(State, arena, Arena)
BOARD_PART(State, pages, Pages)

int
board_slices(Hearth__State *state, uint32_t n)
{
	Hearth__Slice **slices = calloc(n ? n : 1, sizeof(*slices));

	if (!slices)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		slices[i] = malloc(sizeof(**slices));
		if (!slices[i]) {
			while (i)
				free(slices[--i]);
			free(slices);
			return -ENOMEM;
		}
		hearth__slice__init(slices[i]);
	}
	for (size_t i = 0; i < state->n_slices; i++)
		hearth__slice__free_unpacked(state->slices[i], NULL);
	free(state->slices);
	state->slices = slices;
	state->n_slices = n;
	return 0;
}
