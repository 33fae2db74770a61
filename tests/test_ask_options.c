/* hearth ask: its words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/ask_options.h"

#define MAX_WORDS 12

static int
parse(struct ask_options *ret, struct error *err, const char *const *words)
{
	char *argv[MAX_WORDS + 1] = { (char *)"ask" };
	int argc = 1;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)words[argc - 1];
	return ask_options_parse(ret, argc, argv, err);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void
a_prompt_is_asked_greedily_for_128_tokens(void **state)
{
	struct ask_options options;
	struct error err;

	(void)state;
	assert_int_equal(parse(&options, &err, WORDS("--dir", "/tmp", "hello")), 0);
	assert_string_equal(options.text, "hello");
	assert_int_equal(options.max_tokens, 128);
	assert_true(options.temperature == 0);
	assert_false(options.json);
	ask_options_close(&options);
}

static void
every_option_is_taken(void **state)
{
	struct ask_options options;
	struct error err;

	(void)state;
	assert_int_equal(
	    parse(&options, &err,
		  WORDS("--dir=/tmp", "-n", "7", "--temp=0.5", "--top-k=4", "--top-p=0.9",
			"--seed=18446744073709551615", "--json", "--ids", "--ignore-stop",
			"--logits=f", "--prompt-ids=0,1048575,7")),
	    0);
	assert_int_equal(options.max_tokens, 7);
	assert_true(options.temperature == 0.5 && options.top_p == 0.9);
	assert_int_equal(options.top_k, 4);
	assert_true(options.seed == UINT64_MAX);
	assert_true(options.json && options.ids && options.ignore_stop);
	assert_string_equal(options.logits, "f");
	assert_null(options.text);
	assert_int_equal(options.n_prompt_ids, 3);
	assert_int_equal(options.prompt_ids[1], 1048575);
	ask_options_close(&options);
}

static void
wrong_words_are_quoted(void **state)
{
	const struct {
		const char *const *words;
		const char *said;
	} cases[] = {
		{ WORDS("--dir", "/tmp"), "no prompt: want PROMPT, - (stdin) or --prompt-ids" },
		{ WORDS("hello"), "--dir DIR is missing" },
		{ WORDS("--dir", "/nowhere/at/all", "x"), "/nowhere/at/all: is the stack up?" },
		{ WORDS("--dir", "/tmp", "-n", "0", "x"), "-n 0" },
		{ WORDS("--dir", "/tmp", "--top-p", "1.5", "x"), "--top-p 1.5: want 0 to 1" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1,,3"), "number 2 is ''" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1,2,"), "number 3 is ''" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", ""), "number 1 is ''" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "4,-1"), "number 2 is '-1'" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1048576"), "number 1 is '1048576'" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "99999999999999999999"), "number 1" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1", "x"), "both a prompt and" },
		{ WORDS("--dir", "/tmp", "a", "b"), "b: one word too many" },
	};
	struct ask_options options;
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int code = parse(&options, &err, cases[i].words);

		assert_true(code < 0);
		assert_int_equal(error_exit_code(code), EXIT_INPUT);
		if (!strstr(err.text, cases[i].said))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].said);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prompt_is_asked_greedily_for_128_tokens),
		cmocka_unit_test(every_option_is_taken),
		cmocka_unit_test(wrong_words_are_quoted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
