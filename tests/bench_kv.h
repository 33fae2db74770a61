/* Makes the KV cache of a running, idle stack look as after a long prompt, without computing it:
 * all of its memory is filled with seeded random numbers, and its journal says that the first
 * positions hold a given prompt.  What is computed from it means nothing; the time it takes is that
 * of such a context.  Both regions are the pinner's, lent to whoever asks. */
#ifndef HEARTH_TESTS_BENCH_KV_H
#define HEARTH_TESTS_BENCH_KV_H

#include <stdint.h>

#include "common/board.h"
#include "common/device.h"
#include "common/error.h"

/* Fills memory of the device with such numbers. */
int bench_kv_random(struct device *device, const struct device_memory *memory, struct error *err);

/* dir: the stack's; device: the one its pinner has, opened by the caller.  Once a stack. */
int bench_kv_fill(const char *dir, const Hearth__State *worker, struct device *device,
		  struct error *err);

/* From now on, and until another prompt comes, a prompt that begins with ids[0 .. n-1] (n below the
 * context) finds them in the cache.  No request may be at work. */
int bench_kv_keep(const char *dir, const Hearth__State *worker, const uint32_t *ids, uint32_t n,
		  struct error *err);

#endif
