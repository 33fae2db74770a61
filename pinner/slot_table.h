/* What the slots of the lent region "slots" hold.  From the moment a move into a slot is taken on
 * until the last such move has ended the slot is said to be empty, so that a worker which comes in
 * between never computes from half an expert, nor from one that is about to be overwritten by what
 * a dead worker has asked for.  The caller locks. */
#ifndef HEARTH_PINNER_SLOT_TABLE_H
#define HEARTH_PINNER_SLOT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/model.h"

struct slot_move {
	uint32_t layer, expert, slot;
	bool empty; /* no expert: the slot is to hold nothing */
};

struct slot_table {
	uint32_t n;
	struct slot_content {
		bool filled;     /* and no move into it is to come */
		uint32_t coming; /* moves taken on and not ended */
		uint32_t layer, expert;
	} * content; /* (n) */
	bool *named; /* (n): scratch for slot_table_check */
};

/* As many as fit into `bytes`; all empty. */
int slot_table_open(struct slot_table *ret, uint64_t bytes, uint64_t slot_bytes);
void slot_table_close(struct slot_table *table);

/* All moves make sense: ranges, no slot twice, the layers' slices usable (a flag each slice). */
int slot_table_check(struct slot_table *table, const struct model *model, const bool *slice_usable,
		     const struct slot_move *moves, uint32_t n, struct error *err);

/* The moves are taken on: their slots are empty. */
void slot_table_begin(struct slot_table *table, const struct slot_move *moves, uint32_t n);
/* They have ended, and the experts are there if `done`.  An expert that was in another slot too is
 * said to be in the last one alone. */
void slot_table_end(struct slot_table *table, const struct slot_move *moves, uint32_t n, bool done);

#endif
