#include "loader/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "loader/fetch.h"

struct reader {
	struct reader_config config;
	struct fetch fetch;
	pthread_t *threads;
	uint32_t n_threads; /* started */
	bool joined;
	pthread_mutex_t lock; /* the rest, and the calls of events */
	uint64_t bytes;
	uint32_t running;
	bool *begun; /* (slices) */
	int rc;
	struct error err;
};

static void
reader_fail(struct reader *reader, int rc, const struct error *err)
{
	pthread_mutex_lock(&reader->lock);
	if (reader->rc == 0) {
		reader->rc = rc;
		reader->err = *err;
	}
	pthread_mutex_unlock(&reader->lock);
	piece_queue_stop(reader->config.queue);
}

static void
begin_span(struct reader *reader, const struct span *span)
{
	const struct reader_events *events = &reader->config.events;
	uint32_t slice = span->whole.slice;

	pthread_mutex_lock(&reader->lock);
	if (!reader->begun[slice]) {
		reader->begun[slice] = true;
		if (events->begun)
			events->begun(events->arg, slice);
	}
	pthread_mutex_unlock(&reader->lock);
}

/* A pack knows the hash of every unit. */
static int
check_unit(const struct reader_config *config, uint64_t unit, struct error *err)
{
	const uint64_t *wanted = config->wanted;
	const struct arena_tensor *tensor =
	    &config->files->tensors[config->plan->units[unit].tensor];

	if (!wanted || config->plan->units[unit].hash == wanted[unit])
		return 0;
	return error_set(err, -EBADMSG,
			 "%s: %s: %" PRIu64 " bytes of it have the checksum %016" PRIx64
			 ", want %016" PRIx64 ": damaged",
			 config->files->shards[tensor->shard].path, tensor->name,
			 config->plan->units[unit].bytes, config->plan->units[unit].hash,
			 wanted[unit]);
}

/* Hashes first, then says that the pieces are done: who finds a slice filled sees all its hashes.
 */
static int
end_span(struct reader *reader, const struct span *span, struct error *err)
{
	const struct reader_config *config = &reader->config;
	const struct reader_events *events = &config->events;
	struct checksum_unit *units = config->plan->units;
	uint32_t slice = span->whole.slice;
	bool filled, demanded;

	for (uint64_t i = 0; i < span->whole.n_units; i++) {
		uint64_t unit = config->pieces->units[span->whole.first_unit + i];

		units[unit].hash = checksum_unit_hash(&units[unit], config->arena);
		if (check_unit(config, unit, err) < 0)
			return -EBADMSG;
	}
	demanded = piece_queue_done(config->queue, span, &filled);
	pthread_mutex_lock(&reader->lock);
	for (uint64_t i = 0; i < span->n; i++)
		reader->bytes += config->pieces->list[span->first + i].bytes;
	if (demanded && events->demanded)
		events->demanded(events->arg);
	if (events->moved)
		events->moved(events->arg, reader->bytes);
	if (filled && events->filled)
		events->filled(events->arg, slice, checksum_slice(config->plan, slice));
	pthread_mutex_unlock(&reader->lock);
	return 0;
}

static void *
reader_thread(void *arg)
{
	struct reader *reader = arg;
	const struct reader_events *events = &reader->config.events;
	struct bounce bounce = { 0 };
	struct error err;
	struct span span;

	while (piece_queue_take(reader->config.queue, &span)) {
		int rc;

		begin_span(reader, &span);
		rc = fetch_pieces(&reader->fetch, &reader->config.pieces->list[span.first], span.n,
				  &bounce, &err);
		if (rc == 0)
			rc = end_span(reader, &span, &err);
		if (rc < 0) {
			reader_fail(reader, rc, &err);
			break;
		}
	}
	bounce_close(&bounce);
	pthread_mutex_lock(&reader->lock);
	if (--reader->running == 0 && events->ended)
		events->ended(events->arg);
	pthread_mutex_unlock(&reader->lock);
	return NULL;
}

/* Threads that are started wait at the lock, so that none ends before all are counted. */
static int
start_threads(struct reader *reader)
{
	int rc = 0;

	pthread_mutex_lock(&reader->lock);
	for (uint32_t i = 0; i < reader->config.threads && rc == 0; i++) {
		rc = -pthread_create(&reader->threads[i], NULL, reader_thread, reader);
		if (rc == 0)
			reader->n_threads++;
	}
	if (reader->n_threads)
		rc = 0; /* slower, and as good */
	reader->running = reader->n_threads;
	pthread_mutex_unlock(&reader->lock);
	return rc;
}

static void
reader_fell_back(void *arg, const char *why)
{
	struct reader *reader = arg;
	const struct reader_events *events = &reader->config.events;

	pthread_mutex_lock(&reader->lock);
	events->fell_back(events->arg, why);
	pthread_mutex_unlock(&reader->lock);
}

uint32_t
reader_default_threads(uint32_t cores, bool direct)
{
	uint32_t least = direct ? 8 : 2, most = direct ? 24 : 16;
	uint32_t threads = direct ? cores + cores / 2 : 2 * cores;

	if (threads < least)
		return least;
	return threads < most ? threads : most;
}

static void
reader_free(struct reader *reader)
{
	fetch_close(&reader->fetch);
	pthread_mutex_destroy(&reader->lock);
	free(reader->threads);
	free(reader->begun);
	free(reader);
}

int
reader_open(struct reader **ret, const struct reader_config *config, struct error *err)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	struct fetch_fallback fallback = { config->events.fell_back ? reader_fell_back : NULL,
					   reader };
	int rc;

	if (!reader)
		return error_sys(err, -ENOMEM, "reader");
	reader->config = *config;
	pthread_mutex_init(&reader->lock, NULL);
	reader->threads = calloc(config->threads, sizeof(*reader->threads));
	reader->begun = calloc(config->placement->n_slices, sizeof(*reader->begun));
	if (!reader->threads || !reader->begun) {
		reader_free(reader);
		return error_sys(err, -ENOMEM, "reader");
	}
	rc = fetch_open(&reader->fetch, config->io, config->files, config->placement, config->arena,
			config->direct, &fallback, err);
	if (rc == 0) {
		reader->fetch.populate = config->populate;
		rc = start_threads(reader);
		if (rc < 0)
			error_sys(err, rc, "%" PRIu32 " reader threads", config->threads);
	}
	if (rc < 0) {
		reader_close(reader);
		return rc;
	}
	*ret = reader;
	return 0;
}

int
reader_join(struct reader *reader, struct error *err)
{
	for (uint32_t i = 0; i < reader->n_threads && !reader->joined; i++)
		pthread_join(reader->threads[i], NULL);
	reader->joined = true;
	if (reader->rc < 0) {
		*err = reader->err;
		return reader->rc;
	}
	if (reader->bytes < reader->config.pieces->bytes)
		return error_set(err, -ECANCELED,
				 "reading stopped at %" PRIu64 " of %" PRIu64 " bytes",
				 reader->bytes, reader->config.pieces->bytes);
	return 0;
}

void
reader_stop(struct reader *reader)
{
	piece_queue_stop(reader->config.queue);
}

void
reader_close(struct reader *reader)
{
	struct error err;

	if (!reader)
		return;
	reader_stop(reader);
	reader_join(reader, &err);
	reader_free(reader);
}
