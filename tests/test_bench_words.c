#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/bench_words.h"

static const char *const words[] = { "decode", "long", "cpu", NULL };
static struct error err;
static uint32_t bits, numbers[2], n;

static void
each_word_of_a_list_sets_its_bit(void **state)
{
	(void)state;
	assert_int_equal(bench_words_bits("--only", "cpu,decode", words, &bits, &err), 0);
	assert_int_equal(bits, 5);
	assert_int_equal(bench_words_bits("--only", "long", words, &bits, &err), 0);
	assert_int_equal(bits, 2);
}

static void
a_word_that_is_none_is_named_with_those_there_are(void **state)
{
	static const char *const wrong[] = { "", "cpu,", ",cpu", "cpus", "decode,deco", "cp" };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_true(bench_words_bits("--only", wrong[i], words, &bits, &err) < 0);
	assert_string_equal(err.text, "--only: 'cp', want some of decode long cpu");
}

static void
numbers_are_taken_in_their_order(void **state)
{
	(void)state;
	assert_int_equal(bench_words_numbers("--budgets", "8192,4096", numbers, 2, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_int_equal(numbers[0], 8192);
	assert_int_equal(numbers[1], 4096);
}

static void
what_is_no_number_and_too_many_of_them_are_refused(void **state)
{
	static const char *const wrong[] = { "",   "0",   "1,",   ",1",         "-1",
					     "1x", "1 2", "+1,2", "4294967296", "1,2,3" };

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_true(bench_words_numbers("--budgets", wrong[i], numbers, 2, &n, &err) < 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_word_of_a_list_sets_its_bit),
		cmocka_unit_test(a_word_that_is_none_is_named_with_those_there_are),
		cmocka_unit_test(numbers_are_taken_in_their_order),
		cmocka_unit_test(what_is_no_number_and_too_many_of_them_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
