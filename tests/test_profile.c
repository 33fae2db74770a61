/* common/profile.h */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/profile.h"
#include "tests/scratch.h"

#define LAYERS 2u
#define EXPERTS 3u

static const struct profile_shape shape = { 0x00c0ffee12345678ull, LAYERS, EXPERTS };

static const char *
path(void)
{
	static char text[512];

	snprintf(text, sizeof(text), "%s/profile", scratch_of_test.dir);
	return text;
}

static void
put(const char *text)
{
	FILE *file = fopen(path(), "w");

	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void
what_is_written_is_read(void **state)
{
	const uint64_t counts[] = { 0, 1, UINT64_MAX, 7, 0, 123456789012345ull };
	const uint64_t later[] = { 1, 2, 3, 4, 5, 6 };
	uint64_t got[LAYERS * EXPERTS];
	struct error err;
	char text[256];
	FILE *file;

	(void)state;
	assert_int_equal(profile_write(path(), &shape, counts, &err), 0);
	assert_int_equal(profile_read(path(), &shape, got, &err), 0);
	assert_memory_equal(got, counts, sizeof(counts));
	file = fopen(path(), "r");
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
	assert_string_equal(text, "hearth-profile 2 00c0ffee12345678 2 3\n"
				  "0 1 18446744073709551615\n7 0 123456789012345\n");
	assert_int_equal(profile_write(path(), &shape, later, &err), 0);
	assert_int_equal(profile_read(path(), &shape, got, &err), 0);
	assert_memory_equal(got, later, sizeof(later));
}

static void
a_profile_that_cannot_be_written_leaves_the_old_one(void **state)
{
	const uint64_t counts[] = { 1, 2, 3, 4, 5, 6 };
	uint64_t got[LAYERS * EXPERTS];
	char beside[600];
	struct error err;

	(void)state;
	assert_int_equal(profile_write(path(), &shape, counts, &err), 0);
	snprintf(beside, sizeof(beside), "%s.%d.new", path(), (int)getpid());
	assert_int_equal(mkdir(beside, 0700), 0);
	assert_int_equal(profile_write(path(), &shape, counts, &err), -EISDIR);
	assert_non_null(strstr(err.text, beside));
	assert_int_equal(rmdir(beside), 0);
	assert_int_equal(profile_read(path(), &shape, got, &err), 0);
	assert_memory_equal(got, counts, sizeof(counts));
}

static void
none_yet_is_told_apart(void **state)
{
	uint64_t got[LAYERS * EXPERTS];
	struct error err;

	(void)state;
	assert_int_equal(profile_read(path(), &shape, got, &err), -ENOENT);
}

static void
refused(const char *text, const char *says)
{
	uint64_t got[LAYERS * EXPERTS] = { 42 };
	struct error err;

	put(text);
	assert_int_equal(profile_read(path(), &shape, got, &err), -EBADMSG);
	if (strstr(err.text, says) == NULL)
		fail_msg("\"%s\" does not say \"%s\"", err.text, says);
	assert_int_equal(got[0], 42);
}

#define HEAD "hearth-profile 2 00c0ffee12345678 2 3\n"

static void
what_is_no_profile_of_this_model_is_refused_with_both_values(void **state)
{
	(void)state;
	refused("", "begins with \"\"");
	refused("hearth-profile 2 00c0ffee12345679 2 3\n1 2 3\n4 5 6\n", "00c0ffee12345679");
	refused("hearth-profile 2 00c0ffee12345679 2 3\n1 2 3\n4 5 6\n", "00c0ffee12345678");
	refused("hearth-profile 2 00c0ffee12345678 3 2\n1 2\n3 4\n5 6\n", " 3 2\"");
	refused("hearth-profile 1 00c0ffee12345678 2 3\n1 2 3\n4 5 6\n", "profile 1");
	refused(HEAD, "layer 0");
	refused(HEAD "1 2 3\n", "layer 1");
	refused(HEAD "1 2\n3 4 5 6\n", "layer 0");
	refused(HEAD "1 2 3 4 5 6\n", "layer 0");
	refused(HEAD "1 2 3\n4 5 6", "layer 1");
	refused(HEAD "1 2 3\n4 -5 6\n", "layer 1");
	refused(HEAD "1 2 3\n4  5 6\n", "layer 1");
	refused(HEAD "1 2 3\n4 5 18446744073709551616\n", "layer 1");
	refused(HEAD "1 2 3\n4 5 6\n7 8 9\n", "more than 2 layers");
	refused(HEAD "1 2 3\n4 5 6\n"
		     "                                                                           "
		     "                                                                           "
		     "                                                                           "
		     "                                                                           ",
		"more than 222 bytes");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_written_is_read, scratch_setup,
						scratch_teardown),
		cmocka_unit_test_setup_teardown(a_profile_that_cannot_be_written_leaves_the_old_one,
						scratch_setup, scratch_teardown),
		cmocka_unit_test_setup_teardown(none_yet_is_told_apart, scratch_setup,
						scratch_teardown),
		cmocka_unit_test_setup_teardown(
		    what_is_no_profile_of_this_model_is_refused_with_both_values, scratch_setup,
		    scratch_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
