#include "tests/gguf_split.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model.h"
#include "tests/gguf_builder.h"

static void
read_file(struct bytes *ret, const char *path)
{
	static char piece[1 << 16];
	FILE *file = fopen(path, "rb");
	size_t n;

	assert(file);
	*ret = (struct bytes){ 0 };
	while ((n = fread(piece, 1, sizeof(piece), file)) > 0)
		bytes_put(ret, piece, n);
	fclose(file);
}

/* Everything of the header between the end of a key and the begin of the next. */
static void
copy_pair(struct builder *b, const struct gguf *gguf, uint64_t i, const uint8_t *entries)
{
	const struct gguf_pair *pair = &gguf->pairs[i];
	const uint8_t *value = (const uint8_t *)pair->key.at + pair->key.bytes + sizeof(uint32_t);
	const uint8_t *end = i + 1 < gguf->n_pairs
				 ? (const uint8_t *)gguf->pairs[i + 1].key.at - sizeof(uint64_t)
				 : entries;
	char key[256];

	snprintf(key, sizeof(key), "%.*s", (int)pair->key.bytes, pair->key.at);
	builder_raw(b, key, pair->kind, value, (size_t)(end - value));
}

static uint32_t
shard_of(const char *name, uint64_t i)
{
	enum role role;

	if (model_expert_layer(name, &role) >= 0)
		return role == ROLE_GATE ? 0 : role == ROLE_UP ? 1 : 2;
	return (uint32_t)(i % SPLIT_SHARDS);
}

static void
write_shard(const struct gguf *gguf, const struct bytes *whole, const char *stem, uint32_t shard)
{
	const uint8_t *entries = (const uint8_t *)gguf->tensors[0].name.at - sizeof(uint64_t);
	uint32_t n = (uint32_t)gguf->n_tensors;
	struct builder b;
	char text[512];

	builder_open(&b);
	for (uint64_t i = 0; shard == 0 && i < gguf->n_pairs; i++)
		copy_pair(&b, gguf, i, entries);
	if (shard == 0)
		b.alignment = (uint32_t)gguf->alignment;
	builder_u16(&b, "split.no", (uint16_t)shard);
	builder_u16(&b, "split.count", SPLIT_SHARDS);
	builder_raw(&b, "split.tensors.count", GGUF_I32, &n, sizeof(n));
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		const struct gguf_tensor *tensor = &gguf->tensors[i];

		snprintf(text, sizeof(text), "%.*s", (int)tensor->name.bytes, tensor->name.at);
		if (shard_of(text, i) == shard)
			builder_tensor(&b, text, tensor->type, tensor->n_dims, tensor->dims,
				       whole->at + tensor->offset, tensor->bytes);
	}
	tiny_split_path(text, sizeof(text), stem, shard, SPLIT_SHARDS);
	builder_write(&b, text);
	builder_close(&b);
}

void
gguf_split(const char *model, const char *stem)
{
	struct bytes whole;
	struct error err;
	struct gguf gguf;
	int rc;

	read_file(&whole, model);
	rc = gguf_parse(&gguf, whole.at, whole.n, whole.n, model, &err);
	if (rc < 0 || gguf.n_tensors == 0)
		abort();
	for (uint32_t shard = 0; shard < SPLIT_SHARDS; shard++)
		write_shard(&gguf, &whole, stem, shard);
	gguf_close(&gguf);
	bytes_close(&whole);
}
