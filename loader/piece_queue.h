/* Which piece is read next: those that are waited for, else in order, or batch by batch; each is
 * taken exactly once.  Neighbours that nothing waits for are taken together, so that reads are
 * large.  Any thread may call anything; all is under the queue's lock, which is held briefly and
 * inside of all others. */
#ifndef HEARTH_LOADER_PIECE_QUEUE_H
#define HEARTH_LOADER_PIECE_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "loader/pieces.h"

/* 55 GB/s to the device and full drive speed from 8 MiB on. */
#define SPAN_BYTES (8ull << 20)

/* So many are taken one by one behind a demand: who demands a layer's experts soon demands the next
 * layer's, and they should not find every thread at a large read. */
#define QUEUE_CALM 256u

/* Pieces of one slice and one shard.  Of one run they are neighbours in file and arena; of several
 * (piece_queue_batches) they are read as one all the same. */
struct span {
	struct piece whole; /* from the first to the end of the last in the arena */
	uint64_t first, n;  /* pieces */
	uint32_t n_runs;
	bool demanded;
};

struct piece_queue;

int piece_queue_open(struct piece_queue **ret, const struct pieces *pieces, struct error *err);
void piece_queue_close(struct piece_queue *queue); /* nobody waits any more; NULL is fine */

/* A slice of which may_write(arg, slice) is false is not read yet; asked again after a wake. Called
 * with the lock held.  Before the first take. */
void piece_queue_gate(struct piece_queue *queue, bool (*may_write)(void *arg, uint32_t slice),
		      void *arg);
/* Batch by batch, from 0: each piece's (kept until all are done).  The next batch is begun once all
 * of this one is taken, and no further one before all of this one is done.  With `merge` the pieces
 * of a batch that are windows of one file less than BATCH_GAP apart are one span, of up to
 * BATCH_REQUEST of the file.  Before the first take.  -ENOMEM. */
int piece_queue_batches(struct piece_queue *queue, const uint32_t *batch, bool merge);
void piece_queue_wake(struct piece_queue *queue);

/* Waits while what is left may not be written.  False: all are taken, or stopped. */
bool piece_queue_take(struct piece_queue *queue, struct span *ret);

/* Its bytes are in place and its units hashed: whoever sees that sees these too.  *ret_filled: it
 * was the slice's last.  True: somebody demanded one of its pieces. */
bool piece_queue_done(struct piece_queue *queue, const struct span *span, bool *ret_filled);

/* Before all others from now on, in the order of demands; PIECE_NONE is there already. */
void piece_queue_demand(struct piece_queue *queue, const uint64_t *pieces, uint64_t n);
bool piece_queue_all_done(struct piece_queue *queue, const uint64_t *pieces, uint64_t n);
/* Bytes that were taken because they were demanded. */
uint64_t piece_queue_demanded_bytes(struct piece_queue *queue);

void piece_queue_stop(struct piece_queue *queue); /* no more is taken */

#endif
