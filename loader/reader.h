/* The reader: threads that take pieces in order, read each into its final place, and hash every
 * checksum unit as soon as its last piece is in.  Buffered or direct, the tensors' bytes are the
 * same.  The first failure stops all threads. */
#ifndef HEARTH_LOADER_READER_H
#define HEARTH_LOADER_READER_H

#include "loader/io.h"
#include "loader/model_files.h"
#include "loader/pieces.h"

/* Called from the reader's threads, one call at a time. */
struct reader_events {
	void *arg;
	void (*begun)(void *arg, uint32_t slice); /* its first piece is about to be read */
	void (*moved)(void *arg, uint64_t bytes); /* read so far, after each piece */
	void (*filled)(void *arg, uint32_t slice, uint64_t checksum); /* every byte is in place */
	void (*ended)(void *arg); /* once, by the last thread; reader_join will not wait long */
};

struct reader_config {
	const struct io_calls *io;
	const struct model_files *files;
	const struct placement *placement;
	struct pieces *pieces;      /* its counters are used up */
	struct checksum_plan *plan; /* gets the hashes */
	uint8_t *arena;
	uint32_t threads; /* 1 or more */
	bool direct;
	struct reader_events events;
};

struct reader;

/* With `direct`: -ENOTSUP when a file cannot be read so. */
int reader_open(struct reader **ret, const struct reader_config *config, struct error *err);

/* Waits for the threads.  0: everything is in place; -ECANCELED: stopped. */
int reader_join(struct reader *reader, struct error *err);

void reader_stop(struct reader *reader);  /* threads end after their piece */
void reader_close(struct reader *reader); /* stops, joins, frees; NULL is fine */

#endif
