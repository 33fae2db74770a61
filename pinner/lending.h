/* The regions that the pinner lends: named memory which outlives every worker.  The same key gives
 * the same memory until it is released.  Owns the memory; the caller locks. */
#ifndef HEARTH_PINNER_LENDING_H
#define HEARTH_PINNER_LENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"
#include "common/error.h"
#include "common/shared_memory.h"
#include "proto/limits.h"

struct region {
	char key[MAX_KEY_BYTES + 1];
	bool host;                   /* a memfd, whatever the device */
	struct device_memory device; /* else */
	struct shared_memory shared;
	uint64_t bytes;
	uint8_t handle[DEVICE_HANDLE_BYTES]; /* of memory that has no path */
	bool has_handle;
};

struct lending {
	struct device *device;
	uint64_t cap;  /* of all device regions together; 0 = none */
	uint64_t lent; /* of device memory */
	uint32_t n;
	struct region regions[MAX_REGIONS];
};

struct lend_wish {
	const char *key;
	uint64_t bytes;
	bool host;
	bool replace;
};

/* *ret_region stays valid until the next release.  *ret_fresh: made just now, zeroed.
 * -EINVAL: makes no sense; -EEXIST: there with another size or place; -EOVERFLOW: over the cap;
 * -ENOMEM: no room; -ENOSPC: too many regions.  Nothing has changed then, unless the room for a
 * region that replaces another could not be had once that had made way: it is gone. */
int lending_lend(struct lending *lending, const struct lend_wish *wish,
		 const struct region **ret_region, bool *ret_fresh, struct error *err);

/* -ENOENT: no such region. */
int lending_release(struct lending *lending, const char *key, struct error *err);

const struct region *lending_find(const struct lending *lending, const char *key);
void lending_close(struct lending *lending);

#endif
