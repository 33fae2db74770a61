#include "scheduler/vocabulary.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "proto/limits.h"

/* GPT-2's alphabet: bytes that print (and are no space) stand for themselves, the other 68 are
 * U+0100 and on, in order.  -1: the character stands for no byte. */
static int
character_byte(uint32_t character)
{
	uint32_t next = 0x100;

	if ((character >= 0x21 && character <= 0x7e) || (character >= 0xa1 && character <= 0xac) ||
	    (character >= 0xae && character <= 0xff))
		return (int)character;
	if (character < 0x100 || character > 0x143)
		return -1;
	for (int byte = 0; byte < 256; byte++) {
		if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
		    byte >= 0xae)
			continue;
		if (next++ == character)
			return byte;
	}
	return -1;
}

uint32_t
vocabulary_unpack(struct gguf_string text, uint8_t *ret)
{
	const uint8_t *at = (const uint8_t *)text.at;
	uint32_t n = 0, character;
	size_t length;
	int byte;

	for (size_t i = 0; i < text.bytes; i += length) {
		length = utf8_decode(at + i, text.bytes - i, &character);
		byte = length ? character_byte(character) : -1;
		if (byte < 0) {
			memcpy(ret, text.at, text.bytes);
			return (uint32_t)text.bytes;
		}
		ret[n++] = (uint8_t)byte;
	}
	return n;
}

static bool
is_special(uint8_t type)
{
	return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED;
}

/* The token list, checked: how many, and that their bytes count in 32 bits. */
static const struct gguf_pair *
find_tokens(const struct gguf *gguf, uint32_t *ret_bytes, struct error *err)
{
	const struct gguf_pair *pair = gguf_find(gguf, "tokenizer.ggml.tokens");
	const uint8_t *at;
	uint64_t bytes = 0;

	if (!pair || pair->kind != GGUF_ARRAY || pair->element != GGUF_STRING || !pair->count) {
		error_set(err, -EINVAL, "tokenizer.ggml.tokens: no list of strings");
		return NULL;
	}
	if (pair->count > MAX_VOCABULARY) {
		error_set(err, -EINVAL,
			  "tokenizer.ggml.tokens: %llu tokens, at most %u are supported",
			  (unsigned long long)pair->count, MAX_VOCABULARY);
		return NULL;
	}
	at = pair->at;
	for (uint64_t i = 0; i < pair->count; i++)
		bytes += gguf_next_string(&at).bytes;
	if (bytes > UINT32_MAX) {
		error_set(err, -EINVAL, "tokenizer.ggml.tokens: %llu bytes of text, at most %u",
			  (unsigned long long)bytes, UINT32_MAX);
		return NULL;
	}
	*ret_bytes = (uint32_t)bytes;
	return pair;
}

/* No list of types: all are normal. */
static int
read_types(struct vocabulary *vocabulary, const struct gguf *gguf, struct error *err)
{
	const struct gguf_pair *pair = gguf_find(gguf, "tokenizer.ggml.token_type");
	uint32_t type;

	memset(vocabulary->type, TOKEN_NORMAL, vocabulary->n);
	if (!pair)
		return 0;
	if (pair->kind != GGUF_ARRAY || (pair->element != GGUF_I32 && pair->element != GGUF_U32) ||
	    pair->count != vocabulary->n)
		return error_set(err, -EINVAL,
				 "tokenizer.ggml.token_type: want a list of %u 32-bit integers",
				 vocabulary->n);
	for (uint32_t i = 0; i < vocabulary->n; i++) {
		memcpy(&type, pair->at + (size_t)i * sizeof(type), sizeof(type));
		if (type < TOKEN_NORMAL || type > TOKEN_BYTE)
			return error_set(err, -EINVAL,
					 "tokenizer.ggml.token_type: token %u has type %u, want "
					 "1 to 6",
					 i, type);
		vocabulary->type[i] = (uint8_t)type;
	}
	return 0;
}

static void
read_tokens(struct vocabulary *vocabulary, const struct gguf_pair *tokens)
{
	const uint8_t *at = tokens->at;
	uint32_t filled = 0;

	for (uint32_t i = 0; i < vocabulary->n; i++) {
		struct gguf_string text = gguf_next_string(&at);
		uint8_t *bytes = vocabulary->bytes + filled;

		vocabulary->first[i] = filled;
		if (vocabulary->type[i] == TOKEN_NORMAL) {
			filled += vocabulary_unpack(text, bytes);
		} else {
			memcpy(bytes, text.at, text.bytes);
			filled += (uint32_t)text.bytes;
		}
	}
	vocabulary->first[vocabulary->n] = filled;
}

static int
longer_first(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x < y) - (x > y);
}

/* Keeps each length once. */
static void
sort_special_lengths(struct vocabulary *vocabulary)
{
	uint32_t *lengths = vocabulary->special_lengths, kept = 0;

	qsort(lengths, vocabulary->n_special_lengths, sizeof(*lengths), longer_first);
	for (uint32_t i = 0; i < vocabulary->n_special_lengths; i++) {
		if (!kept || lengths[kept - 1] != lengths[i])
			lengths[kept++] = lengths[i];
	}
	vocabulary->n_special_lengths = kept;
}

static int
index_tokens(struct vocabulary *vocabulary, struct error *err)
{
	for (uint32_t i = 0; i < vocabulary->n; i++) {
		const uint8_t *at = vocabulary->bytes + vocabulary->first[i];
		uint32_t bytes = vocabulary->first[i + 1] - vocabulary->first[i];

		if (!bytes)
			continue;
		if (vocabulary->type[i] == TOKEN_NORMAL) {
			words_add(&vocabulary->normal, at, bytes, i);
		} else if (is_special(vocabulary->type[i])) {
			words_add(&vocabulary->special, at, bytes, i);
			vocabulary->special_begins[at[0]] = true;
			vocabulary->special_lengths[vocabulary->n_special_lengths++] = bytes;
		}
	}
	sort_special_lengths(vocabulary);
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint8_t one = (uint8_t)byte;

		if (!words_find(&vocabulary->normal, &one, 1, &vocabulary->byte_ids[byte]))
			return error_set(err, -EINVAL,
					 "tokenizer.ggml.tokens: no token for the byte 0x%02x",
					 byte);
	}
	return 0;
}

int
vocabulary_open(struct vocabulary *ret, const struct gguf *gguf, struct error *err)
{
	struct vocabulary vocabulary = { 0 };
	const struct gguf_pair *tokens;
	uint32_t bytes;
	int code;

	tokens = find_tokens(gguf, &bytes, err);
	if (!tokens)
		return -EINVAL;
	vocabulary.n = (uint32_t)tokens->count;
	vocabulary.bytes = malloc(bytes + 1ull);
	vocabulary.first = calloc(vocabulary.n + 1ull, sizeof(*vocabulary.first));
	vocabulary.type = calloc(vocabulary.n, 1);
	vocabulary.special_lengths = calloc(vocabulary.n, sizeof(*vocabulary.special_lengths));
	if (!vocabulary.bytes || !vocabulary.first || !vocabulary.type ||
	    !vocabulary.special_lengths || words_open(&vocabulary.normal, vocabulary.n) < 0 ||
	    words_open(&vocabulary.special, vocabulary.n) < 0) {
		code = error_sys(err, -ENOMEM, "a vocabulary of %u tokens", vocabulary.n);
		goto fail;
	}
	code = read_types(&vocabulary, gguf, err);
	if (code < 0)
		goto fail;
	read_tokens(&vocabulary, tokens);
	code = index_tokens(&vocabulary, err);
	if (code < 0)
		goto fail;
	*ret = vocabulary;
	return 0;
fail:
	vocabulary_close(&vocabulary);
	return code;
}

void
vocabulary_close(struct vocabulary *vocabulary)
{
	words_close(&vocabulary->special);
	words_close(&vocabulary->normal);
	free(vocabulary->special_lengths);
	free(vocabulary->type);
	free(vocabulary->first);
	free(vocabulary->bytes);
	*vocabulary = (struct vocabulary){ 0 };
}
