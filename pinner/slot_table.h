/* What the slots of the lent region "slots" hold.  A slot is said to be empty before a copy into it
 * begins and to be filled only after it ended, so that a worker which comes in between never
 * computes from half an expert.  The caller locks. */
#ifndef HEARTH_PINNER_SLOT_TABLE_H
#define HEARTH_PINNER_SLOT_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "common/model.h"

struct slot_move {
	uint32_t layer, expert, slot;
};

struct slot_table {
	uint32_t n;
	struct slot_content {
		bool filled;
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

void slot_table_empty(struct slot_table *table, const struct slot_move *moves, uint32_t n);
void slot_table_fill(struct slot_table *table, const struct slot_move *moves, uint32_t n);

#endif
