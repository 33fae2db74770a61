#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/options.h"

static const char *const colours[] = { "red", "green", NULL };
static bool flag;
static const char *text, *colour;
static uint64_t number;
static double fraction;

static const struct option_def defs[] = {
	{ .name = "--flag", .kind = OPTION_FLAG, .to = &flag },
	{ .name = "--text", .kind = OPTION_TEXT, .to = &text },
	{ .name = "--colour", .kind = OPTION_TEXT, .to = &colour, .choices = colours },
	{ .name = "-n",
	  .alias = "--number",
	  .kind = OPTION_U64,
	  .to = &number,
	  .min = 1,
	  .max = 9 },
	{ .name = "--fraction", .kind = OPTION_FLOAT, .to = &fraction },
};

static const char *words[2];
static uint32_t n_words;
static struct error err;

#define PARSE(...)                                  \
	parse((char *[]){ "program", __VA_ARGS__ }, \
	      (int)(sizeof((char *[]){ "program", __VA_ARGS__ }) / sizeof(char *)))

static int
parse(char **argv, int argc)
{
	flag = false;
	text = colour = NULL;
	number = 0;
	fraction = 0;
	return options_parse(argc, argv, defs, sizeof(defs) / sizeof(*defs), words, 2, &n_words,
			     &err);
}

static void
takes_a_value_behind_a_space_or_an_equal_sign(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--text", "a", "--number=3", "--fraction", "0.5", "--flag"), 0);
	assert_string_equal(text, "a");
	assert_int_equal(number, 3);
	assert_true(fraction > 0.49 && fraction < 0.51);
	assert_true(flag);
	assert_int_equal(PARSE("--text=", "-n", "9"), 0);
	assert_string_equal(text, "");
	assert_int_equal(number, 9);
}

static void
words_may_stand_anywhere_and_look_like_anything_behind_two_dashes(void **state)
{
	(void)state;
	assert_int_equal(PARSE("one", "--flag", "-"), 0);
	assert_int_equal(n_words, 2);
	assert_string_equal(words[1], "-");
	assert_int_equal(PARSE("--", "--flag"), 0);
	assert_string_equal(words[0], "--flag");
	assert_false(flag);
	assert_int_equal(PARSE("1", "2", "3"), -EINVAL);
}

static void
the_line_names_the_option_the_value_and_what_would_be_right(void **state)
{
	(void)state;
	assert_int_equal(PARSE("--colour", "blue"), -EINVAL);
	assert_string_equal(err.text, "--colour blue: want one of red, green");
	assert_int_equal(PARSE("-n", "10"), -EINVAL);
	assert_string_equal(err.text, "-n 10: want 1 to 9");
	assert_int_equal(PARSE("-n", "-1"), -EINVAL);
	assert_int_equal(PARSE("-n", "3x"), -EINVAL);
	assert_int_equal(PARSE("-n", "99999999999999999999999"), -EINVAL);
	assert_int_equal(PARSE("--fraction", "nan"), -EINVAL);
	assert_int_equal(PARSE("--fraction", "-1"), -EINVAL);
	assert_int_equal(PARSE("--nothing"), -EINVAL);
	assert_string_equal(err.text, "--nothing: no such option");
	assert_int_equal(PARSE("--text"), -EINVAL);
	assert_int_equal(PARSE("--flag=1"), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(takes_a_value_behind_a_space_or_an_equal_sign),
		cmocka_unit_test(words_may_stand_anywhere_and_look_like_anything_behind_two_dashes),
		cmocka_unit_test(the_line_names_the_option_the_value_and_what_would_be_right),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
