/* The demo model's tokenizer: equal to the references, and text comes back. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scheduler/tokenizer.h"
#include "tests/front_stage.h"

static struct tokenizer *kjv;

static int
open_kjv(void **state)
{
	(void)state;
	kjv = front_stage_tokenizer(); /* its file is not held any more */
	return 0;
}

static int
close_kjv(void **state)
{
	(void)state;
	tokenizer_close(kjv);
	return 0;
}

static void
check_ids(const struct tokenizer *tokenizer, const char *text, size_t n, const uint32_t *want,
	  uint32_t n_want)
{
	struct error err;
	uint32_t *ids, n_ids;

	assert_int_equal(tokenizer_encode(tokenizer, text, n, &ids, &n_ids, &err), 0);
	assert_int_equal(n_ids, n_want);
	assert_memory_equal(ids, want, n_want * sizeof(*want));
	free(ids);
}

/* The text of the ids, in memory that the caller frees. */
static char *
join_text(const struct tokenizer *tokenizer, const uint32_t *ids, uint32_t n_ids, size_t *ret_n)
{
	size_t n = 0, more;
	char *text;

	for (uint32_t i = 0; i < n_ids; i++) {
		tokenizer_text(tokenizer, ids[i], &more);
		n += more;
	}
	text = malloc(n + 1);
	n = 0;
	for (uint32_t i = 0; i < n_ids; i++) {
		const uint8_t *at = tokenizer_text(tokenizer, ids[i], &more);

		memcpy(text + n, at, more);
		n += more;
	}
	*ret_n = n;
	return text;
}

static void
equals_every_reference_case(void **state)
{
	json_error_t where;
	json_t *cases = json_load_file("tests/data/kjv-16x1m.tokenizer.json", 0, &where), *one;
	size_t i;

	(void)state;
	assert_non_null(cases);
	assert_true(json_array_size(cases) > 10);
	json_array_foreach(cases, i, one)
	{
		const json_t *ids = json_object_get(one, "ids"),
			     *text = json_object_get(one, "text");
		uint32_t want[256], n = (uint32_t)json_array_size(ids);

		assert_true(n <= 256);
		for (uint32_t j = 0; j < n; j++)
			want[j] = (uint32_t)json_integer_value(json_array_get(ids, j));
		check_ids(kjv, json_string_value(text), json_string_length(text), want, n);
	}
	json_decref(cases);
}

static void
text_comes_back_from_its_ids(void **state)
{
	const char *texts[] = { "In the beginning God created the heaven and the earth.\n\n",
				" \t\r\n  x",
				"caf\u00e9 \u4e2d\u6587 \U0001f600 e\u0301",
				"12345 it's WE'LL",
				"\xff\xfe\x80 broken \xe4\xb8",
				"" };
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		uint32_t *ids, n_ids;
		size_t n;
		char *text;

		assert_int_equal(
		    tokenizer_encode(kjv, texts[i], strlen(texts[i]), &ids, &n_ids, &err), 0);
		text = join_text(kjv, ids, n_ids, &n);
		assert_int_equal(n, strlen(texts[i]));
		assert_memory_equal(text, texts[i], n);
		free(text);
		free(ids);
	}
}

static void
bytes_that_are_no_utf8_become_byte_tokens(void **state)
{
	struct error err;
	uint32_t *ids, n_ids;
	size_t n;

	(void)state;
	assert_int_equal(tokenizer_encode(kjv, "a\xff\xc0z", 4, &ids, &n_ids, &err), 0);
	assert_int_equal(n_ids, 4);
	assert_int_equal(tokenizer_text(kjv, ids[1], &n)[0], 0xff);
	assert_int_equal(tokenizer_text(kjv, ids[2], &n)[0], 0xc0);
	free(ids);
}

static void
every_byte_comes_back(void **state)
{
	char bytes[1024];
	struct error err;
	uint32_t *ids, n_ids;
	size_t n;
	char *text;

	(void)state;
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)(i * 151 + i / 256);
	assert_int_equal(tokenizer_encode(kjv, bytes, sizeof(bytes), &ids, &n_ids, &err), 0);
	text = join_text(kjv, ids, n_ids, &n);
	assert_int_equal(n, sizeof(bytes));
	assert_memory_equal(text, bytes, n);
	free(text);
	free(ids);
}

static void
control_tokens_have_no_text(void **state)
{
	size_t n = 1;

	(void)state;
	assert_non_null(tokenizer_text(kjv, 2045, &n));
	assert_int_equal(n, 0);
	tokenizer_text(kjv, tokenizer_vocabulary(kjv), &n); /* no token at all */
	assert_int_equal(n, 0);
}

static void
end_of_sequence_stops(void **state)
{
	uint32_t n;
	const uint32_t *stops = tokenizer_stops(kjv, &n);

	(void)state;
	assert_int_equal(n, 1);
	assert_int_equal(stops[0], 2045);
}

/* One word of a mebibyte: quadratic merging would take hours. */
static void
a_long_word_is_merged(void **state)
{
	size_t bytes = 1u << 20, n;
	char *word = malloc(bytes), *text;
	struct error err;
	uint32_t *ids, n_ids;

	(void)state;
	for (size_t i = 0; i < bytes; i++)
		word[i] = "theandlordof"[i * 7 % 12];
	assert_int_equal(tokenizer_encode(kjv, word, bytes, &ids, &n_ids, &err), 0);
	assert_true(n_ids < bytes);
	text = join_text(kjv, ids, n_ids, &n);
	assert_int_equal(n, bytes);
	assert_memory_equal(text, word, bytes);
	free(text);
	free(word);
	free(ids);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equals_every_reference_case),
		cmocka_unit_test(text_comes_back_from_its_ids),
		cmocka_unit_test(bytes_that_are_no_utf8_become_byte_tokens),
		cmocka_unit_test(every_byte_comes_back),
		cmocka_unit_test(control_tokens_have_no_text),
		cmocka_unit_test(end_of_sequence_stops),
		cmocka_unit_test(a_long_word_is_merged),
	};

	return cmocka_run_group_tests(tests, open_kjv, close_kjv);
}
