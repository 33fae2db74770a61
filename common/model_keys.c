#include "common/model_keys.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ARCHITECTURE "qwen3moe"
#define KEY(name) ARCHITECTURE "." name

/* Rows and columns: the widest published are below 2^15; keeps products in 64 bits. */
#define MAX_WIDTH (1u << 20)
#define MAX_HEADS (1u << 10)
#define MAX_HEAD_DIM (1u << 12)

struct reader {
	const struct gguf *gguf;
	const char *file;
	struct error *err;
};

/* Puts the file's name behind a message of gguf_find_*. */
static int
in_file(const struct reader *reader, int rc)
{
	char text[sizeof(reader->err->text)];

	snprintf(text, sizeof(text), "%s", reader->err->text);
	return error_set(reader->err, rc, "%s (%s)", text, reader->file);
}

/* Stays as it is (the default) when there is no such key and `must` is false. */
static int
read_u32(const struct reader *reader, const char *key, bool must, uint32_t max, uint32_t *ret)
{
	uint64_t value = 0;
	int rc = gguf_find_u64(reader->gguf, key, &value, reader->err);

	if (rc < 0)
		return in_file(reader, rc);
	if (rc == 0 && !must)
		return 0;
	if (rc == 0)
		return error_set(reader->err, -EINVAL,
				 "key %s: not there, want 1 to %" PRIu32 " (%s)", key, max,
				 reader->file);
	if (value == 0 || value > max)
		return error_set(reader->err, -EINVAL,
				 "key %s: %" PRIu64 ", want 1 to %" PRIu32 " (%s)", key, value, max,
				 reader->file);
	*ret = (uint32_t)value;
	return 0;
}

static int
read_positive(const struct reader *reader, const char *key, bool must, float *ret)
{
	double value = 0;
	int rc = gguf_find_f64(reader->gguf, key, &value, reader->err);

	if (rc < 0)
		return in_file(reader, rc);
	if (rc == 0 && !must)
		return 0;
	if (rc == 0)
		return error_set(reader->err, -EINVAL,
				 "key %s: not there, want a float above 0 (%s)", key, reader->file);
	if (!(value > 0) || !isfinite((float)value))
		return error_set(reader->err, -EINVAL, "key %s: %g, want a float above 0 (%s)", key,
				 value, reader->file);
	*ret = (float)value;
	return 0;
}

/* A key that may be absent, but if it is there has this value alone. */
static int
check_u64(const struct reader *reader, const char *key, uint64_t want)
{
	uint64_t value;
	int rc = gguf_find_u64(reader->gguf, key, &value, reader->err);

	if (rc < 0)
		return in_file(reader, rc);
	if (rc == 1 && value != want)
		return error_set(reader->err, -ENOTSUP,
				 "key %s: %" PRIu64 ", supported is %" PRIu64 " (%s)", key, value,
				 want, reader->file);
	return 0;
}

/* Routing weights are the softmax of all experts, the top ones scaled to a sum of 1. */
static int
check_routing(const struct reader *reader)
{
	double scale = 1;
	bool norm = true;
	int rc = check_u64(reader, KEY("expert_shared_count"), 0);

	if (rc == 0)
		rc = check_u64(reader, KEY("leading_dense_block_count"), 0);
	if (rc == 0)
		rc = check_u64(reader, KEY("expert_gating_func"), 1);
	if (rc == 0)
		rc = check_u64(reader, KEY("expert_group_count"), 1);
	if (rc == 0)
		rc = check_u64(reader, KEY("attention.sliding_window"), 0);
	if (rc < 0)
		return rc;
	rc = gguf_find_bool(reader->gguf, KEY("expert_weights_norm"), &norm, reader->err);
	if (rc >= 0)
		rc = gguf_find_f64(reader->gguf, KEY("expert_weights_scale"), &scale, reader->err);
	if (rc < 0)
		return in_file(reader, rc);
	if (!norm)
		return error_set(reader->err, -ENOTSUP, "key %s: false, supported is true (%s)",
				 KEY("expert_weights_norm"), reader->file);
	if (scale != 1)
		return error_set(reader->err, -ENOTSUP, "key %s: %g, supported is 1 (%s)",
				 KEY("expert_weights_scale"), scale, reader->file);
	return 0;
}

static int
check_rope(const struct reader *reader, const struct model *model)
{
	static const char prefix[] = KEY("rope.scal"); /* .scaling.*, .scale_linear */
	struct gguf_string type = { 0 };
	int rc = check_u64(reader, KEY("rope.dimension_count"), model->head_dim);

	if (rc < 0)
		return rc;
	rc = gguf_find_string(reader->gguf, KEY("rope.scaling.type"), &type, reader->err);
	if (rc < 0)
		return in_file(reader, rc);
	if (rc == 1 && gguf_string_is(type, "none"))
		return 0;
	for (uint64_t i = 0; i < reader->gguf->n_pairs; i++) {
		struct gguf_string key = reader->gguf->pairs[i].key;

		if (key.bytes < sizeof(prefix) - 1 ||
		    memcmp(key.at, prefix, sizeof(prefix) - 1) != 0)
			continue;
		return error_set(reader->err, -ENOTSUP,
				 "key %.*s: scaled rotary positions, supported is "
				 "rope.scaling.type \"none\" or no such key (%s)",
				 (int)key.bytes, key.at, reader->file);
	}
	return 0;
}

static int
check_architecture(const struct reader *reader)
{
	struct gguf_string is;
	int rc = gguf_find_string(reader->gguf, "general.architecture", &is, reader->err);

	if (rc < 0)
		return in_file(reader, rc);
	if (rc == 0)
		return error_set(reader->err, -EINVAL,
				 "key general.architecture: not there, want \"%s\" (%s)",
				 ARCHITECTURE, reader->file);
	if (!gguf_string_is(is, ARCHITECTURE))
		return error_set(reader->err, -ENOTSUP,
				 "key general.architecture: \"%.*s\", supported is \"%s\" (%s)",
				 is.bytes < 64 ? (int)is.bytes : 64, is.at, ARCHITECTURE,
				 reader->file);
	return 0;
}

static int
read_name(const struct reader *reader, struct model *model)
{
	struct gguf_string name = { ARCHITECTURE, sizeof(ARCHITECTURE) - 1 };
	uint64_t n;
	int rc = gguf_find_string(reader->gguf, "general.name", &name, reader->err);

	if (rc < 0)
		return in_file(reader, rc);
	n = name.bytes < sizeof(model->name) ? name.bytes : sizeof(model->name) - 1;
	while (n < name.bytes && n > 0 && ((uint8_t)name.at[n] & 0xc0) == 0x80)
		n--; /* whole UTF-8 characters */
	memcpy(model->name, name.at, n);
	for (uint64_t i = 0; i < n; i++)
		if ((uint8_t)model->name[i] < ' ')
			model->name[i] = ' ';
	return 0;
}

static int
read_heads(const struct reader *reader, struct model *model)
{
	uint32_t value_dim;
	int rc = read_u32(reader, KEY("attention.head_count"), true, MAX_HEADS, &model->heads);

	model->kv_heads = model->heads;
	if (rc == 0)
		rc = read_u32(reader, KEY("attention.head_count_kv"), false, MAX_HEADS,
			      &model->kv_heads);
	if (rc < 0)
		return rc;
	assert(model->heads > 0 && model->kv_heads > 0);
	if (model->heads % model->kv_heads)
		return error_set(reader->err, -EINVAL,
				 "key %s: %" PRIu32 ", want a divisor of %" PRIu32 " heads (%s)",
				 KEY("attention.head_count_kv"), model->kv_heads, model->heads,
				 reader->file);
	model->head_dim = model->hidden / model->heads;
	rc = read_u32(reader, KEY("attention.key_length"), false, MAX_HEAD_DIM, &model->head_dim);
	value_dim = model->hidden / model->heads;
	if (rc == 0)
		rc = read_u32(reader, KEY("attention.value_length"), false, MAX_HEAD_DIM,
			      &value_dim);
	if (rc < 0)
		return rc;
	if (model->head_dim == 0 || model->head_dim % 2 || model->head_dim > MAX_HEAD_DIM)
		return error_set(reader->err, -EINVAL,
				 "key %s: heads of %" PRIu32 ", want an even number to %u (%s)",
				 KEY("attention.key_length"), model->head_dim, MAX_HEAD_DIM,
				 reader->file);
	if (value_dim != model->head_dim)
		return error_set(
		    reader->err, -ENOTSUP,
		    "key %s: %" PRIu32 ", supported is the key_length, %" PRIu32 " (%s)",
		    KEY("attention.value_length"), value_dim, model->head_dim, reader->file);
	return 0;
}

static int
read_experts(const struct reader *reader, struct model *model)
{
	int rc = read_u32(reader, KEY("expert_count"), true, MAX_EXPERTS, &model->n_experts);

	if (rc == 0)
		rc = read_u32(reader, KEY("expert_used_count"), true, MAX_EXPERTS, &model->top_k);
	if (rc == 0)
		rc = read_u32(reader, KEY("expert_feed_forward_length"), true, MAX_WIDTH,
			      &model->expert_width);
	if (rc < 0)
		return rc;
	if (model->top_k > model->n_experts)
		return error_set(reader->err, -EINVAL,
				 "key %s: %" PRIu32 ", want at most the %" PRIu32 " experts (%s)",
				 KEY("expert_used_count"), model->top_k, model->n_experts,
				 reader->file);
	return check_routing(reader);
}

int
model_read_keys(struct model *ret, const struct gguf *gguf, const char *file, struct error *err)
{
	struct reader reader = { gguf, file, err };
	struct model model = { .rope_base = 10000 };
	int rc = check_architecture(&reader);

	if (rc == 0)
		rc = read_name(&reader, &model);
	if (rc == 0)
		rc = read_u32(&reader, KEY("block_count"), true, MAX_LAYERS, &model.n_layers);
	if (rc == 0)
		rc = read_u32(&reader, KEY("context_length"), true, MAX_CONTEXT, &model.context);
	if (rc == 0)
		rc = read_u32(&reader, KEY("embedding_length"), true, MAX_WIDTH, &model.hidden);
	if (rc == 0)
		rc = read_heads(&reader, &model);
	if (rc == 0)
		rc = read_experts(&reader, &model);
	if (rc == 0)
		rc = read_positive(&reader, KEY("rope.freq_base"), false, &model.rope_base);
	if (rc == 0)
		rc = read_positive(&reader, KEY("attention.layer_norm_rms_epsilon"), true,
				   &model.norm_epsilon);
	if (rc == 0)
		rc = check_rope(&reader, &model);
	if (rc == 0)
		*ret = model;
	return rc;
}
