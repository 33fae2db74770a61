#include "scheduler/splitter.h"

#include <errno.h>
#include <pcre2.h>

#include "common/utf8.h"

/* White space as Unicode has it: PCRE2's \s adds U+180E, which the models' own pattern lacks. */
#define SPACE "\\x09-\\x0d\\x85\\p{Z}"
#define WORDS(digits)                                                                      \
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" SPACE \
	"\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

struct pattern {
	const char *name;
	const char *text;
	bool whole_words, begins_text;
};

/* The patterns are those of the models' tokenizer.json files. */
static const struct pattern patterns[] = {
	{ "qwen2", WORDS("\\p{N}"), false, false },
	{ "llama-bpe", WORDS("\\p{N}{1,3}"), true, true },
	{ "llama3", WORDS("\\p{N}{1,3}"), true, true },
	{ "llama-v3", WORDS("\\p{N}{1,3}"), true, true },
};

static const struct pattern *
find_pattern(struct gguf_string name)
{
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		if (gguf_string_is(name, patterns[i].name))
			return &patterns[i];
	}
	return NULL;
}

int
splitter_open(struct splitter *ret, struct gguf_string name, struct error *err)
{
	const struct pattern *pattern = find_pattern(name);
	PCRE2_UCHAR8 reason[128];
	PCRE2_SIZE where;
	pcre2_code *code;
	int number;

	if (!pattern)
		return error_set(err, -ENOTSUP,
				 "tokenizer.ggml.pre: '%.*s' is not supported, only qwen2, "
				 "llama-bpe, llama3, llama-v3",
				 (int)(name.bytes > 64 ? 64 : name.bytes), name.at);
	code = pcre2_compile((PCRE2_SPTR8)pattern->text, PCRE2_ZERO_TERMINATED,
			     PCRE2_UTF | PCRE2_UCP, &number, &where, NULL);
	if (!code) {
		pcre2_get_error_message(number, reason, sizeof(reason));
		return error_set(err, -ENOMEM, "pattern of %s: %s", pattern->name, reason);
	}
	pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* where there is none, it is interpreted */
	*ret = (struct splitter){ .name = pattern->name,
				  .whole_words = pattern->whole_words,
				  .begins_text = pattern->begins_text,
				  .code = code };
	return 0;
}

void
splitter_close(struct splitter *splitter)
{
	pcre2_code_free(splitter->code);
	*splitter = (struct splitter){ 0 };
}

int
split_open(struct split *ret, const struct splitter *splitter)
{
	*ret = (struct split){ .splitter = splitter };
	ret->match = pcre2_match_data_create(1, NULL);
	return ret->match ? 0 : -ENOMEM;
}

void
split_begin(struct split *split, const uint8_t *at, size_t n)
{
	split->at = at;
	split->n = n;
	split->done = 0;
	split->valid = 0;
}

/* Bytes up to where the next character begins. */
static size_t
invalid_run(const uint8_t *at, size_t n)
{
	uint32_t character;
	size_t i = 0;

	while (i < n && !utf8_decode(at + i, n - i, &character))
		i++;
	return i;
}

/* The end of the word that begins at `done`, within the UTF-8 stretch. */
static int
match_end(struct split *split, size_t *ret)
{
	const PCRE2_SIZE *place = pcre2_get_ovector_pointer(split->match);
	int code = pcre2_match(split->splitter->code, split->at, split->valid, split->done,
			       PCRE2_NO_UTF_CHECK, split->match, NULL);

	if (code == PCRE2_ERROR_JIT_STACKLIMIT)
		code = pcre2_match(split->splitter->code, split->at, split->valid, split->done,
				   PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, split->match, NULL);
	if (code < 0 && code != PCRE2_ERROR_NOMATCH)
		return -EOVERFLOW;
	if (code == PCRE2_ERROR_NOMATCH)
		*ret = split->valid;
	else if (place[0] > split->done)
		*ret = place[0]; /* what the pattern steps over is a word too */
	else
		*ret = place[1];
	return 0;
}

int
split_next(struct split *split, const uint8_t **ret_at, size_t *ret_n)
{
	size_t end;

	if (split->done == split->n)
		return 0;
	if (split->valid <= split->done)
		split->valid =
		    split->done + utf8_valid(split->at + split->done, split->n - split->done);
	if (split->valid == split->done)
		end = split->done + invalid_run(split->at + split->done, split->n - split->done);
	else if (match_end(split, &end) < 0)
		return -EOVERFLOW;
	*ret_at = split->at + split->done;
	*ret_n = end - split->done;
	split->done = end;
	return 1;
}

void
split_close(struct split *split)
{
	pcre2_match_data_free(split->match);
	*split = (struct split){ 0 };
}
