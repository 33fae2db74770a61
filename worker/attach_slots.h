/* The part of attach.h that is about experts: slots, the table, what is staged until then. */
#ifndef HEARTH_WORKER_ATTACH_SLOTS_H
#define HEARTH_WORKER_ATTACH_SLOTS_H

#include "worker/attach.h"

/* A failure that lies with the pinner, as this process's own. */
int attach_from_pinner(int rc);

int attach_count_slots(struct attached *attached, const Hearth__State *pinner, struct error *err);
int attach_table(struct attached *attached, const struct attach_config *config, struct error *err);

#endif
