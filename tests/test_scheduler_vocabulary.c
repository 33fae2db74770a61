/* Tokenizers of small vocabularies made here (256 byte tokens, then what a test adds): merges,
 * special tokens, the pre-tokenizers, and what is refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/gguf.h"
#include "common/utf8.h"
#include "scheduler/tokenizer.h"
#include "scheduler/vocabulary.h"

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
		put_number(made, i < 256 || !extra ? TOKEN_NORMAL : extra[i - 256].type, 4);
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

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(merges_go_by_rank_then_from_the_left),
		cmocka_unit_test(the_leftmost_and_longest_special_token_wins),
		cmocka_unit_test(qwen2_takes_digits_one_by_one_and_llama_bpe_three),
		cmocka_unit_test(llama_bpe_keeps_a_word_that_is_a_token),
		cmocka_unit_test(add_bos_token_is_honoured),
		cmocka_unit_test(end_of_turn_stops_too),
		cmocka_unit_test(other_tokenizers_are_refused_with_their_names),
		cmocka_unit_test(a_broken_vocabulary_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
