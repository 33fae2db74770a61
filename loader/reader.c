#include "loader/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/checked.h"
#include "loader/fetch.h"

struct reader {
	struct reader_config config;
	struct fetch fetch;
	pthread_t *threads;
	uint32_t n_threads; /* started */
	bool joined;
	atomic_uint_fast64_t next; /* piece */
	atomic_bool stop;
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
	atomic_store(&reader->stop, true);
}

static void
begin_piece(struct reader *reader, const struct piece *piece)
{
	const struct reader_events *events = &reader->config.events;

	pthread_mutex_lock(&reader->lock);
	if (!reader->begun[piece->slice]) {
		reader->begun[piece->slice] = true;
		if (events->begun)
			events->begun(events->arg, piece->slice);
	}
	pthread_mutex_unlock(&reader->lock);
}

/* The counters are decremented with acquire and release: whoever takes one to 0 sees what all
 * others wrote before, the piece's bytes for a unit and the units' hashes for a slice. */
static void
end_piece(struct reader *reader, const struct piece *piece)
{
	const struct reader_config *config = &reader->config;
	struct checksum_unit *units = config->plan->units;
	uint32_t filled = 0;

	for (uint64_t i = 0; i < piece->n_units; i++) {
		uint64_t unit = config->pieces->units[piece->first_unit + i];

		if (__atomic_sub_fetch(&config->pieces->waiting[unit], 1, __ATOMIC_ACQ_REL) != 0)
			continue;
		units[unit].hash = checksum_unit_hash(&units[unit], config->arena);
		if (__atomic_sub_fetch(&config->pieces->open[piece->slice], 1, __ATOMIC_ACQ_REL) ==
		    0)
			filled++;
	}
	pthread_mutex_lock(&reader->lock);
	reader->bytes += piece->bytes;
	if (config->events.moved)
		config->events.moved(config->events.arg, reader->bytes);
	if (filled && config->events.filled)
		config->events.filled(config->events.arg, piece->slice,
				      checksum_slice(config->plan, piece->slice));
	pthread_mutex_unlock(&reader->lock);
}

static void *
reader_thread(void *arg)
{
	struct reader *reader = arg;
	const struct reader_events *events = &reader->config.events;
	struct error err;

	while (!atomic_load(&reader->stop)) {
		uint64_t i = atomic_fetch_add(&reader->next, 1);
		const struct piece *piece;
		int rc;

		if (i >= reader->config.pieces->n)
			break;
		piece = &reader->config.pieces->list[i];
		begin_piece(reader, piece);
		rc = fetch_piece(&reader->fetch, piece, &err);
		if (rc < 0) {
			reader_fail(reader, rc, &err);
			break;
		}
		end_piece(reader, piece);
	}
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

int
reader_open(struct reader **ret, const struct reader_config *config, struct error *err)
{
	struct reader *reader = calloc(1, sizeof(*reader));
	int rc;

	if (!reader)
		return error_sys(err, -ENOMEM, "reader");
	reader->config = *config;
	pthread_mutex_init(&reader->lock, NULL);
	reader->threads = calloc(config->threads, sizeof(*reader->threads));
	reader->begun = calloc(config->placement->n_slices, sizeof(*reader->begun));
	rc = reader->threads && reader->begun ? 0 : error_sys(err, -ENOMEM, "reader");
	if (rc == 0)
		rc = fetch_open(&reader->fetch, config->io, config->files, config->placement,
				config->arena, config->direct, err);
	if (rc == 0) {
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
	atomic_store(&reader->stop, true);
}

void
reader_close(struct reader *reader)
{
	struct error err;

	if (!reader)
		return;
	reader_stop(reader);
	reader_join(reader, &err);
	fetch_close(&reader->fetch);
	pthread_mutex_destroy(&reader->lock);
	free(reader->threads);
	free(reader->begun);
	free(reader);
}
