#include "pinner/pin_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A slow page or two mean nothing; 250 MB/s is a third of what small pages take while they are
 * registered (0.35 s/GiB and more, as measured on 16 cores). */
#define PAGES_WATCH_BYTES (64ull << 20)
#define PAGES_SLOW_NS 4 /* a byte */

#define MAX_GIB (1ull << 24) /* in bytes it is far from 64 bits */

int
pin_config_read(struct pin_config *ret, const char *order, const char *gib, struct error *err)
{
	struct pin_config config = { .order =
					 strcmp(order, "before") == 0 ? PIN_BEFORE : PIN_AFTER };
	unsigned long long n;
	char *end;

	if (strcmp(gib, "auto") != 0) {
		errno = 0;
		n = strtoull(gib, &end, 10);
		if (gib[0] < '0' || gib[0] > '9' || *end || errno || n > MAX_GIB)
			return error_set(err, -EINVAL,
					 "--pin-gib %.40s: want auto, or 0 to %llu GiB", gib,
					 MAX_GIB);
		config.capped = true;
		config.cap = (uint64_t)n << 30;
	}
	*ret = config;
	return 0;
}

int
pin_plan_open(struct pin_plan *ret, const struct pin_config *config,
	      const struct arena_slice *place, uint32_t n)
{
	struct pin_plan plan = { .config = *config, .n = n, .place = place };
	uint64_t left = config->capped ? config->cap : UINT64_MAX;

	plan.slices = calloc(n + 1, sizeof(*plan.slices));
	if (!plan.slices)
		return -ENOMEM;
	while (plan.prefix < n && place[plan.prefix].bytes <= left)
		left -= place[plan.prefix++].bytes;
	for (uint32_t i = plan.prefix; i < n; i++)
		plan.slices[i].fate = place[i].bytes ? PIN_OVER_CAP : PIN_REGISTERED;
	*ret = plan;
	return 0;
}

void
pin_plan_close(struct pin_plan *plan)
{
	free(plan->slices);
	*plan = (struct pin_plan){ 0 };
}

void
pin_plan_note_filled(struct pin_plan *plan, uint32_t slice)
{
	plan->slices[slice].filled = true;
}

uint32_t
pin_plan_next(const struct pin_plan *plan)
{
	for (uint32_t i = 0; i < plan->n; i++) {
		if (plan->slices[i].fate == PIN_OPEN &&
		    (plan->slices[i].filled || plan->config.order == PIN_BEFORE))
			return i;
	}
	return plan->n;
}

uint64_t
pin_plan_call(struct pin_plan *plan, uint32_t slice, uint64_t done, bool serving)
{
	struct pin_slice *one = &plan->slices[slice];
	uint64_t left = plan->place[slice].bytes - done;

	if (one->call_bytes == 0)
		one->call_bytes = serving ? PIN_CALL_BYTES_SERVING : PIN_CALL_BYTES;
	return left < one->call_bytes ? left : one->call_bytes;
}

bool
pin_pages_are_slow(uint64_t bytes, uint64_t ns)
{
	return bytes >= PAGES_WATCH_BYTES && ns / PAGES_SLOW_NS > bytes;
}

void
pin_plan_registered(struct pin_plan *plan, uint32_t slice)
{
	plan->slices[slice].fate = PIN_REGISTERED;
}

void
pin_plan_refused(struct pin_plan *plan, uint32_t slice)
{
	plan->ended = true;
	plan->slices[slice].fate = PIN_REFUSED;
	for (uint32_t i = 0; i < plan->n; i++) {
		if (plan->slices[i].fate == PIN_OPEN)
			plan->slices[i].fate = plan->place[i].bytes ? PIN_ENDED : PIN_REGISTERED;
	}
}

bool
pin_plan_usable(const struct pin_plan *plan, uint32_t slice)
{
	return plan->slices[slice].filled && plan->slices[slice].fate != PIN_OPEN;
}

bool
pin_plan_done(const struct pin_plan *plan)
{
	for (uint32_t i = 0; i < plan->n; i++) {
		if (!pin_plan_usable(plan, i))
			return false;
	}
	return true;
}

uint32_t
pin_plan_next_lock(const struct pin_plan *plan)
{
	if (plan->lock_refused || pin_plan_next(plan) < plan->n)
		return plan->n;
	for (uint32_t i = 0; i < plan->n; i++) {
		if (plan->slices[i].filled && plan->slices[i].fate >= PIN_OVER_CAP &&
		    !plan->slices[i].lock_tried)
			return i;
	}
	return plan->n;
}

void
pin_plan_lock_tried(struct pin_plan *plan, uint32_t slice, bool locked)
{
	plan->slices[slice].lock_tried = true;
	plan->lock_refused = plan->lock_refused || !locked;
}

uint64_t
pin_plan_copy_bytes(const struct pin_plan *plan, uint32_t slice, uint64_t offset, uint64_t bytes)
{
	uint64_t call, left;

	if (slice >= plan->n || plan->slices[slice].call_bytes == 0)
		return bytes;
	call = plan->slices[slice].call_bytes;
	left = call - (offset - plan->place[slice].offset) % call;
	return left < bytes ? left : bytes;
}
