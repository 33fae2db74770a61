#include "pinner/lending.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/checked.h"

#define MIB (1ull << 20)

static bool
key_is_sound(const char *key)
{
	size_t n = strlen(key);

	return n > 0 && n <= MAX_KEY_BYTES &&
	       strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

static struct region *
lending_seek(struct lending *lending, const char *key)
{
	for (uint32_t i = 0; i < lending->n; i++) {
		if (strcmp(lending->regions[i].key, key) == 0)
			return &lending->regions[i];
	}
	return NULL;
}

const struct region *
lending_find(const struct lending *lending, const char *key)
{
	for (uint32_t i = 0; i < lending->n; i++) {
		if (strcmp(lending->regions[i].key, key) == 0)
			return &lending->regions[i];
	}
	return NULL;
}

/* `freed` bytes of device memory come back first. */
static int
lending_has_room(struct lending *lending, const struct lend_wish *wish, uint64_t freed,
		 struct error *err)
{
	uint64_t room, total, after;
	int rc;

	if (wish->host)
		return 0;
	if (!checked_add(lending->lent - freed, wish->bytes, &after))
		return error_set(err, -EINVAL, "%s: %" PRIu64 " bytes", wish->key, wish->bytes);
	if (lending->cap && after > lending->cap)
		return error_set(err, -EOVERFLOW,
				 "%s: %" PRIu64 " MiB beside %" PRIu64
				 " MiB lent is more than --vram-mib %" PRIu64,
				 wish->key, (uint64_t)(wish->bytes / MIB),
				 (uint64_t)((lending->lent - freed) / MIB),
				 (uint64_t)(lending->cap / MIB));
	rc = device_memory_room(lending->device, &room, &total);
	if (rc == 0 && wish->bytes > room + freed)
		return error_set(err, -ENOMEM, "%s: %" PRIu64 " MiB, %s has %" PRIu64 " MiB free",
				 wish->key, (uint64_t)(wish->bytes / MIB),
				 device_describe(lending->device)->name, (uint64_t)(room / MIB));
	return 0;
}

static int
region_make(struct region *region, struct device *device, const struct lend_wish *wish,
	    struct error *err)
{
	int rc;

	*region = (struct region){ .host = wish->host, .bytes = wish->bytes };
	memcpy(region->key, wish->key, strlen(wish->key) + 1); /* key_is_sound has measured it */
	region->device.fd = -1;
	if (wish->host)
		return shared_memory_create(&region->shared, wish->key, wish->bytes, err);
	rc = device_alloc(device, wish->bytes, &region->device, err);
	if (rc < 0 || region->device.fd >= 0)
		return rc;
	rc = device_export(device, &region->device, region->handle, err);
	if (rc < 0)
		device_free(device, &region->device);
	region->has_handle = rc == 0;
	return rc;
}

static void
region_free(struct region *region, struct device *device)
{
	if (region->host)
		shared_memory_close(&region->shared);
	else
		device_free(device, &region->device);
}

/* A new region takes the place of `old` (may be NULL). */
static int
lending_place(struct lending *lending, const struct lend_wish *wish, struct region *old,
	      struct region **ret, struct error *err)
{
	uint64_t freed = old && !old->host ? old->bytes : 0;
	struct region made;
	int rc = lending_has_room(lending, wish, freed, err);

	if (rc < 0)
		return rc;
	if (!old && lending->n == MAX_REGIONS)
		return error_set(err, -ENOSPC, "%s: %u regions are lent, that is the limit",
				 wish->key, MAX_REGIONS);
	if (old) { /* its memory may be what the new one needs */
		region_free(old, lending->device);
		lending->lent -= freed;
	}
	rc = region_make(&made, lending->device, wish, err);
	if (rc < 0) {
		if (old)
			*old = lending->regions[--lending->n];
		return rc;
	}
	if (!wish->host)
		lending->lent += wish->bytes;
	*ret = old ? old : &lending->regions[lending->n++];
	**ret = made;
	return 0;
}

int
lending_lend(struct lending *lending, const struct lend_wish *wish,
	     const struct region **ret_region, bool *ret_fresh, struct error *err)
{
	struct region *region;
	bool fresh = false;
	int rc;

	if (!key_is_sound(wish->key))
		return error_set(err, -EINVAL,
				 "a region's key has 1 to %u of a-z 0-9 . _ -, not \"%.80s\"",
				 MAX_KEY_BYTES, wish->key);
	if (wish->bytes == 0 || wish->bytes > INT64_MAX)
		return error_set(err, -EINVAL, "%s: %" PRIu64 " bytes", wish->key, wish->bytes);
	region = lending_seek(lending, wish->key);
	if (region && (region->bytes != wish->bytes || region->host != wish->host) &&
	    !wish->replace)
		return error_set(err, -EEXIST,
				 "%s: lent with %" PRIu64 " bytes of %s memory, asked for %" PRIu64
				 " of %s",
				 wish->key, region->bytes, region->host ? "host" : "device",
				 wish->bytes, wish->host ? "host" : "device");
	if (!region || region->bytes != wish->bytes || region->host != wish->host) {
		rc = lending_place(lending, wish, region, &region, err);
		if (rc < 0)
			return rc;
		fresh = true;
	}
	*ret_region = region;
	*ret_fresh = fresh;
	return 0;
}

int
lending_release(struct lending *lending, const char *key, struct error *err)
{
	struct region *region = lending_seek(lending, key);

	if (!region)
		return error_set(err, -ENOENT, "%.80s: no such region is lent", key);
	if (!region->host)
		lending->lent -= region->bytes;
	region_free(region, lending->device);
	*region = lending->regions[--lending->n];
	return 0;
}

void
lending_close(struct lending *lending)
{
	while (lending->n)
		region_free(&lending->regions[--lending->n], lending->device);
	lending->lent = 0;
}
