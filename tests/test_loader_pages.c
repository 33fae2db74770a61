/* loader/load_pages.h: whole loads on each kind of pages: the same bytes, what was got is what
 * smaps tells, and what was not got is said with what would help. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "loader/load_pages.h"
#include "tests/knobs.h"
#include "tests/load_case.h"

#define SHMEM "/sys/" PAGES_SHMEM_KNOB
#define POOL "/sys/" PAGES_POOL_KNOB
#define SLICES LOAD_SLICES
#define CHUNKS 6 /* 2 MiB pages of the arena: the directory and the slices */

/* The state's pages are `got`; returns the arena's checksum. */
static uint64_t
loads_with(enum arena_pages pages, const char *got)
{
	struct load_options options = load_case_pages(pages);
	struct load load = load_case_new(&options);
	const Hearth__Pages *said;
	uint64_t checksum;

	if (load_case_run(&load) < 0)
		fail_msg("%s", loading.err.text);
	checksum = checksum_whole(load.checksums, load.placement.n_slices);
	said = board_edit(loading.board)->pages;
	assert_string_equal(said->wanted, pages_word(pages));
	assert_string_equal(said->got, got);
	assert_int_equal(said->bytes, load.arena.bytes);
	assert_int_equal(said->huge_bytes, strcmp(got, "4k") == 0 ? 0 : said->bytes);
	assert_true((said->advice[0] == '\0') == (said->huge_bytes == said->bytes));
	assert_true(said->numa_note[0] != '\0');
	board_publish(loading.board);
	assert_int_equal(load.arena.bytes, CHUNKS * PAGES_HUGE_BYTES);
	/* Sealed: nobody can get a writable mapping of it any more. */
	assert_ptr_equal(
	    mmap(NULL, load.arena.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, load.arena.fd, 0),
	    MAP_FAILED);
	load_close(&load);
	return checksum;
}

static void
all_kinds_of_pages_hold_the_same_bytes(void **state)
{
	uint64_t checksum = loads_with(ARENA_PAGES_4K, "4k");

	(void)state;
	knob_need(SHMEM, "advise");
	assert_true(loads_with(ARENA_PAGES_THP, "thp") == checksum);
	knob_need(POOL, "6");
	assert_true(loads_with(ARENA_PAGES_HUGETLB, "hugetlb") == checksum);
}

static void
auto_takes_the_best_there_is(void **state)
{
	(void)state;
	knob_need(SHMEM, "advise");
	knob_need(POOL, "6");
	loads_with(ARENA_PAGES_AUTO, "hugetlb");
	knob_need(POOL, "5"); /* one short */
	loads_with(ARENA_PAGES_AUTO, "thp");
	knob_need(SHMEM, "never");
	loads_with(ARENA_PAGES_AUTO, "4k");
}

static void
refuses(enum arena_pages pages, const char *part)
{
	struct load_options options = load_case_pages(pages);
	struct load load = load_case_new(&options);

	assert_int_equal(error_exit_code(load_case_run(&load)), EXIT_INPUT);
	assert_non_null(strstr(loading.err.text, part));
	load_close(&load);
}

static void
a_kind_that_was_forced_and_is_not_there_is_refused(void **state)
{
	(void)state;
	knob_need(SHMEM, "never");
	refuses(ARENA_PAGES_THP, "shmem_enabled is never: as root echo advise > it");
	knob_need(POOL, "5");
	refuses(ARENA_PAGES_HUGETLB, "needs 6 pages of 2 MiB, 5 of 5 are free: as root echo 6 >");
}

static void
small_pages_stay_small_though_the_kernel_gives_huge_ones_unasked(void **state)
{
	(void)state;
	knob_need(SHMEM, "always");
	loads_with(ARENA_PAGES_4K, "4k");
}

static void
a_warm_arena_has_the_pages_it_was_made_of(void **state)
{
	struct load_options small = load_case_pages(ARENA_PAGES_4K),
			    huge = load_case_pages(ARENA_PAGES_THP);
	struct load first = load_case_new(&huge), second = load_case_new(&small);
	const Hearth__Pages *said;

	(void)state;
	knob_need(SHMEM, "advise");
	assert_int_equal(load_case_run(&first), 0);
	load_case_show(&first, SLICES);
	assert_int_equal(load_case_run(&second), 0);
	assert_true(second.adopted);
	said = board_edit(loading.board)->pages;
	assert_string_equal(said->wanted, "4k");
	assert_string_equal(said->got, "thp");
	assert_int_equal(said->huge_bytes, first.arena.bytes);
	assert_int_equal(said->numa_node, NUMA_NODE_NONE);
	board_publish(loading.board);
	load_close(&second);
	load_close(&first);
}

#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, load_case_setup, load_case_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LOAD_TEST(all_kinds_of_pages_hold_the_same_bytes),
		LOAD_TEST(auto_takes_the_best_there_is),
		LOAD_TEST(a_kind_that_was_forced_and_is_not_there_is_refused),
		LOAD_TEST(small_pages_stay_small_though_the_kernel_gives_huge_ones_unasked),
		LOAD_TEST(a_warm_arena_has_the_pages_it_was_made_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
