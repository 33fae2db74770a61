#include "worker/usage.h"

#include <errno.h>
#include <string.h>

#define USAGE_MAGIC 0x3167617375746568ull /* "hetusag1" */

static uint64_t
count_of(const struct profile_shape *shape)
{
	return (uint64_t)shape->layers * shape->experts;
}

uint64_t
usage_bytes(const struct profile_shape *shape)
{
	return sizeof(struct usage_page) + count_of(shape) * sizeof(uint64_t);
}

static int
page_begin(struct usage_page *page, const struct profile_shape *shape, const char *path,
	   struct error *err)
{
	int rc;

	atomic_store_explicit(&page->magic, 0, memory_order_relaxed);
	page->shape = *shape;
	memset(page->counts, 0, count_of(shape) * sizeof(*page->counts));
	rc = profile_read(path, shape, page->counts, err);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	atomic_store_explicit(&page->magic, USAGE_MAGIC, memory_order_release);
	return 0;
}

int
usage_open(struct usage *ret, void *region, const struct profile_shape *shape, const char *path,
	   struct error *err)
{
	struct usage_page *page = region;
	int rc = 0;

	if (atomic_load_explicit(&page->magic, memory_order_acquire) != USAGE_MAGIC ||
	    page->shape.fingerprint != shape->fingerprint || page->shape.layers != shape->layers ||
	    page->shape.experts != shape->experts)
		rc = page_begin(page, shape, path, err);
	if (rc == 0)
		*ret = (struct usage){ .path = path, .page = page };
	return rc;
}

void
usage_add(struct usage *usage, const uint64_t *counts)
{
	struct usage_page *page = usage->page;

	for (uint64_t i = 0; i < count_of(&page->shape); i++) {
		page->counts[i] += counts[i];
		usage->unsaved = usage->unsaved || counts[i] != 0;
	}
}

int
usage_save(struct usage *usage, struct error *err)
{
	int rc;

	if (!usage->unsaved)
		return 0;
	rc = profile_write(usage->path, &usage->page->shape, usage->page->counts, err);
	usage->unsaved = rc < 0;
	return rc;
}
