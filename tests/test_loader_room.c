/* loader/room.h: the tightest limit counts, and too little is refused with both numbers. */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "loader/room.h"

#define GIB (1ull << 30)

static char folder[64], proc[80], cgroup[80];

static void
write_text(const char *base, const char *name, const char *text)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", base, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void
make(const char *base, const char *name)
{
	char path[200];

	snprintf(path, sizeof(path), "%s/%s", base, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* A machine with 10 GiB available and the process in the group /a/b. */
static int
make_machine(void **state)
{
	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/hearth-room-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(proc, sizeof(proc), "%s/proc", folder);
	snprintf(cgroup, sizeof(cgroup), "%s/cgroup", folder);
	make(folder, "proc");
	make(folder, "proc/self");
	make(folder, "cgroup");
	make(folder, "cgroup/a");
	make(folder, "cgroup/a/b");
	write_text(proc, "meminfo",
		   "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:   10485760 kB\n");
	write_text(proc, "self/cgroup", "0::/a/b\n");
	return 0;
}

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

static int
remove_machine(void **state)
{
	(void)state;
	return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void
without_limits_the_machine_counts(void **state)
{
	(void)state;
	assert_true(room_available(proc, cgroup) == 10 * GIB);
	write_text(cgroup, "a/memory.max", "max\n");
	assert_true(room_available(proc, cgroup) == 10 * GIB);
}

static void
a_group_up_the_tree_counts(void **state)
{
	(void)state;
	write_text(cgroup, "a/b/memory.max", "max\n");
	write_text(cgroup, "a/memory.max", "4294967296\n");
	write_text(cgroup, "a/memory.current", "1073741824\n");
	assert_true(room_available(proc, cgroup) == 3 * GIB);
	write_text(cgroup, "a/b/memory.max", "2147483648\n");
	write_text(cgroup, "a/b/memory.current", "1073741824\n");
	assert_true(room_available(proc, cgroup) == 1 * GIB);
}

static void
cache_of_files_counts_as_free(void **state)
{
	(void)state;
	write_text(cgroup, "a/b/memory.max", "2147483648\n");
	write_text(cgroup, "a/b/memory.current", "2147483648\n");
	assert_true(room_available(proc, cgroup) == 0);
	write_text(cgroup, "a/b/memory.stat",
		   "anon 5\nfile 9\ninactive_file 536870912\nactive_file 536870912\n");
	assert_true(room_available(proc, cgroup) == 1 * GIB);
}

static void
a_group_over_its_limit_has_no_room(void **state)
{
	(void)state;
	write_text(cgroup, "a/b/memory.max", "1000\n");
	write_text(cgroup, "a/b/memory.current", "5000\n");
	assert_true(room_available(proc, cgroup) == 0);
}

static void
a_machine_that_says_nothing_has_no_limit(void **state)
{
	(void)state;
	assert_true(room_available("/nonexistent", "/nonexistent") == UINT64_MAX);
}

static void
too_little_is_refused_with_need_and_room(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(room_check(3 * GIB, 3 * GIB, "m.gguf", &err), 0);
	assert_int_equal(room_check(3 * GIB + 1, 3 * GIB, "m.gguf", &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "m.gguf: needs 3073 MiB of memory, 3072 MiB are"));
	assert_int_equal(error_exit_code(-EOVERFLOW), EXIT_INPUT);
}

#define ROOM_TEST(name) cmocka_unit_test_setup_teardown(name, make_machine, remove_machine)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ROOM_TEST(without_limits_the_machine_counts),
		ROOM_TEST(a_group_up_the_tree_counts),
		ROOM_TEST(cache_of_files_counts_as_free),
		ROOM_TEST(a_group_over_its_limit_has_no_room),
		cmocka_unit_test(a_machine_that_says_nothing_has_no_limit),
		cmocka_unit_test(too_little_is_refused_with_need_and_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
