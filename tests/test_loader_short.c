/* loader/load_pages.h: loads on machines whose memory is not there when it is wanted: a line and no
 * signal, and what can be done without is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "loader/load_pages.h"
#include "tests/knobs.h"
#include "tests/load_case.h"

#define SHMEM "/sys/" PAGES_SHMEM_KNOB
#define POOL "/sys/" PAGES_POOL_KNOB
#define CHUNKS 6 /* 2 MiB pages of the arena: the directory and the slices */

/* A container whose control group allows fewer huge pages than the pool has. */
static atomic_int pool_pages;

static int
populate_until_refused(void *at, uint64_t bytes)
{
	if (atomic_fetch_sub(&pool_pages, (int)(bytes / PAGES_HUGE_BYTES)) <= 0)
		return -EFAULT;
	return populate_system.populate(at, bytes);
}

static void
a_pool_that_ends_at_the_touch_is_done_without(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = load_case_pages(ARENA_PAGES_AUTO);
	struct load load = load_case_new(&options);

	(void)state;
	knob_need(SHMEM, "never");
	knob_need(POOL, "6");
	calls.populate = populate_until_refused;
	options.populate = &calls;
	atomic_store(&pool_pages, 2);
	assert_int_equal(load_case_run(&load), -ENOMEM);
	assert_non_null(strstr(loading.err.text, "no memory for"));
	assert_true(load_pages_ran_out(&load));
	load_start_over(&load);
	atomic_store(&pool_pages, CHUNKS + 1);
	options.populate = &populate_system;
	assert_int_equal(load_case_run(&load), 0);
	assert_false(load_pages_ran_out(&load));
	assert_string_equal(board_edit(loading.board)->pages->got, "4k");
	board_publish(loading.board);
	load_close(&load);
}

static void
a_forced_pool_that_ends_at_the_touch_says_what_to_do(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = load_case_pages(ARENA_PAGES_HUGETLB);
	struct load load = load_case_new(&options);
	int rc;

	(void)state;
	knob_need(POOL, "6");
	calls.populate = populate_until_refused;
	options.populate = &calls;
	atomic_store(&pool_pages, 2);
	rc = load_case_run(&load);
	assert_int_equal(rc, -ENOMEM);
	assert_false(load_pages_ran_out(&load));
	load_pages_explain(&load, rc, &loading.err);
	assert_non_null(strstr(loading.err.text, "no memory for"));
	assert_non_null(strstr(loading.err.text, "want --pages auto"));
	load_close(&load);
}

static void
memory_that_is_not_there_is_a_line_and_no_signal(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = load_case_pages(ARENA_PAGES_4K);
	struct load load = load_case_new(&options);

	(void)state;
	calls.populate = populate_until_refused;
	options.populate = &calls;
	atomic_store(&pool_pages, 0); /* not even for the directory */
	assert_int_equal(load_case_run(&load), -ENOMEM);
	assert_non_null(strstr(loading.err.text, "no memory for the arena's directory (4k pages)"));
	load_close(&load);
	load = load_case_new(&options);
	atomic_store(&pool_pages, 3);
	assert_int_equal(load_case_run(&load), -ENOMEM);
	assert_non_null(strstr(loading.err.text, "no memory for"));
	assert_false(load_pages_ran_out(&load));
	load_close(&load);
}

/* The group's folder, or NULL: this process may not make one. */
static const char *
limited_group(const char *bytes)
{
	static const char *const roots[][2] = {
		{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
		{ "/sys/fs/cgroup", "memory.max" },
	};
	static char group[96];
	char path[160];

	for (uint32_t i = 0; i < 2; i++) {
		FILE *file;

		snprintf(group, sizeof(group), "%s/hearth-test-%d", roots[i][0], (int)getpid());
		if (mkdir(group, 0700) < 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", group, roots[i][1]);
		file = fopen(path, "r+");
		if (file && fputs(bytes, file) >= 0 && fclose(file) == 0)
			return group;
		rmdir(group);
	}
	return NULL;
}

static bool
join(const char *group)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	file = fopen(path, "w");
	return file && fprintf(file, "%d", (int)getpid()) > 0 && fclose(file) == 0;
}

static void
a_control_group_too_small_is_refused_before_anything_is_reserved(void **state)
{
	struct load_options options = load_case_pages(ARENA_PAGES_4K);
	struct load load = load_case_new(&options);
	const char *group = limited_group("8388608");
	int status;
	pid_t child;

	(void)state;
	if (!group) {
		print_message("SKIPPED: no control group can be made here (want root)\n");
		skip();
	}
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		/* nng must not be used here. */
		if (!join(group) || load_plan(&load, &loading.err) < 0)
			_exit(2);
		available_read(&load.available, "");
		_exit(load_reserve(&load, &loading.err) == -EOVERFLOW &&
			      strstr(loading.err.text, "needs 12 MiB of memory") &&
			      strstr(loading.err.text, "hearth-test-") && load.arena.fd < 0
			  ? 0
			  : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(rmdir(group), 0);
	assert_int_equal(status, 0);
}

/* In a child, so that the limit ends with it. */
static void
too_little_address_space_is_a_line(void **state)
{
	const struct rlimit limit = { 1 << 20, 1 << 20 };
	struct arena arena;
	int status;
	pid_t child;

	(void)state;
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int rc = setrlimit(RLIMIT_AS, &limit);

		if (rc == 0)
			rc = arena_create(&arena, 1ull << 40, ARENA_PAGES_4K, &loading.err);
		_exit(rc == -ENOMEM && strstr(loading.err.text, "address space") ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* As Linux before 5.14 answers, which has no such advice: nobody's input is wrong. */
static int
populate_unknown(void *at, uint64_t bytes)
{
	(void)at;
	(void)bytes;
	return -EINVAL;
}

static void
a_call_that_the_kernel_does_not_know_is_its_failure(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = load_case_pages(ARENA_PAGES_4K);
	struct load load = load_case_new(&options);

	(void)state;
	calls.populate = populate_unknown;
	options.populate = &calls;
	assert_int_equal(error_exit_code(load_case_run(&load)), EXIT_SYSTEM);
	assert_non_null(strstr(loading.err.text, "Invalid argument"));
	load_close(&load);
}

#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, load_case_setup, load_case_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LOAD_TEST(a_pool_that_ends_at_the_touch_is_done_without),
		LOAD_TEST(a_forced_pool_that_ends_at_the_touch_says_what_to_do),
		LOAD_TEST(memory_that_is_not_there_is_a_line_and_no_signal),
		LOAD_TEST(a_control_group_too_small_is_refused_before_anything_is_reserved),
		LOAD_TEST(a_call_that_the_kernel_does_not_know_is_its_failure),
		cmocka_unit_test(too_little_address_space_is_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
