/* UTF-8: what is a character, and where text may be cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/utf8.h"

static void
text_ends_at_a_whole_character(void **state)
{
	const struct {
		const char *bytes;
		size_t whole;
	} cases[] = {
		{ "", 0 },
		{ "a", 1 },
		{ "a\xc3", 1 },
		{ "a\xc3\xa9", 3 },
		{ "\xe4", 0 },
		{ "\xe4\xb8", 0 },
		{ "\xe4\xb8\xad", 3 },
		{ "\xf0\x9f\x98", 0 },
		{ "\xf0\x9f\x98\x80", 4 },
		{ "\xf0\x9f\x98\x80\xf0", 4 },
		/* never to become a character: nothing to wait for */
		{ "\xff", 1 },
		{ "a\x80", 2 },
		{ "\xe4\x41", 2 },
		{ "\xe0\x80", 2 },
		{ "\xed\xa0", 2 },
		{ "\xf4\x90", 2 },
		{ "\xc0", 1 },
		{ "\xc3\xa9\x80", 3 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(
		    utf8_whole((const uint8_t *)cases[i].bytes, strlen(cases[i].bytes)),
		    cases[i].whole);
}

static void
utf8_is_what_unicode_says(void **state)
{
	uint8_t bytes[4];
	uint32_t back;

	(void)state;
	for (uint32_t c = 0; c < 0x110000; c++) {
		size_t n = utf8_encode(c, bytes);
		bool surrogate = c >= 0xd800 && c < 0xe000;

		assert_int_equal(utf8_decode(bytes, n, &back), surrogate ? 0 : n);
		assert_true(surrogate || back == c);
		assert_int_equal(utf8_valid(bytes, n), surrogate ? 0 : n);
	}
	assert_int_equal(utf8_decode((const uint8_t *)"\xc0\x80", 2, &back), 0);
	assert_int_equal(utf8_decode((const uint8_t *)"\xe0\x9f\xbf", 3, &back), 0);
	assert_int_equal(utf8_decode((const uint8_t *)"\xf4\x90\x80\x80", 4, &back), 0);
}

static void
cleaned_it_is_one_line_of_characters(void **state)
{
	const char *const cases[][2] = {
		{ "", "" },
		{ "caf\xc3\xa9 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xf0\x9f\x98\x80" },
		{ "a\nb\tc\x7f", "a?b?c?" },
		{ "\x1b]0;title\x07", "?]0;title?" },
		{ "\xc2\x9b"
		  "31m",
		  "??31m" }, /* a control character of two bytes */
		{ "\xff\xfe", "??" },
		{ "cut \xe4\xb8", "cut ??" },
	};
	char text[32];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		strcpy(text, cases[i][0]);
		utf8_clean(text);
		assert_string_equal(text, cases[i][1]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(text_ends_at_a_whole_character),
		cmocka_unit_test(utf8_is_what_unicode_says),
		cmocka_unit_test(cleaned_it_is_one_line_of_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
