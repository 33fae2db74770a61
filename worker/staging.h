/* The way of experts that a device cannot read where they lie: by threads from the arena into a
 * pinned ring, from there by the device's copy engine into slots of its memory, so that the threads
 * copy the next ones while the last are on their way.  A slot holds its expert until the next
 * staging_begin: one layer of one forward. */
#ifndef HEARTH_WORKER_STAGING_H
#define HEARTH_WORKER_STAGING_H

#include <stdint.h>

#include "common/device.h"
#include "common/error.h"
#include "common/model.h"
#include "worker/compute.h"

struct staging;

/* Device memory that it takes. */
uint64_t staging_bytes(const struct model *model);

/* `threads`: copying into the ring, the caller among them. */
int staging_open(struct staging **ret, struct device *device, const struct model *model,
		 uint32_t threads, struct error *err);
/* The same in staging_bytes of device memory that the caller keeps as long; NULL: its own. */
int staging_open_at(struct staging **ret, struct device *device, const struct model *model,
		    uint32_t threads, void *slots, struct error *err);
void staging_close(struct staging *staging);

/* What was staged before may be overwritten: no kernel reads it any more. */
void staging_begin(struct staging *staging);
/* One expert of this layer, at host addresses that stay until staging_end; at most n_experts. */
int staging_add(struct staging *staging, const struct model_layer *layer,
		const struct expert_place *from, struct expert_place *ret, struct error *err);
/* All are in their slots when it returns. */
int staging_end(struct staging *staging, struct error *err);

#endif
