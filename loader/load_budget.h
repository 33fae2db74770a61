/* A start with a resident budget: which experts stay, told before anything is read, and who brings
 * the others. */
#ifndef HEARTH_LOADER_LOAD_BUDGET_H
#define HEARTH_LOADER_LOAD_BUDGET_H

#include "loader/load.h"

/* Decides load->resident and load->budget.  A budget that all experts fit into sets neither: that
 * is the whole model.  A warm arena of the same model and budget keeps its set: the profile may
 * have changed since, and who uses the arena goes on. */
int load_budget_plan(struct load *load, const struct model *model, struct error *err);

/* Keeps in load->plan what is resident. */
int load_budget_keep(struct load *load, struct error *err);

/* Once the arena is there: what is still to come of it, and the slices that nothing is read into.
 */
void load_budget_settle(struct load *load);

/* Once there are load->queue and the choice of a reader: in which batches the resident set is read.
 */
int load_budget_batches(struct load *load, struct error *err);

/* Opens load->outside. */
int load_budget_open_outside(struct load *load, struct error *err);

/* The resident set is built: the reader is decided again. */
int load_budget_built(struct load *load, struct error *err);

void load_budget_close(struct load *load);

#endif
