/* common/beside.h: whole and in its place, or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/beside.h"
#include "tests/scratch.h"

static char path[96], made[120];
static struct error err;

static int
setup(void **state)
{
	int rc = scratch_setup(state);

	snprintf(path, sizeof(path), "%s/file", scratch_of_test.dir);
	snprintf(made, sizeof(made), "%s.%d.new", path, (int)getpid());
	return rc;
}

static void
write_text(const char *text)
{
	struct beside beside;

	assert_int_equal(beside_open(&beside, path, &err), 0);
	fputs(text, beside.file);
	assert_int_equal(beside_close(&beside, &err), 0);
}

static void
expect_text(const char *want)
{
	char text[32] = "";
	FILE *file = fopen(path, "r");

	assert_non_null(file);
	assert_non_null(fgets(text, sizeof(text), file));
	fclose(file);
	assert_string_equal(text, want);
}

static void
expect_nothing_beside(void)
{
	assert_int_equal(access(made, F_OK), -1);
}

static void
the_old_one_stands_until_the_new_one_is_whole(void **state)
{
	struct beside beside;

	(void)state;
	write_text("old");
	assert_int_equal(beside_open(&beside, path, &err), 0);
	fputs("new", beside.file);
	fflush(beside.file);
	assert_int_equal(access(made, F_OK), 0);
	expect_text("old");
	assert_int_equal(beside_close(&beside, &err), 0);
	expect_text("new");
	expect_nothing_beside();
}

static void
what_is_no_file_is_written_to_and_stays_what_it_is(void **state)
{
	struct beside beside;
	struct stat st;
	char text[8] = "";
	int pipe;

	(void)state;
	assert_int_equal(mkfifo(path, 0600), 0);
	pipe = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	assert_true(pipe >= 0);
	assert_int_equal(beside_open(&beside, path, &err), 0);
	fputs("new", beside.file);
	expect_nothing_beside();
	assert_int_equal(beside_close(&beside, &err), 0);
	assert_int_equal(read(pipe, text, sizeof(text) - 1), 3);
	assert_string_equal(text, "new");
	close(pipe);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
}

/* A drive without room, by a device that is always full. */
static void
what_could_not_be_written_changes_nothing(void **state)
{
	struct beside beside;

	(void)state;
	write_text("old");
	assert_int_equal(symlink("/dev/full", made), 0);
	assert_int_equal(beside_open(&beside, path, &err), 0);
	fputs("new", beside.file);
	assert_int_equal(beside_close(&beside, &err), -ENOSPC);
	assert_non_null(strstr(err.text, "file: writing: No space left"));
	assert_int_equal(error_exit_code(-ENOSPC), EXIT_SYSTEM);
	expect_text("old");
	expect_nothing_beside();
}

static void
a_place_that_cannot_be_taken_is_the_users_input(void **state)
{
	struct beside beside;

	(void)state;
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(beside_open(&beside, path, &err), -EISDIR);
	expect_nothing_beside();
	rmdir(path);
	snprintf(path, sizeof(path), "%s/none/file", scratch_of_test.dir);
	assert_int_equal(beside_open(&beside, path, &err), -ENOENT);
	assert_int_equal(error_exit_code(-ENOENT), EXIT_INPUT);
}

#define BESIDE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, scratch_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		BESIDE_TEST(the_old_one_stands_until_the_new_one_is_whole),
		BESIDE_TEST(what_is_no_file_is_written_to_and_stays_what_it_is),
		BESIDE_TEST(what_could_not_be_written_changes_nothing),
		BESIDE_TEST(a_place_that_cannot_be_taken_is_the_users_input),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
