/* loader/pool_limit.h: files as kernels wrote them, recorded under tests/data/cgroup; and what an
 * arena is made of on such machines, whose pool has 512 free pages. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/pool_limit.h"
#include "loader/reserve.h"

#define MIB (1ull << 20)

static const char *
root_of(const char *recorded)
{
	static char root[128];

	snprintf(root, sizeof(root), "tests/data/cgroup/%s", recorded);
	return root;
}

static void
expect(const char *recorded, uint64_t pages, uint64_t most, const char *where)
{
	struct pool_limit limit;

	pool_limit_read(&limit, root_of(recorded));
	if (limit.pages != pages || limit.most != most || strcmp(limit.where, where) != 0)
		fail_msg("%s: %llu of %llu pages by %s", recorded, (unsigned long long)limit.pages,
			 (unsigned long long)limit.most, limit.where);
}

/* What the group's members have already is taken off. */
static void
version_2_limits_what_may_be_touched(void **state)
{
	(void)state;
	expect("hugetlb-v2", 3, 4, "/sys/fs/cgroup/kubepods/pod1/hugetlb.2MB.max");
}

static void
what_may_be_set_aside_counts_and_so_does_every_group_up_the_tree(void **state)
{
	(void)state;
	expect("hugetlb-v2-outer", 2, 6, "/sys/fs/cgroup/kubepods/hugetlb.2MB.rsvd.max");
}

static void
a_container_may_be_given_none(void **state)
{
	(void)state;
	expect("hugetlb-v2-container", 0, 0, "/sys/fs/cgroup/hugetlb.2MB.max");
}

static void
max_or_no_file_is_no_limit(void **state)
{
	(void)state;
	expect("hugetlb-v2-max", POOL_UNLIMITED, POOL_UNLIMITED, "");
	expect("v2-max", POOL_UNLIMITED, POOL_UNLIMITED, "");
	expect("none-recorded", POOL_UNLIMITED, POOL_UNLIMITED, "");
}

static void
version_1_limits_likewise(void **state)
{
	(void)state;
	expect("hugetlb-v1", 2, 3, "/sys/fs/cgroup/hugetlb/box/hugetlb.2MB.limit_in_bytes");
}

/* Before Linux 5.7 there is no limit on what is set aside; and version 2 may be beside it. */
static void
an_older_version_1_limits_what_may_be_touched(void **state)
{
	(void)state;
	expect("hugetlb-v1-old", 2, 2, "/sys/fs/cgroup/hugetlb/box/hugetlb.2MB.limit_in_bytes");
}

static int
reserve(const char *recorded, enum arena_pages pages, struct reserve *how, struct error *err)
{
	struct available available;
	struct reserve_want want = { .need = { .model = "m.gguf", .bytes = 10 * MIB },
				     .available = &available,
				     .root = root_of(recorded),
				     .pages = pages,
				     .numa_node = NUMA_NODE_NONE };
	struct arena arena;
	int rc;

	available_read(&available, want.root);
	rc = reserve_arena(&arena, how, &want, err);
	if (rc == 0)
		arena_close(&arena);
	return rc;
}

/* The pool has enough of them, and touching one beyond the limit would be a SIGBUS. */
static void
a_limit_below_the_pool_is_seen_before_anything_is_reserved(void **state)
{
	static const char *const limited[] = { "hugetlb-v2", "hugetlb-v2-outer",
					       "hugetlb-v2-container", "hugetlb-v1",
					       "hugetlb-v1-old" };
	struct reserve how;
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(limited) / sizeof(*limited); i++) {
		int rc = reserve(limited[i], ARENA_PAGES_HUGETLB, &how, &err);

		/* Of the outer group's six others have four: they may give them back. */
		assert_int_equal(rc, i == 1 ? -EBUSY : -EOVERFLOW);
		assert_non_null(strstr(err.text, "needs 5 pages of 2 MiB"));
		assert_non_null(strstr(err.text, "/hugetlb.2MB."));
		assert_int_equal(reserve(limited[i], ARENA_PAGES_AUTO, &how, &err), 0);
		assert_int_equal(how.asked, ARENA_PAGES_4K);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(version_2_limits_what_may_be_touched),
		cmocka_unit_test(what_may_be_set_aside_counts_and_so_does_every_group_up_the_tree),
		cmocka_unit_test(a_container_may_be_given_none),
		cmocka_unit_test(max_or_no_file_is_no_limit),
		cmocka_unit_test(version_1_limits_likewise),
		cmocka_unit_test(an_older_version_1_limits_what_may_be_touched),
		cmocka_unit_test(a_limit_below_the_pool_is_seen_before_anything_is_reserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
