/* Tokenizer: equal to the references, streaming text, and what is refused. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/gguf.h"
#include "scheduler/tokenizer.h"
#include "scheduler/utf8.h"

/* -- the shipped model -- */

static struct tokenizer *kjv;

static int
open_kjv(void **state)
{
	const char *path = "tests/data/kjv-16x1m.gguf";
	struct gguf gguf = { 0 };
	struct error err;
	struct stat about;
	void *bytes;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &about), 0);
	bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_int_equal(
	    gguf_parse(&gguf, bytes, (uint64_t)about.st_size, (uint64_t)about.st_size, path, &err),
	    0);
	assert_int_equal(tokenizer_open(&kjv, &gguf, &err), 0);
	gguf_close(&gguf);
	munmap(bytes, (size_t)about.st_size); /* nothing of it is needed any more */
	close(fd);
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

/* -- small vocabularies made here: 256 byte tokens, then what a test adds -- */

struct made {
	uint8_t bytes[16384];
	size_t n;
	uint64_t pairs;
};

static void
put(struct made *made, const void *at, size_t n)
{
	assert_true(made->n + n <= sizeof(made->bytes));
	memcpy(made->bytes + made->n, at, n);
	made->n += n;
}

static void
put_number(struct made *made, uint64_t value, size_t n)
{
	put(made, &value, n);
}

static void
put_text(struct made *made, const char *text)
{
	put_number(made, strlen(text), 8);
	put(made, text, strlen(text));
}

static void
put_key(struct made *made, const char *key, enum gguf_kind kind)
{
	put_text(made, key);
	put_number(made, kind, 4);
	made->pairs++;
}

static void
put_list(struct made *made, const char *key, enum gguf_kind element, uint64_t count)
{
	put_key(made, key, GGUF_ARRAY);
	put_number(made, element, 4);
	put_number(made, count, 8);
}

static void
put_pair_text(struct made *made, const char *key, const char *text)
{
	put_key(made, key, GGUF_STRING);
	put_text(made, text);
}

static void
put_pair_id(struct made *made, const char *key, uint32_t id)
{
	put_key(made, key, GGUF_U32);
	put_number(made, id, 4);
}

/* Bytes 33 to 126 print; the others are two-byte characters, as GPT-2 maps them. */
static void
put_byte_tokens(struct made *made)
{
	uint32_t next = 0x100;
	uint8_t text[5] = { 0 };

	for (uint32_t byte = 0; byte < 256; byte++) {
		bool prints = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);

		text[utf8_encode(prints ? byte : next++, text)] = 0;
		put_text(made, (const char *)text);
	}
}

struct extra {
	const char *text;
	uint32_t type;
};

static void
make_begin(struct made *made, const char *model, const char *pre)
{
	memset(made, 0, sizeof(*made));
	put(made, "GGUF", 4);
	put_number(made, 3, 4);
	put_number(made, 0, 8);
	put_number(made, 0, 8); /* pairs: set in make_open */
	put_pair_text(made, "general.architecture", "qwen3moe");
	if (model)
		put_pair_text(made, "tokenizer.ggml.model", model);
	if (pre)
		put_pair_text(made, "tokenizer.ggml.pre", pre);
}

static void
make_tokens(struct made *made, const struct extra *extra, uint32_t n_extra)
{
	put_list(made, "tokenizer.ggml.tokens", GGUF_STRING, 256 + n_extra);
	put_byte_tokens(made);
	for (uint32_t i = 0; i < n_extra; i++)
		put_text(made, extra[i].text);
	put_list(made, "tokenizer.ggml.token_type", GGUF_I32, 256 + n_extra);
	for (uint32_t i = 0; i < 256 + n_extra; i++)
		put_number(made, i < 256 ? 1 : extra[i - 256].type, 4);
}

static void
make_merges(struct made *made, const char *const *merges, uint32_t n_merges)
{
	put_list(made, "tokenizer.ggml.merges", GGUF_STRING, n_merges);
	for (uint32_t i = 0; i < n_merges; i++)
		put_text(made, merges[i]);
}

static int
make_open(struct made *made, struct tokenizer **ret, struct error *err)
{
	struct gguf gguf = { 0 };
	int code;

	memcpy(made->bytes + 16, &made->pairs, 8);
	code = gguf_parse(&gguf, made->bytes, made->n, made->n, "made", err);
	if (code < 0)
		fail_msg("%s", err->text);
	code = tokenizer_open(ret, &gguf, err);
	gguf_close(&gguf);
	return code;
}

static struct tokenizer *
make_good(const char *pre, const struct extra *extra, uint32_t n_extra, const char *const *merges,
	  uint32_t n_merges)
{
	static struct made made;
	struct tokenizer *tokenizer = NULL;
	struct error err;

	make_begin(&made, "gpt2", pre);
	make_tokens(&made, extra, n_extra);
	make_merges(&made, merges, n_merges);
	if (make_open(&made, &tokenizer, &err) < 0)
		fail_msg("%s", err.text);
	return tokenizer;
}

static void
merges_go_by_rank_then_from_the_left(void **state)
{
	const struct extra extra[] = { { "bc", 1 }, { "ab", 1 }, { "aa", 1 } };
	const char *const merges[] = { "b c", "a b", "a a" };
	struct tokenizer *tokenizer = make_good("qwen2", extra, 3, merges, 3);

	(void)state;
	check_ids(tokenizer, "abc", 3, (const uint32_t[]){ 'a', 256 }, 2);
	check_ids(tokenizer, "aaa", 3, (const uint32_t[]){ 258, 'a' }, 2);
	check_ids(tokenizer, "aab", 3, (const uint32_t[]){ 'a', 257 }, 2);
	tokenizer_close(tokenizer);
}

static void
the_leftmost_and_longest_special_token_wins(void **state)
{
	const struct extra extra[] = { { "<|a", 3 }, { "<|a|>", 3 }, { "|>x", 4 } };
	struct tokenizer *tokenizer = make_good("qwen2", extra, 3, NULL, 0);
	size_t n;

	(void)state;
	check_ids(tokenizer, "<|a|>x", 6, (const uint32_t[]){ 257, 'x' }, 2);
	check_ids(tokenizer, "<|a!", 4, (const uint32_t[]){ 256, '!' }, 2);
	check_ids(tokenizer, "<<|>x", 5, (const uint32_t[]){ '<', '<', 258 }, 3);
	assert_memory_equal(tokenizer_text(tokenizer, 258, &n), "|>x", 3); /* user-defined */
	assert_int_equal(n, 3);
	tokenizer_close(tokenizer);
}

static void
qwen2_takes_digits_one_by_one_and_llama_bpe_three(void **state)
{
	const struct extra extra[] = { { "12", 1 } };
	const char *const merges[] = { "1 2" };
	const char *const names[] = { "llama-bpe", "llama3", "llama-v3" };
	struct tokenizer *tokenizer = make_good("qwen2", extra, 1, merges, 1);

	(void)state;
	check_ids(tokenizer, "12", 2, (const uint32_t[]){ '1', '2' }, 2);
	tokenizer_close(tokenizer);
	for (int i = 0; i < 3; i++) {
		tokenizer = make_good(names[i], extra, 1, merges, 1);
		check_ids(tokenizer, "1212", 4, (const uint32_t[]){ 256, '1', '2' }, 3);
		tokenizer_close(tokenizer);
	}
}

/* No merge leads to "xyz". */
static void
llama_bpe_keeps_a_word_that_is_a_token(void **state)
{
	const struct extra extra[] = { { "xyz", 1 } };
	struct tokenizer *tokenizer = make_good("llama-bpe", extra, 1, NULL, 0);

	(void)state;
	check_ids(tokenizer, "xyz", 3, (const uint32_t[]){ 256 }, 1);
	tokenizer_close(tokenizer);
	tokenizer = make_good("qwen2", extra, 1, NULL, 0);
	check_ids(tokenizer, "xyz", 3, (const uint32_t[]){ 'x', 'y', 'z' }, 3);
	tokenizer_close(tokenizer);
}

static struct tokenizer *
make_begins(const char *pre, int add_bos, bool bos)
{
	const struct extra extra[] = { { "<s>", 3 } };
	static struct made made;
	struct tokenizer *tokenizer = NULL;
	struct error err;

	make_begin(&made, "gpt2", pre);
	make_tokens(&made, extra, 1);
	if (add_bos >= 0) {
		put_key(&made, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
		put_number(&made, (uint64_t)add_bos, 1);
	}
	if (bos)
		put_pair_id(&made, "tokenizer.ggml.bos_token_id", 256);
	assert_int_equal(make_open(&made, &tokenizer, &err), 0);
	return tokenizer;
}

static void
add_bos_token_is_honoured(void **state)
{
	const struct {
		const char *pre;
		int add_bos; /* -1: the file does not say */
		bool bos, begins;
	} cases[] = { { "qwen2", 1, true, true },      { "qwen2", 0, true, false },
		      { "qwen2", -1, true, false },    { "llama-bpe", -1, true, true },
		      { "llama-bpe", 0, true, false }, { "qwen2", 1, false, false } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tokenizer *tokenizer =
		    make_begins(cases[i].pre, cases[i].add_bos, cases[i].bos);

		if (cases[i].begins)
			check_ids(tokenizer, "a", 1, (const uint32_t[]){ 256, 'a' }, 2);
		else
			check_ids(tokenizer, "a", 1, (const uint32_t[]){ 'a' }, 1);
		tokenizer_close(tokenizer);
	}
}

static void
end_of_turn_stops_too(void **state)
{
	const struct extra extra[] = { { "<eos>", 3 }, { "<eot>", 3 } };
	static struct made made;
	struct tokenizer *tokenizer;
	const uint32_t *stops;
	struct error err;
	uint32_t n;

	(void)state;
	make_begin(&made, "gpt2", "qwen2");
	make_tokens(&made, extra, 2);
	put_pair_id(&made, "tokenizer.ggml.eos_token_id", 256);
	put_pair_id(&made, "tokenizer.ggml.eot_token_id", 257);
	assert_int_equal(make_open(&made, &tokenizer, &err), 0);
	stops = tokenizer_stops(tokenizer, &n);
	assert_int_equal(n, 2);
	assert_int_equal(stops[0], 256);
	assert_int_equal(stops[1], 257);
	tokenizer_close(tokenizer);
}

static void
check_refused(struct made *made, int want, const char *said)
{
	struct tokenizer *tokenizer = NULL;
	struct error err;

	assert_int_equal(make_open(made, &tokenizer, &err), want);
	assert_null(tokenizer);
	if (!strstr(err.text, said))
		fail_msg("'%s' does not say '%s'", err.text, said);
}

static void
other_tokenizers_are_refused_with_their_names(void **state)
{
	static struct made made;

	(void)state;
	make_begin(&made, NULL, NULL);
	check_refused(&made, -ENOTSUP, "no tokenizer");
	make_begin(&made, "llama", NULL);
	check_refused(&made, -ENOTSUP, "'llama' is not supported, only gpt2");
	make_begin(&made, "gpt2", NULL);
	check_refused(&made, -ENOTSUP, "tokenizer.ggml.pre");
	make_begin(&made, "gpt2", "gpt-4o");
	check_refused(&made, -ENOTSUP, "'gpt-4o' is not supported, only qwen2");
}

static void
a_broken_vocabulary_is_refused(void **state)
{
	const struct extra strange[] = { { "x", 9 } };
	const char *const merges[] = { "a nothing" }, *const word[] = { "word" };
	static struct made made;

	(void)state;
	make_begin(&made, "gpt2", "qwen2");
	check_refused(&made, -EINVAL, "tokenizer.ggml.tokens");
	make_begin(&made, "gpt2", "qwen2");
	put_list(&made, "tokenizer.ggml.tokens", GGUF_STRING, 1);
	put_text(&made, "a");
	check_refused(&made, -EINVAL, "no token for the byte 0x00");
	make_begin(&made, "gpt2", "qwen2");
	make_tokens(&made, strange, 1);
	check_refused(&made, -EINVAL, "token 256 has type 9");
	make_begin(&made, "gpt2", "qwen2");
	make_tokens(&made, NULL, 0);
	make_merges(&made, merges, 1);
	check_refused(&made, -EINVAL, "line 0 is 'a nothing'");
	make_begin(&made, "gpt2", "qwen2");
	make_tokens(&made, NULL, 0);
	make_merges(&made, word, 1);
	check_refused(&made, -EINVAL, "line 0 is 'word'");
	make_begin(&made, "gpt2", "qwen2");
	make_tokens(&made, NULL, 0);
	put_pair_id(&made, "tokenizer.ggml.eos_token_id", 256);
	check_refused(&made, -EINVAL, "eos_token_id: 256, want less than 256");
}

/* -- UTF-8 -- */

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
		cmocka_unit_test(merges_go_by_rank_then_from_the_left),
		cmocka_unit_test(the_leftmost_and_longest_special_token_wins),
		cmocka_unit_test(qwen2_takes_digits_one_by_one_and_llama_bpe_three),
		cmocka_unit_test(llama_bpe_keeps_a_word_that_is_a_token),
		cmocka_unit_test(add_bos_token_is_honoured),
		cmocka_unit_test(end_of_turn_stops_too),
		cmocka_unit_test(other_tokenizers_are_refused_with_their_names),
		cmocka_unit_test(a_broken_vocabulary_is_refused),
		cmocka_unit_test(text_ends_at_a_whole_character),
		cmocka_unit_test(utf8_is_what_unicode_says),
	};

	return cmocka_run_group_tests(tests, open_kjv, close_kjv);
}
