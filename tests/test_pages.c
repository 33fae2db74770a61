/* common/pages.h: what recorded files of the kernel say, and that smaps is believed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common/pages.h"
#include "tests/machine.h"

#define MIB (1ull << 20)

/* Two mappings of the arena, split by madvise, between others that count for nothing. */
static const char recorded_smaps[] =
    "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n"
    "Size:               4096 kB\nRss:                4096 kB\nShmemPmdMapped:     4096 kB\n"
    "7f0001000000-7f0001800000 rw-s 00000000 00:01 2477   /memfd:hearth-arena (deleted)\n"
    "Size:               8192 kB\nKernelPageSize:        4 kB\nRss:                8192 kB\n"
    "Pss:                8192 kB\nAnonHugePages:         0 kB\nShmemPmdMapped:     8192 kB\n"
    "Shared_Hugetlb:        0 kB\nPrivate_Hugetlb:       0 kB\nVmFlags: rd wr sh mr mw me ms hg \n"
    "7f0001800000-7f0002000000 rw-s 00800000 00:01 2477   /memfd:hearth-arena (deleted)\n"
    "Rss:                6144 kB\nShmemPmdMapped:        0 kB\n"
    "7f0002000000-7f0002400000 rw-s 00000000 00:01 2480   /memfd:other (deleted)\n"
    "Rss:                4096 kB\nShmemPmdMapped:     4096 kB\n";

static void
only_the_arenas_mappings_count(void **state)
{
	struct machine *machine = *state;
	struct pages_got got;
	struct error err;

	machine_write(machine, "smaps", recorded_smaps);
	assert_int_equal(pages_read_mapping(&got, machine_path(machine, "smaps"), 0x7f0001000000,
					    0x7f0002000000, &err),
			 0);
	assert_int_equal(got.bytes, 14 * MIB);
	assert_int_equal(got.thp, 8 * MIB);
	assert_int_equal(got.hugetlb, 0);
	assert_string_equal(pages_got_word(&got), "thp+4k");
}

static void
pages_of_the_pool_count_though_rss_does_not(void **state)
{
	struct machine *machine = *state;
	struct pages_got got;
	struct error err;

	machine_write(
	    machine, "smaps",
	    "7f0001000000-7f0001800000 rw-s 00000000 00:11 59 /memfd:hearth-arena (deleted)\n"
	    "KernelPageSize:     2048 kB\nRss:                   0 kB\n"
	    "ShmemPmdMapped:        0 kB\nShared_Hugetlb:     2048 kB\n"
	    "Private_Hugetlb:    6144 kB\n");
	assert_int_equal(pages_read_mapping(&got, machine_path(machine, "smaps"), 0x7f0001000000,
					    0x7f0001800000, &err),
			 0);
	assert_int_equal(got.bytes, 8 * MIB);
	assert_int_equal(got.hugetlb, 8 * MIB);
	assert_string_equal(pages_got_word(&got), "hugetlb");
}

static void
a_mapping_that_nobody_touched_has_no_pages(void **state)
{
	struct machine *machine = *state;
	struct pages_got got;
	struct error err;

	machine_write(machine, "smaps", recorded_smaps);
	assert_int_equal(
	    pages_read_mapping(&got, machine_path(machine, "smaps"), 0x1000, 0x2000, &err), 0);
	assert_string_equal(pages_got_word(&got), "");
	assert_int_equal(error_exit_code(pages_read_mapping(&got, "/nonexistent", 0, 1, &err)),
			 EXIT_SYSTEM);
	assert_non_null(strstr(err.text, "/nonexistent"));
}

static void
the_word_in_brackets_is_what_stands_there(void **state)
{
	struct machine *machine = *state;
	struct pages_kernel kernel;

	machine_write(machine, "sys/" PAGES_SHMEM_KNOB,
		      "always within_size [advise] never deny force\n");
	pages_read_kernel(&kernel, machine_path(machine, "sys"));
	assert_string_equal(kernel.shmem, "advise");
	assert_true(pages_thp_possible(&kernel));
	machine_write(machine, "sys/" PAGES_SHMEM_KNOB,
		      "always within_size advise [never] deny force\n");
	pages_read_kernel(&kernel, machine_path(machine, "sys"));
	assert_false(pages_thp_possible(&kernel));
	assert_false(kernel.has_pool);
}

static void
the_switch_of_one_size_rules_unless_it_inherits(void **state)
{
	struct machine *machine = *state;
	const char *own = "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled";
	struct pages_kernel kernel;

	machine_write(machine, "sys/" PAGES_SHMEM_KNOB, "always [advise] never\n");
	machine_write(machine, own, "always [inherit] within_size advise never\n");
	pages_read_kernel(&kernel, machine_path(machine, "sys"));
	assert_string_equal(kernel.shmem, "advise");
	machine_write(machine, own, "always inherit within_size advise [never]\n");
	pages_read_kernel(&kernel, machine_path(machine, "sys"));
	assert_false(pages_thp_possible(&kernel));
}

static void
pages_set_aside_are_not_free(void **state)
{
	struct machine *machine = *state;
	struct pages_kernel kernel;

	machine_pool(machine, 100, 40, 30);
	pages_read_kernel(&kernel, machine_path(machine, "sys"));
	assert_true(kernel.has_pool);
	assert_int_equal(kernel.pool_all, 100);
	assert_int_equal(kernel.pool_free, 10);
	machine_pool(machine, 100, 10, 30);
	pages_read_kernel(&kernel, machine_path(machine, "sys"));
	assert_int_equal(kernel.pool_free, 0);
}

static void
a_kernel_without_huge_pages_has_none(void **state)
{
	struct pages_kernel kernel;

	(void)state;
	pages_read_kernel(&kernel, "/nonexistent");
	assert_false(kernel.has_pool);
	assert_false(pages_thp_possible(&kernel));
}

static void
words_and_kinds_agree(void **state)
{
	enum arena_pages pages;

	(void)state;
	for (uint32_t i = ARENA_PAGES_AUTO; i <= ARENA_PAGES_HUGETLB; i++) {
		assert_int_equal(pages_of_word(&pages, pages_word((enum arena_pages)i)), 0);
		assert_int_equal(pages, i);
	}
	assert_int_equal(pages_of_word(&pages, "1g"), -EINVAL);
	assert_int_equal(pages_needed(1), 1);
	assert_int_equal(pages_needed(4 * MIB), 2);
	assert_int_equal(pages_needed(4 * MIB + 1), 3);
}

#define PAGES_TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, machine_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		PAGES_TEST(only_the_arenas_mappings_count),
		PAGES_TEST(pages_of_the_pool_count_though_rss_does_not),
		PAGES_TEST(a_mapping_that_nobody_touched_has_no_pages),
		PAGES_TEST(the_word_in_brackets_is_what_stands_there),
		PAGES_TEST(the_switch_of_one_size_rules_unless_it_inherits),
		PAGES_TEST(pages_set_aside_are_not_free),
		cmocka_unit_test(a_kernel_without_huge_pages_has_none),
		cmocka_unit_test(words_and_kinds_agree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
