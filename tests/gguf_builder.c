#include "tests/gguf_builder.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"

void
bytes_put(struct bytes *bytes, const void *from, size_t n)
{
	if (bytes->n + n > bytes->room) {
		bytes->room = (bytes->n + n) * 2;
		bytes->at = realloc(bytes->at, bytes->room);
		assert(bytes->at);
	}
	if (n)
		memcpy(bytes->at + bytes->n, from, n);
	bytes->n += n;
}

void
bytes_zero(struct bytes *bytes, size_t n)
{
	uint8_t *zeros = calloc(n + 1, 1);

	assert(zeros);
	bytes_put(bytes, zeros, n);
	free(zeros);
}

void
bytes_u32(struct bytes *bytes, uint32_t value)
{
	bytes_put(bytes, &value, sizeof(value));
}

void
bytes_u64(struct bytes *bytes, uint64_t value)
{
	bytes_put(bytes, &value, sizeof(value));
}

void
bytes_string(struct bytes *bytes, const char *text)
{
	bytes_u64(bytes, strlen(text));
	bytes_put(bytes, text, strlen(text));
}

void
bytes_write(const struct bytes *bytes, const char *path)
{
	FILE *file = fopen(path, "wb");
	size_t written;

	assert(file);
	written = fwrite(bytes->at, 1, bytes->n, file);
	if (fclose(file) != 0 || written != bytes->n)
		abort();
}

void
bytes_close(struct bytes *bytes)
{
	free(bytes->at);
	*bytes = (struct bytes){ 0 };
}

void
builder_open(struct builder *b)
{
	*b = (struct builder){ .version = 3, .alignment = 32 };
}

void
builder_close(struct builder *b)
{
	bytes_close(&b->pairs);
	bytes_close(&b->infos);
	bytes_close(&b->data);
}

void
builder_raw(struct builder *b, const char *key, uint32_t kind, const void *value, size_t n)
{
	bytes_string(&b->pairs, key);
	bytes_u32(&b->pairs, kind);
	bytes_put(&b->pairs, value, n);
	b->n_pairs++;
}

void
builder_u16(struct builder *b, const char *key, uint16_t value)
{
	builder_raw(b, key, GGUF_U16, &value, sizeof(value));
}

void
builder_u32(struct builder *b, const char *key, uint32_t value)
{
	builder_raw(b, key, GGUF_U32, &value, sizeof(value));
}

void
builder_u64(struct builder *b, const char *key, uint64_t value)
{
	builder_raw(b, key, GGUF_U64, &value, sizeof(value));
}

void
builder_f32(struct builder *b, const char *key, float value)
{
	builder_raw(b, key, GGUF_F32, &value, sizeof(value));
}

void
builder_bool(struct builder *b, const char *key, bool value)
{
	uint8_t byte = value;

	builder_raw(b, key, GGUF_BOOL, &byte, sizeof(byte));
}

void
builder_string(struct builder *b, const char *key, const char *value)
{
	builder_raw(b, key, GGUF_STRING, NULL, 0);
	bytes_string(&b->pairs, value);
}

void
builder_strings(struct builder *b, const char *key, const char *const *values, uint64_t n)
{
	builder_raw(b, key, GGUF_ARRAY, NULL, 0);
	bytes_u32(&b->pairs, GGUF_STRING);
	bytes_u64(&b->pairs, n);
	for (uint64_t i = 0; i < n; i++)
		bytes_string(&b->pairs, values[i]);
}

void
builder_i32s(struct builder *b, const char *key, const int32_t *values, uint64_t n)
{
	builder_raw(b, key, GGUF_ARRAY, NULL, 0);
	bytes_u32(&b->pairs, GGUF_I32);
	bytes_u64(&b->pairs, n);
	bytes_put(&b->pairs, values, n * sizeof(*values));
}

void
builder_entry(struct builder *b, const char *name, uint32_t type, uint32_t n_dims,
	      const uint64_t *dims, uint64_t offset)
{
	bytes_string(&b->infos, name);
	bytes_u32(&b->infos, n_dims);
	for (uint32_t i = 0; i < n_dims; i++)
		bytes_u64(&b->infos, dims[i]);
	bytes_u32(&b->infos, type);
	bytes_u64(&b->infos, offset);
	b->n_tensors++;
}

void
builder_tensor(struct builder *b, const char *name, uint32_t type, uint32_t n_dims,
	       const uint64_t *dims, const void *data, size_t bytes)
{
	bytes_zero(&b->data, round_up(b->data.n, b->alignment) - b->data.n);
	builder_entry(b, name, type, n_dims, dims, b->data.n);
	if (data)
		bytes_put(&b->data, data, bytes);
	else
		bytes_zero(&b->data, bytes);
}

void
builder_finish(const struct builder *b, struct bytes *ret)
{
	*ret = (struct bytes){ 0 };
	bytes_put(ret, "GGUF", 4);
	bytes_u32(ret, b->version);
	bytes_u64(ret, b->n_tensors);
	bytes_u64(ret, b->n_pairs);
	bytes_put(ret, b->pairs.at, b->pairs.n);
	bytes_put(ret, b->infos.at, b->infos.n);
	if (b->data.n == 0)
		return;
	bytes_zero(ret, round_up(ret->n, b->alignment) - ret->n);
	bytes_put(ret, b->data.at, b->data.n);
}

void
builder_write(const struct builder *b, const char *path)
{
	struct bytes whole;

	builder_finish(b, &whole);
	bytes_write(&whole, path);
	bytes_close(&whole);
}
