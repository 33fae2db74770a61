/* loader/available.h: files as kernels wrote them, recorded under tests/data/cgroup. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "loader/available.h"

#define GIB (1ull << 30)

/* Every recorded machine has 64 GiB available beside its groups. */
static void
expect(const char *recorded, uint64_t bytes, const char *limit)
{
	struct available available;
	char root[128];

	snprintf(root, sizeof(root), "tests/data/cgroup/%s", recorded);
	available_read(&available, root);
	if (available.bytes != bytes || strcmp(available.limit, limit) != 0)
		fail_msg("%s: %.3f GiB by %s, want %.3f by %s", recorded,
			 (double)available.bytes / GIB, available.limit, (double)bytes / GIB,
			 limit);
}

static void
clean_cache_of_files_is_free(void **state)
{
	(void)state;
	expect("v2-clean-cache", 48 * GIB, "/sys/fs/cgroup/user.slice/work");
}

static void
what_must_be_written_back_is_not(void **state)
{
	(void)state;
	expect("v2-dirty", 42 * GIB, "/sys/fs/cgroup/work");
}

/* The arena itself is such memory. */
static void
shared_memory_is_not(void **state)
{
	(void)state;
	expect("v2-shared-memory", 18 * GIB, "/sys/fs/cgroup/work");
}

static void
the_tightest_group_up_the_tree_counts(void **state)
{
	(void)state;
	expect("v2-inner-looser", 7 * GIB, "/sys/fs/cgroup/outer");
	expect("v2-inner-tighter", 3 * GIB, "/sys/fs/cgroup/outer/inner");
}

static void
max_is_no_limit(void **state)
{
	(void)state;
	expect("v2-max", 64 * GIB, "MemAvailable");
}

static void
missing_files_are_no_limit(void **state)
{
	(void)state;
	expect("v2-missing-files", 64 * GIB, "MemAvailable");
	expect("v2-no-mountinfo", 64 * GIB, "MemAvailable");
	expect("no-limits", 64 * GIB, "MemAvailable");
}

static void
a_group_over_its_limit_has_no_room(void **state)
{
	(void)state;
	expect("v2-over-its-limit", 0, "/sys/fs/cgroup/a");
}

static void
a_container_sees_its_own_group_at_the_mount(void **state)
{
	(void)state;
	expect("v2-container", 8 * GIB, "/sys/fs/cgroup");
	expect("v2-other-namespace", 8 * GIB, "/sys/fs/cgroup");
}

static void
a_mount_may_lie_anywhere(void **state)
{
	(void)state;
	expect("v2-odd-mount", 7 * GIB, "/mnt/control groups/work");
}

static void
a_mount_of_another_group_does_not_decide(void **state)
{
	(void)state;
	expect("v2-foreign-first", 48 * GIB, "/sys/fs/cgroup/user.slice/work");
}

/* 32 - (28 - (12 - 1 - 1 - 2)). */
static void
version_1_counts_likewise(void **state)
{
	(void)state;
	expect("v1", 12 * GIB, "/sys/fs/cgroup/memory/box");
}

static void
memory_of_version_1_beside_version_2_counts(void **state)
{
	(void)state;
	expect("mixed", 12 * GIB, "/sys/fs/cgroup/memory/box");
}

static void
a_machine_that_says_nothing_is_unknown(void **state)
{
	(void)state;
	expect("none-recorded", AVAILABLE_UNKNOWN, "");
}

static void
this_machine_says(void **state)
{
	struct available available;

	(void)state;
	available_read(&available, "");
	assert_true(available.bytes > 0 && available.bytes != AVAILABLE_UNKNOWN);
	assert_true(available.limit[0] != '\0');
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clean_cache_of_files_is_free),
		cmocka_unit_test(what_must_be_written_back_is_not),
		cmocka_unit_test(shared_memory_is_not),
		cmocka_unit_test(the_tightest_group_up_the_tree_counts),
		cmocka_unit_test(max_is_no_limit),
		cmocka_unit_test(missing_files_are_no_limit),
		cmocka_unit_test(a_group_over_its_limit_has_no_room),
		cmocka_unit_test(a_container_sees_its_own_group_at_the_mount),
		cmocka_unit_test(a_mount_may_lie_anywhere),
		cmocka_unit_test(a_mount_of_another_group_does_not_decide),
		cmocka_unit_test(version_1_counts_likewise),
		cmocka_unit_test(memory_of_version_1_beside_version_2_counts),
		cmocka_unit_test(a_machine_that_says_nothing_is_unknown),
		cmocka_unit_test(this_machine_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
