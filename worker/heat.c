#include "worker/heat.h"

#include <math.h>
#include <string.h>

#define HEAT_MAGIC 0x3174616568746568ull /* "hetheat1" */

static uint64_t
count_of(const struct profile_shape *shape)
{
	return (uint64_t)shape->layers * shape->experts;
}

uint64_t
heat_bytes(const struct profile_shape *shape)
{
	return sizeof(struct heat_page) + count_of(shape) * sizeof(float);
}

static bool
all_sound(const struct heat_page *page)
{
	for (uint64_t i = 0; i < count_of(&page->shape); i++)
		if (!(page->heat[i] >= 0 && isfinite(page->heat[i])))
			return false;
	return true;
}

bool
heat_open(struct heat_page *page, const struct profile_shape *shape)
{
	if (atomic_load_explicit(&page->magic, memory_order_acquire) == HEAT_MAGIC &&
	    page->shape.fingerprint == shape->fingerprint && page->shape.layers == shape->layers &&
	    page->shape.experts == shape->experts && all_sound(page))
		return true;
	atomic_store_explicit(&page->magic, 0, memory_order_relaxed);
	page->shape = *shape;
	memset(page->heat, 0, count_of(shape) * sizeof(*page->heat));
	/* Once it is seen, shape and heat are. */
	atomic_store_explicit(&page->magic, HEAT_MAGIC, memory_order_release);
	return false;
}
