/* loader/reserve.h, loader/numa.h: which pages are asked for, what is said when they cannot be had
 * or were not got, and which node is preferred. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/numa.h"
#include "loader/reserve.h"
#include "tests/machine.h"

#define MIB (1ull << 20)

static const struct pages_kernel bare = { .shmem = "never", .has_pool = true };

static enum arena_pages
choose(enum arena_pages wanted, const struct pages_kernel *kernel)
{
	const struct reserve_want want = { .need.bytes = 10 * MIB, .pages = wanted };
	enum arena_pages ret = ARENA_PAGES_AUTO;
	struct error err;

	assert_int_equal(reserve_choose(&ret, &want, kernel, &err), 0);
	return ret;
}

static void
auto_takes_the_pool_then_thp_then_small_pages(void **state)
{
	struct pages_kernel kernel = { .shmem = "advise", .has_pool = true, .pool_free = 5 };

	(void)state;
	assert_int_equal(choose(ARENA_PAGES_AUTO, &kernel), ARENA_PAGES_HUGETLB);
	kernel.pool_free = 4; /* one short */
	assert_int_equal(choose(ARENA_PAGES_AUTO, &kernel), ARENA_PAGES_THP);
	assert_int_equal(choose(ARENA_PAGES_AUTO, &bare), ARENA_PAGES_4K);
	assert_int_equal(choose(ARENA_PAGES_4K, &kernel), ARENA_PAGES_4K);
	assert_int_equal(choose(ARENA_PAGES_THP, &kernel), ARENA_PAGES_THP);
}

static void
refused_within(enum arena_pages wanted, const struct pages_kernel *kernel,
	       const struct pool_limit *limit, int code, const char *text)
{
	const struct reserve_want want = { .need.bytes = 10 * MIB,
					   .pages = wanted,
					   .limit = limit };
	enum arena_pages ret = ARENA_PAGES_AUTO;
	struct error err;

	assert_int_equal(reserve_choose(&ret, &want, kernel, &err), code);
	assert_string_equal(err.text, text);
	assert_int_equal(ret, ARENA_PAGES_AUTO);
	assert_int_equal(error_exit_code(code), code == -EBUSY ? EXIT_SYSTEM : EXIT_INPUT);
}

static void
refused(enum arena_pages wanted, const struct pages_kernel *kernel, int code, const char *text)
{
	refused_within(wanted, kernel, NULL, code, text);
}

static void
a_pool_one_page_short_is_refused_with_what_to_set(void **state)
{
	const struct pages_kernel kernel = { .has_pool = true, .pool_all = 4, .pool_free = 3 };

	(void)state;
	refused(ARENA_PAGES_HUGETLB, &kernel, -EOVERFLOW,
		"--pages hugetlb: needs 5 pages of 2 MiB, 3 of 4 are free: as root echo 6 > "
		"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or --pages auto");
}

/* Of a loader that has just died, for instance: a restart may find them free. */
static void
pages_that_others_have_now_may_be_had_later(void **state)
{
	const struct pages_kernel taken = { .has_pool = true, .pool_all = 7, .pool_free = 4 };
	const struct pages_kernel unsaid = { .has_pool = true, .pool_all = 7, .pool_free = 5 };
	const struct reserve_want want = { .need.bytes = 10 * MIB,
					   .pages = ARENA_PAGES_HUGETLB,
					   .without_pool = true };
	enum arena_pages ret;
	struct error err;

	(void)state;
	refused(ARENA_PAGES_HUGETLB, &taken, -EBUSY,
		"--pages hugetlb: needs 5 pages of 2 MiB, 4 of 7 are free, others have the rest: "
		"wait for them, or as root echo 8 > "
		"/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages, or --pages auto");
	assert_int_equal(reserve_choose(&ret, &want, &unsaid, &err), -EBUSY);
	assert_non_null(
	    strstr(err.text, "5 pages of 2 MiB are free, 5 are needed and were refused"));
}

static void
a_groups_limit_below_the_need_is_refused_with_what_to_write_there(void **state)
{
	const struct pages_kernel kernel = {
		.shmem = "advise", .has_pool = true, .pool_all = 7, .pool_free = 7
	};
	const struct pool_limit low = { .pages = 3, .most = 4, .where = "/g/hugetlb.2MB.max" };
	const struct pool_limit used = { .pages = 3, .most = 8, .where = "/g/hugetlb.2MB.max" };
	const struct reserve_want want = { .need.bytes = 10 * MIB, .limit = &low };
	enum arena_pages ret;
	struct error err;

	(void)state;
	refused_within(ARENA_PAGES_HUGETLB, &kernel, &low, -EOVERFLOW,
		       "--pages hugetlb: needs 5 pages of 2 MiB, /g/hugetlb.2MB.max allows 4: want "
		       "10485760 bytes there, or --pages auto");
	refused_within(ARENA_PAGES_HUGETLB, &kernel, &used, -EBUSY,
		       "--pages hugetlb: needs 5 pages of 2 MiB, 3 of the 8 that "
		       "/g/hugetlb.2MB.max allows are free, others have the rest: wait for them, "
		       "or --pages auto");
	assert_int_equal(reserve_choose(&ret, &want, &kernel, &err), 0);
	assert_int_equal(ret, ARENA_PAGES_THP); /* auto does without */
}

static void
huge_pages_that_the_kernel_never_gives_are_refused(void **state)
{
	const struct pages_kernel none = { 0 };

	(void)state;
	refused(ARENA_PAGES_THP, &bare, -ENOTSUP,
		"--pages thp: /sys/kernel/mm/transparent_hugepage/shmem_enabled is never: as root "
		"echo advise > it, or --pages auto");
	refused(ARENA_PAGES_THP, &none, -ENOTSUP,
		"--pages thp: this kernel has no huge pages for shared memory "
		"(/sys/kernel/mm/transparent_hugepage/shmem_enabled), want --pages auto");
	refused(ARENA_PAGES_HUGETLB, &none, -ENOTSUP,
		"--pages hugetlb: this kernel has no pool of 2 MiB pages "
		"(/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages), want --pages auto");
}

static const char *
advice_of(enum arena_pages wanted, const struct pages_kernel *kernel, uint64_t thp, bool slow)
{
	const struct reserve how = { .wanted = wanted, .kernel = *kernel, .slow = slow };
	const struct pages_got got = { .bytes = 10 * MIB, .thp = thp };
	static char advice[256];

	reserve_advice(advice, sizeof(advice), &how, &got, 10 * MIB);
	return advice;
}

static void
advice_says_what_to_set(void **state)
{
	const struct pages_kernel asks = { .shmem = "advise", .has_pool = true };
	const struct pages_kernel pool = { .has_pool = true, .pool_all = 3, .pool_free = 1 };

	(void)state;
	assert_string_equal(advice_of(ARENA_PAGES_AUTO, &bare, 0, false),
			    "/sys/kernel/mm/transparent_hugepage/shmem_enabled is never: as root "
			    "echo advise > it, or ./run.sh tune --apply");
	assert_non_null(strstr(advice_of(ARENA_PAGES_AUTO, &pool, 0, false), "echo 7 > /sys/"));
	assert_non_null(strstr(advice_of(ARENA_PAGES_THP, &asks, 4 * MIB, true), "too slowly"));
	assert_non_null(strstr(advice_of(ARENA_PAGES_4K, &asks, 0, false), "--pages auto"));
}

/* MADV_HUGEPAGE may answer 0 and give small pages: only what smaps says counts. */
static void
small_pages_are_told_though_huge_ones_were_granted(void **state)
{
	const struct pages_kernel asks = { .shmem = "advise" };

	(void)state;
	assert_non_null(strstr(advice_of(ARENA_PAGES_AUTO, &asks, 0, false), "compact_memory"));
	assert_non_null(
	    strstr(advice_of(ARENA_PAGES_AUTO, &asks, 8 * MIB, false), "compact_memory"));
	assert_string_equal(advice_of(ARENA_PAGES_AUTO, &asks, 10 * MIB, false), "");
}

static void
device(const struct machine *machine, const char *address, const char *vendor, const char *kind,
       const char *node)
{
	char name[96];

	snprintf(name, sizeof(name), "sys/bus/pci/devices/%s/vendor", address);
	machine_write(machine, name, vendor);
	snprintf(name, sizeof(name), "sys/bus/pci/devices/%s/class", address);
	machine_write(machine, name, kind);
	snprintf(name, sizeof(name), "sys/bus/pci/devices/%s/numa_node", address);
	machine_write(machine, name, node);
}

static void
the_gpus_node_is_preferred_where_there_are_several(void **state)
{
	struct machine *machine = *state;
	char note[128];

	machine_write(machine, "sys/devices/system/node/online", "0-1\n");
	device(machine, "0000:00:1f.0", "0x8086\n", "0x030000\n", "0\n");
	device(machine, "0000:41:00.0", "0x10de\n", "0x030200\n", "1\n");
	device(machine, "0000:41:00.1", "0x10de\n", "0x040300\n", "0\n"); /* its sound */
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), 1);
	assert_string_equal(note, "the GPU's, of 2 NUMA nodes");
	device(machine, "0000:81:00.0", "0x10de\n", "0x030200\n", "0\n");
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), -1);
	assert_string_equal(note, "GPUs on NUMA nodes 0 and 1: --numa-node N picks one");
}

static void
one_node_or_no_answer_is_no_preference(void **state)
{
	struct machine *machine = *state;
	char note[128];

	assert_int_equal(numa_find_node("/nonexistent", note, sizeof(note)), -1);
	machine_write(machine, "sys/devices/system/node/online", "0\n");
	device(machine, "0000:41:00.0", "0x10de\n", "0x030200\n", "0\n");
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), -1);
	assert_string_equal(note, "the machine has one NUMA node");
	machine_write(machine, "sys/devices/system/node/online", "0,2-3\n");
	device(machine, "0000:41:00.0", "0x10de\n", "0x030200\n", "-1\n");
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), -1);
	assert_string_equal(note, "3 NUMA nodes, and no GPU says which one is its own");
}

static void
a_node_that_does_not_exist_is_refused(void **state)
{
	struct machine *machine = *state;
	struct error err;

	machine_write(machine, "sys/devices/system/node/online", "0,2-3\n");
	assert_int_equal(numa_check_node(machine_path(machine, "sys"), 3, &err), 0);
	assert_int_equal(numa_check_node(machine_path(machine, "sys"), 1, &err), -ENODEV);
	assert_non_null(strstr(err.text, "--numa-node 1: no such node, the machine has 3"));
	machine_write(machine, "sys/devices/system/node/online", "0\n");
	assert_int_equal(numa_check_node(machine_path(machine, "sys"), 0, &err), 1);
}

static void
preferring_a_node_works_on_an_arena(void **state)
{
	struct arena arena;
	struct error err;
	int rc;

	(void)state;
	if (access("/sys/devices/system/node/node0", F_OK) < 0) {
		print_message("SKIPPED: this kernel has no NUMA\n");
		skip();
	}
	assert_int_equal(arena_create(&arena, 4 * MIB, ARENA_PAGES_4K, &err), 0);
	rc = numa_prefer(arena.base, arena.bytes, 0);
	if (rc == -EPERM || rc == -ENOSYS) {
		print_message("SKIPPED: mbind is forbidden here\n");
		arena_close(&arena);
		skip();
	}
	assert_int_equal(rc, 0);
	memset(arena.base, 1, arena.bytes);
	assert_int_equal(numa_prefer(arena.base, arena.bytes, NUMA_MAX_NODES), -EINVAL);
	arena_close(&arena);
}

/* The second GPU node, and a node of memory (CXL, HBM) or of cores alone, are nodes all the same.
 */
static void
a_gpu_on_node_1_puts_the_arena_there(void **state)
{
	struct machine *machine = *state;
	char note[128];

	machine_write(machine, "sys/devices/system/node/online", "0-1\n");
	machine_write(machine, "sys/devices/system/node/has_memory", "0-1\n");
	device(machine, "0000:41:00.0", "0x10de\n", "0x030200\n", "1\n");
	device(machine, "0000:42:00.0", "0x10de\n", "0x030000\n", "1\n");
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), 1);
	assert_string_equal(note, "the GPU's, of 2 NUMA nodes");
}

static void
a_node_without_memory_is_not_preferred(void **state)
{
	struct machine *machine = *state;
	struct error err;
	char note[128];

	machine_write(machine, "sys/devices/system/node/online", "0-2\n");
	machine_write(machine, "sys/devices/system/node/has_memory", "0,2\n");
	device(machine, "0000:41:00.0", "0x10de\n", "0x030200\n", "1\n");
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), -1);
	assert_string_equal(note, "the GPU's NUMA node 1 has no memory of its own");
	assert_int_equal(numa_check_node(machine_path(machine, "sys"), 2, &err), 0);
	assert_int_equal(numa_check_node(machine_path(machine, "sys"), 1, &err), -ENODEV);
	assert_non_null(strstr(err.text, "--numa-node 1: it has no memory, want one of those in "));
}

/* Where only one node has memory there is nothing to prefer. */
static void
one_node_with_memory_is_the_only_one(void **state)
{
	struct machine *machine = *state;
	struct error err;
	char note[128];

	machine_write(machine, "sys/devices/system/node/online", "0-1\n");
	machine_write(machine, "sys/devices/system/node/has_memory", "0\n");
	device(machine, "0000:41:00.0", "0x10de\n", "0x030200\n", "1\n");
	assert_int_equal(numa_find_node(machine_path(machine, "sys"), note, sizeof(note)), -1);
	assert_string_equal(note, "the machine has one NUMA node with memory");
	assert_int_equal(numa_check_node(machine_path(machine, "sys"), 0, &err), 1);
}

#define MACHINE_TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auto_takes_the_pool_then_thp_then_small_pages),
		cmocka_unit_test(a_pool_one_page_short_is_refused_with_what_to_set),
		cmocka_unit_test(pages_that_others_have_now_may_be_had_later),
		cmocka_unit_test(a_groups_limit_below_the_need_is_refused_with_what_to_write_there),
		cmocka_unit_test(huge_pages_that_the_kernel_never_gives_are_refused),
		cmocka_unit_test(advice_says_what_to_set),
		cmocka_unit_test(small_pages_are_told_though_huge_ones_were_granted),
		MACHINE_TEST(the_gpus_node_is_preferred_where_there_are_several),
		MACHINE_TEST(one_node_or_no_answer_is_no_preference),
		MACHINE_TEST(a_gpu_on_node_1_puts_the_arena_there),
		MACHINE_TEST(a_node_without_memory_is_not_preferred),
		MACHINE_TEST(one_node_with_memory_is_the_only_one),
		MACHINE_TEST(a_node_that_does_not_exist_is_refused),
		cmocka_unit_test(preferring_a_node_works_on_an_arena),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
