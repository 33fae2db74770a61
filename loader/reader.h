/* The reader: threads that take pieces from the queue, read each into its final place and hash its
 * checksum units.  Buffered or direct, the tensors' bytes are the same.  The first failure stops
 * all threads. */
#ifndef HEARTH_LOADER_READER_H
#define HEARTH_LOADER_READER_H

#include "loader/io.h"
#include "loader/model_files.h"
#include "loader/piece_queue.h"
#include "loader/populate.h"

/* Called from the reader's threads, one call at a time. */
struct reader_events {
	void *arg;
	void (*begun)(void *arg, uint32_t slice); /* its first piece is about to be read */
	void (*moved)(void *arg, uint64_t bytes); /* read so far, after each piece */
	void (*filled)(void *arg, uint32_t slice, uint64_t checksum); /* every byte is in place */
	void (*demanded)(void *arg); /* pieces that somebody demanded are in place */
	/* A file is read buffered although config.direct.  NULL: that is an error. */
	void (*fell_back)(void *arg, const char *why);
	void (*ended)(void *arg); /* once, by the last thread; reader_join will not wait long */
};

struct reader_config {
	const struct io_calls *io;
	const struct model_files *files;
	const struct placement *placement;
	const struct pieces *pieces;
	struct piece_queue *queue;  /* of these */
	struct checksum_plan *plan; /* gets the hashes */
	const uint64_t *wanted;     /* what the plan's units must have; NULL: nothing says */
	uint8_t *arena;
	struct populate *populate; /* of the same arena; NULL: each piece by io->populate */
	uint32_t threads;          /* 1 or more */
	bool direct;
	struct reader_events events;
};

struct reader;

/* So many that some 16 large reads are in flight: with direct reads the threads that hash are not
 * reading, and waiting for a drive takes no core. */
uint32_t reader_default_threads(uint32_t cores, bool direct);

/* With `direct`: -ENOTSUP when a file cannot be read so. */
int reader_open(struct reader **ret, const struct reader_config *config, struct error *err);

/* Waits for the threads.  0: everything is in place; -ECANCELED: stopped. */
int reader_join(struct reader *reader, struct error *err);

void reader_stop(struct reader *reader);  /* threads end after their span */
void reader_close(struct reader *reader); /* stops, joins, frees; NULL is fine */

#endif
