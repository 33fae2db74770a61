/* Asking the pinner for memory that outlives this process.
 * -ECANCELED: the pinner is gone.  -ETIMEDOUT, -ENOMEM and -EPROTO (what it said is no answer)
 * aside, other codes are its own refusals. */
#ifndef HEARTH_WORKER_LENDER_H
#define HEARTH_WORKER_LENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"
#include "common/endpoint.h"
#include "common/error.h"
#include "common/shared_memory.h"
#include "proto/lend.pb-c.h"
#include "worker/slot_plan.h"

struct lender {
	struct client *client;
	uint32_t slots_lease; /* of the last grant of "slots" */
};

struct lent {
	uint64_t bytes;
	bool fresh;     /* zeroed: nobody has written to it */
	char path[128]; /* of a memfd */
	uint8_t handle[DEVICE_HANDLE_BYTES];
	bool has_handle;
};

int lender_open(struct lender *ret, const char *dir, struct error *err);
void lender_close(struct lender *lender);

/* -EEXIST: the key has another size (without `replace`).  `slots` (may be NULL): takes over what
 * the region's slots hold already. */
int lender_ask(struct lender *lender, const char *key, uint64_t bytes, Hearth__Place place,
	       bool replace, struct lent *ret, struct slot_plan *slots, struct error *err);

/* 0 also if there is no such region. */
int lender_release(struct lender *lender, const char *key, struct error *err);

/* The `n` slots from `first` on hold nothing any more, and no move into them is to come. */
int lender_empty(struct lender *lender, uint64_t slot_bytes, uint32_t first, uint32_t n,
		 struct error *err);

/* Opens what was lent of the device's memory. */
int lent_import(const struct lent *lent, struct device *device, struct device_memory *ret,
		struct error *err);

/* Opens lent host memory, locked: no second worker writes to it as long as it is open. */
int lent_attach(const struct lent *lent, struct shared_memory *ret, struct error *err);

#endif
