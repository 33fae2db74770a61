#include "loader/pool_limit.h"

#include <stdio.h>
#include <string.h>

#include "common/pages.h"
#include "loader/cgroup.h"

struct pair {
	const char *max, *current; /* files, in bytes */
};

/* The two versions differ in names alone. */
static const struct pair second[] = { { "hugetlb.2MB.max", "hugetlb.2MB.current" },
				      { "hugetlb.2MB.rsvd.max", "hugetlb.2MB.rsvd.current" } };
static const struct pair first[] = {
	{ "hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.usage_in_bytes" },
	{ "hugetlb.2MB.rsvd.limit_in_bytes", "hugetlb.2MB.rsvd.usage_in_bytes" },
};

/* What is looked for while the groups are walked. */
struct search {
	struct pool_limit *ret;
	const struct pair *pairs; /* two */
	size_t root_bytes;
};

static void
look_at_group(void *arg, const char *folder)
{
	const struct search *search = arg;
	struct pool_limit *ret = search->ret;

	for (int i = 0; i < 2; i++) {
		const struct pair *pair = &search->pairs[i];
		uint64_t max, current = 0, left;

		if (!cgroup_take_number(cgroup_open(folder, pair->max), "", &max))
			continue;
		cgroup_take_number(cgroup_open(folder, pair->current), "", &current);
		left = current < max ? (max - current) / PAGES_HUGE_BYTES : 0;
		if (left >= ret->pages)
			continue;
		ret->pages = left;
		ret->most = max / PAGES_HUGE_BYTES;
		snprintf(ret->where, sizeof(ret->where), "%s/%s", folder + search->root_bytes,
			 pair->max);
	}
}

void
pool_limit_read(struct pool_limit *ret, const char *root)
{
	struct search search = { ret, second, strlen(root) };

	*ret = (struct pool_limit){ .pages = POOL_UNLIMITED, .most = POOL_UNLIMITED };
	cgroup_walk(NULL, root, look_at_group, &search);
	search.pairs = first;
	cgroup_walk("hugetlb", root, look_at_group, &search);
}
