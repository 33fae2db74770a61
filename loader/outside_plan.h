/* What a wish for experts takes with a resident budget: each expert's place, the reads that bring
 * those that are not in the window yet, and the pieces of the resident set that are waited for.
 * Plain data of one wish at a time; the caller locks. */
#ifndef HEARTH_LOADER_OUTSIDE_PLAN_H
#define HEARTH_LOADER_OUTSIDE_PLAN_H

#include "loader/batch.h"
#include "loader/fetch_desk.h"
#include "loader/model_files.h"
#include "loader/pieces.h"
#include "loader/resident.h"
#include "loader/window.h"

struct outside_plan {
	const struct placement *placement; /* with a window */
	const struct resident *resident;
	const struct pieces *pieces;
	const struct arena_tensor **tensors; /* (layers, N_ROLES) */
	struct window window;
	/* of the latest wish */
	struct fetch_place *places;     /* (experts) */
	struct batch_window *windows;   /* (experts * N_ROLES); each one's tag is its matrix */
	struct batch_request *requests; /* (experts * N_ROLES) */
	uint64_t *wanted;               /* (experts * N_ROLES) pieces, or PIECE_NONE */
	uint64_t n_windows, n_requests, n_wanted;
	uint32_t fresh, kept; /* experts to be brought; found in the window */
};

/* placement, resident and pieces must outlive it. */
int outside_plan_open(struct outside_plan *ret, const struct model_files *files,
		      const struct placement *placement, const struct resident *resident,
		      const struct pieces *pieces, struct error *err);
void outside_plan_close(struct outside_plan *plan); /* of a zeroed one is fine */

/* -ENOBUFS: the window has no room for so many; there is nothing to do then. */
int outside_plan_wish(struct outside_plan *plan, const struct fetch_wish *wish, struct error *err);

/* What was to be brought is not known to be there. */
void outside_plan_forget(struct outside_plan *plan);

#endif
