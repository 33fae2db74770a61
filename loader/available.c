#include "loader/available.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "loader/cgroup.h"

/* The two versions differ in names alone. */
struct version {
	const char *controller;    /* NULL: version 2 */
	const char *max, *current; /* files */
	/* keys of memory.stat: all cache, and what of it cannot be dropped at once */
	const char *cache, *kept[3];
};

static const struct version versions[] = {
	{ .max = "memory.max",
	  .current = "memory.current",
	  .cache = "file",
	  .kept = { "shmem", "file_dirty", "file_writeback" } },
	{ .controller = "memory",
	  .max = "memory.limit_in_bytes",
	  .current = "memory.usage_in_bytes",
	  .cache = "total_cache",
	  .kept = { "total_shmem", "total_dirty", "total_writeback" } },
};

/* What is looked for while the groups are walked. */
struct search {
	struct available *ret;
	const struct version *version;
	size_t root_bytes; /* of each folder's path, that are not told */
};

static uint64_t
clean_cache(const struct version *version, const char *group)
{
	uint64_t cache = 0, kept;

	cgroup_take_number(cgroup_open(group, "memory.stat"), version->cache, &cache);
	for (int i = 0; i < 3; i++)
		if (cgroup_take_number(cgroup_open(group, "memory.stat"), version->kept[i], &kept))
			cache -= kept < cache ? kept : cache;
	return cache;
}

/* What one group allows; AVAILABLE_UNKNOWN: it has no limit, and "max" is no number. */
static uint64_t
group_room(const struct version *version, const char *group)
{
	uint64_t max, current, cache;

	if (!cgroup_take_number(cgroup_open(group, version->max), "", &max) ||
	    !cgroup_take_number(cgroup_open(group, version->current), "", &current))
		return AVAILABLE_UNKNOWN;
	cache = clean_cache(version, group);
	current -= cache < current ? cache : current;
	return current < max ? max - current : 0;
}

static void
tighten(struct available *ret, uint64_t bytes, const char *limit)
{
	if (bytes >= ret->bytes)
		return;
	ret->bytes = bytes;
	snprintf(ret->limit, sizeof(ret->limit), "%s", limit);
}

static void
look_at_group(void *arg, const char *folder)
{
	const struct search *search = arg;

	tighten(search->ret, group_room(search->version, folder), folder + search->root_bytes);
}

void
available_read(struct available *ret, const char *root)
{
	uint64_t kib;

	*ret = (struct available){ .bytes = AVAILABLE_UNKNOWN };
	if (cgroup_take_number(cgroup_open(root, "proc/meminfo"), "MemAvailable:", &kib))
		tighten(ret, kib * 1024, "MemAvailable");
	for (size_t i = 0; i < sizeof(versions) / sizeof(*versions); i++) {
		struct search search = { ret, &versions[i], strlen(root) };

		cgroup_walk(versions[i].controller, root, look_at_group, &search);
	}
}
