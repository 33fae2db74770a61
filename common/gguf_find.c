/* The reading half of gguf.h: values by key, once the bytes have been parsed. */
#include <errno.h>
#include <string.h>

#include "common/gguf.h"

static const char *
kind_name(enum gguf_kind kind)
{
	static const char *const names[] = { "uint8",  "int8",    "uint16", "int16",  "uint32",
					     "int32",  "float32", "bool",   "string", "array",
					     "uint64", "int64",   "float64" };

	return names[kind];
}

bool
gguf_string_is(struct gguf_string string, const char *text)
{
	return string.bytes == strlen(text) && memcmp(string.at, text, string.bytes) == 0;
}

const struct gguf_pair *
gguf_find(const struct gguf *gguf, const char *key)
{
	for (uint64_t i = 0; i < gguf->n_pairs; i++)
		if (gguf_string_is(gguf->pairs[i].key, key))
			return &gguf->pairs[i];
	return NULL;
}

static int
wrong_kind(const struct gguf_pair *pair, const char *key, const char *want, struct error *err)
{
	return error_set(err, -EINVAL, "key %s: %s, want %s", key, kind_name(pair->kind), want);
}

#define LOAD(type, at)                             \
	({                                         \
		type value_;                       \
		memcpy(&value_, at, sizeof(type)); \
		value_;                            \
	})

int
gguf_find_u64(const struct gguf *gguf, const char *key, uint64_t *ret, struct error *err)
{
	const struct gguf_pair *pair = gguf_find(gguf, key);
	int64_t value;

	if (!pair)
		return 0;
	switch (pair->kind) {
	case GGUF_U8:
		value = LOAD(uint8_t, pair->at);
		break;
	case GGUF_I8:
		value = (int64_t)LOAD(int8_t, pair->at);
		break;
	case GGUF_U16:
		value = LOAD(uint16_t, pair->at);
		break;
	case GGUF_I16:
		value = LOAD(int16_t, pair->at);
		break;
	case GGUF_U32:
		value = LOAD(uint32_t, pair->at);
		break;
	case GGUF_I32:
		value = LOAD(int32_t, pair->at);
		break;
	case GGUF_I64:
		value = LOAD(int64_t, pair->at);
		break;
	case GGUF_U64:
		*ret = LOAD(uint64_t, pair->at);
		return 1;
	default:
		return wrong_kind(pair, key, "an integer", err);
	}
	if (value < 0)
		return error_set(err, -EINVAL, "key %s: %lld, want 0 or more", key,
				 (long long)value);
	*ret = (uint64_t)value;
	return 1;
}

int
gguf_find_f64(const struct gguf *gguf, const char *key, double *ret, struct error *err)
{
	const struct gguf_pair *pair = gguf_find(gguf, key);

	if (!pair)
		return 0;
	if (pair->kind == GGUF_F32)
		*ret = LOAD(float, pair->at);
	else if (pair->kind == GGUF_F64)
		*ret = LOAD(double, pair->at);
	else
		return wrong_kind(pair, key, "float32 or float64", err);
	return 1;
}

int
gguf_find_bool(const struct gguf *gguf, const char *key, bool *ret, struct error *err)
{
	const struct gguf_pair *pair = gguf_find(gguf, key);

	if (!pair)
		return 0;
	if (pair->kind != GGUF_BOOL)
		return wrong_kind(pair, key, "bool", err);
	*ret = *pair->at != 0;
	return 1;
}

int
gguf_find_string(const struct gguf *gguf, const char *key, struct gguf_string *ret,
		 struct error *err)
{
	const struct gguf_pair *pair = gguf_find(gguf, key);
	const uint8_t *at;

	if (!pair)
		return 0;
	if (pair->kind != GGUF_STRING)
		return wrong_kind(pair, key, "string", err);
	at = pair->at;
	*ret = gguf_next_string(&at);
	return 1;
}

struct gguf_string
gguf_next_string(const uint8_t **at)
{
	uint64_t bytes = LOAD(uint64_t, *at);
	struct gguf_string string = { (const char *)*at + sizeof(bytes), bytes };

	*at += sizeof(bytes) + bytes;
	return string;
}
