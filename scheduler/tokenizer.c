#include "scheduler/tokenizer.h"

#include <errno.h>
#include <stdlib.h>

#include "scheduler/bpe.h"
#include "scheduler/splitter.h"
#include "scheduler/vocabulary.h"

struct tokenizer {
	struct vocabulary vocabulary;
	struct bpe bpe;
	struct splitter splitter;
	bool begins_text; /* begin_id goes before every text */
	uint32_t begin_id;
	uint32_t stops[TOKENIZER_STOPS];
	uint32_t n_stops;
};

/* 1 = there.  An id beyond the vocabulary is refused. */
static int
find_id(const struct tokenizer *tokenizer, const struct gguf *gguf, const char *key, uint32_t *ret,
	struct error *err)
{
	uint64_t id;
	int code = gguf_find_u64(gguf, key, &id, err);

	if (code < 1)
		return code;
	if (id >= tokenizer->vocabulary.n)
		return error_set(err, -EINVAL, "%s: %llu, want less than %u", key,
				 (unsigned long long)id, tokenizer->vocabulary.n);
	*ret = (uint32_t)id;
	return 1;
}

static int
read_ids(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
	static const char *const stop_keys[TOKENIZER_STOPS] = { "tokenizer.ggml.eos_token_id",
								"tokenizer.ggml.eot_token_id" };
	int code;

	for (uint32_t i = 0; i < TOKENIZER_STOPS; i++) {
		code = find_id(tokenizer, gguf, stop_keys[i], &tokenizer->stops[tokenizer->n_stops],
			       err);
		if (code < 0)
			return code;
		tokenizer->n_stops += (uint32_t)code;
	}
	tokenizer->begins_text = tokenizer->splitter.begins_text;
	code = gguf_find_bool(gguf, "tokenizer.ggml.add_bos_token", &tokenizer->begins_text, err);
	if (code < 0)
		return code;
	code = find_id(tokenizer, gguf, "tokenizer.ggml.bos_token_id", &tokenizer->begin_id, err);
	if (code < 0)
		return code;
	if (!code)
		tokenizer->begins_text = false;
	return 0;
}

static int
read_kind(struct tokenizer *tokenizer, const struct gguf *gguf, struct error *err)
{
	struct gguf_string model, pre;
	int code;

	code = gguf_find_string(gguf, "tokenizer.ggml.model", &model, err);
	if (code < 0)
		return code;
	if (!code)
		return error_set(err, -ENOTSUP, "the file has no tokenizer (tokenizer.ggml.model)");
	if (!gguf_string_is(model, "gpt2"))
		return error_set(err, -ENOTSUP,
				 "tokenizer.ggml.model: '%.*s' is not supported, only gpt2",
				 (int)(model.bytes > 64 ? 64 : model.bytes), model.at);
	code = gguf_find_string(gguf, "tokenizer.ggml.pre", &pre, err);
	if (code < 0)
		return code;
	if (!code)
		return error_set(err, -ENOTSUP,
				 "tokenizer.ggml.pre: not there, so the words the "
				 "model was trained with are not known");
	return splitter_open(&tokenizer->splitter, pre, err);
}

int
tokenizer_open(struct tokenizer **ret, const struct gguf *gguf, struct error *err)
{
	struct tokenizer *tokenizer = calloc(1, sizeof(*tokenizer));
	int code;

	if (!tokenizer)
		return error_sys(err, -ENOMEM, "tokenizer");
	code = read_kind(tokenizer, gguf, err);
	if (code < 0)
		goto fail;
	code = vocabulary_open(&tokenizer->vocabulary, gguf, err);
	if (code < 0)
		goto fail;
	code = bpe_open(&tokenizer->bpe, gguf, &tokenizer->vocabulary, err);
	if (code < 0)
		goto fail;
	code = read_ids(tokenizer, gguf, err);
	if (code < 0)
		goto fail;
	*ret = tokenizer;
	return 0;
fail:
	tokenizer_close(tokenizer);
	return code;
}

void
tokenizer_close(struct tokenizer *tokenizer)
{
	if (!tokenizer)
		return;
	bpe_close(&tokenizer->bpe);
	vocabulary_close(&tokenizer->vocabulary);
	splitter_close(&tokenizer->splitter);
	free(tokenizer);
}

const char *
tokenizer_name(const struct tokenizer *tokenizer)
{
	return tokenizer->splitter.name;
}

uint32_t
tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
	return tokenizer->vocabulary.n;
}

/* One text on its way to ids. */
struct encoding {
	const struct tokenizer *tokenizer;
	struct split split;
	struct bpe_scratch scratch;
	uint32_t *ids; /* room for one id a byte, and the first */
	uint32_t n;
};

/* A special token at the beginning of the bytes, the longest there is. */
static bool
find_special(const struct vocabulary *vocabulary, const uint8_t *at, size_t n, uint32_t *ret_id,
	     uint32_t *ret_bytes)
{
	if (!vocabulary->special_begins[at[0]])
		return false;
	for (uint32_t i = 0; i < vocabulary->n_special_lengths; i++) {
		uint32_t length = vocabulary->special_lengths[i];

		if (length <= n && words_find(&vocabulary->special, at, length, ret_id)) {
			*ret_bytes = length;
			return true;
		}
	}
	return false;
}

static int
encode_word(struct encoding *encoding, const uint8_t *word, size_t n)
{
	const struct tokenizer *tokenizer = encoding->tokenizer;
	uint32_t *ids = encoding->ids + encoding->n;
	uint32_t n_ids;

	if (tokenizer->splitter.whole_words &&
	    words_find(&tokenizer->vocabulary.normal, word, n, ids)) {
		encoding->n++;
		return 0;
	}
	if (bpe_word(&tokenizer->bpe, &tokenizer->vocabulary, &encoding->scratch, word, (uint32_t)n,
		     ids, &n_ids) < 0)
		return -ENOMEM;
	encoding->n += n_ids;
	return 0;
}

/* Text without special tokens. */
static int
encode_plain(struct encoding *encoding, const uint8_t *at, size_t n)
{
	const uint8_t *word;
	size_t n_word;
	int code;

	split_begin(&encoding->split, at, n);
	while ((code = split_next(&encoding->split, &word, &n_word)) > 0) {
		code = encode_word(encoding, word, n_word);
		if (code < 0)
			break;
	}
	return code;
}

static int
encode_all(struct encoding *encoding, const uint8_t *at, size_t n)
{
	const struct vocabulary *vocabulary = &encoding->tokenizer->vocabulary;
	uint32_t id, length;
	size_t plain = 0, i = 0;
	int code;

	if (encoding->tokenizer->begins_text)
		encoding->ids[encoding->n++] = encoding->tokenizer->begin_id;
	while (i < n) {
		if (!find_special(vocabulary, at + i, n - i, &id, &length)) {
			i++;
			continue;
		}
		code = encode_plain(encoding, at + plain, i - plain);
		if (code < 0)
			return code;
		encoding->ids[encoding->n++] = id;
		i += length;
		plain = i;
	}
	return encode_plain(encoding, at + plain, n - plain);
}

int
tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t n, uint32_t **ret_ids,
		 uint32_t *ret_n, struct error *err)
{
	struct encoding encoding = { .tokenizer = tokenizer };
	int code = -ENOMEM;

	if (n >= UINT32_MAX / sizeof(*encoding.ids))
		return error_set(err, -EINVAL, "a text of %zu bytes, want less than 1 GiB", n);
	encoding.ids = malloc((n + 1) * sizeof(*encoding.ids));
	if (encoding.ids && split_open(&encoding.split, &tokenizer->splitter) == 0)
		code = encode_all(&encoding, (const uint8_t *)text, n);
	split_close(&encoding.split);
	bpe_scratch_close(&encoding.scratch);
	if (code < 0) {
		free(encoding.ids);
		return error_sys(err, code, "tokenizing %zu bytes", n);
	}
	*ret_ids = encoding.ids;
	*ret_n = encoding.n;
	return 0;
}

const uint8_t *
tokenizer_text(const struct tokenizer *tokenizer, uint32_t id, size_t *ret_n)
{
	const struct vocabulary *vocabulary = &tokenizer->vocabulary;

	*ret_n = 0;
	if (id >= vocabulary->n || vocabulary->type[id] == TOKEN_CONTROL ||
	    vocabulary->type[id] == TOKEN_UNKNOWN)
		return vocabulary->bytes;
	*ret_n = vocabulary->first[id + 1] - vocabulary->first[id];
	return vocabulary->bytes + vocabulary->first[id];
}

const uint32_t *
tokenizer_stops(const struct tokenizer *tokenizer, uint32_t *ret_n)
{
	*ret_n = tokenizer->n_stops;
	return tokenizer->stops;
}
