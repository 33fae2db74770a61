/* Lines of errors, whatever stands in the file or message that they quote. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/utf8.h"

static void
what_is_quoted_leaves_it_one_line_of_text(void **state)
{
	struct error err;

	(void)state;
	assert_int_equal(error_set(&err, -EINVAL, "key a: \"%s\"", "x\nloader: error: \x1b[2J\xff"),
			 -EINVAL);
	assert_string_equal(err.text, "key a: \"x?loader: error: ?[2J?\"");
	assert_int_equal(error_path(&err, -ENOENT, "%s", "m\r\n.gguf"), -ENOENT);
	assert_string_equal(err.text, "m??.gguf: No such file or directory");
}

static void
a_line_that_is_cut_ends_in_no_half_character(void **state)
{
	char name[sizeof(((struct error *)0)->text) + 3] = "";
	struct error err;

	(void)state;
	for (size_t i = 0; i + 3 < sizeof(name); i += 3)
		strcat(name, "\xe4\xb8\xad");
	error_set(&err, -EINVAL, "%s", name);
	assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
	assert_int_equal(utf8_valid((uint8_t *)err.text, strlen(err.text)), strlen(err.text));
}

static void
what_nobody_named_is_the_systems_failure_whatever_its_number(void **state)
{
	static const int codes[] = { EINVAL, ENOENT,  EACCES,    EISDIR, ENOTSUP,
				     ENODEV, ENOTDIR, EOVERFLOW, EEXIST, EBADMSG };
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
		assert_int_equal(error_exit_code(error_path(&err, -codes[i], "m.gguf")),
				 EXIT_INPUT);
		assert_int_equal(error_exit_code(error_sys(&err, -codes[i], "madvise")),
				 EXIT_SYSTEM);
		assert_non_null(strstr(err.text, strerror(codes[i]))); /* and it is said */
	}
	assert_int_equal(error_sys(&err, -ENOMEM, "an arena"), -ENOMEM);
	assert_int_equal(error_sys(&err, -EPERM, "mlock"), -EPERM);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_quoted_leaves_it_one_line_of_text),
		cmocka_unit_test(what_nobody_named_is_the_systems_failure_whatever_its_number),
		cmocka_unit_test(a_line_that_is_cut_ends_in_no_half_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
