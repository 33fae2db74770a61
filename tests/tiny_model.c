/* The tiny model of gguf_builder.h. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/types.h"
#include "tests/gguf_builder.h"

struct weights {
	struct builder *b;
	const struct tiny *tiny;
	uint32_t from, to; /* of all tensors, those to add */
	uint32_t index;    /* of the next tensor */
};

struct tiny
tiny_default(void)
{
	return (struct tiny){
		.name = "tiny",
		.layers = 2,
		.hidden = 64,
		.heads = 4,
		.kv_heads = 2,
		.head_dim = 32,
		.experts = 8,
		.top_k = 2,
		.width = 32,
		.vocabulary = 96,
		.context = 256,
		.seed = 1,
	};
}

/* In [-1, 1). */
static float
next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return (float)(int32_t)*state / 2147483648.0f;
}

static void
put_half(struct bytes *out, uint16_t value)
{
	bytes_put(out, &value, sizeof(value));
}

static void
put_q8(struct bytes *out, const float *values)
{
	float most = 0;
	int8_t quants[32];

	for (int i = 0; i < 32; i++)
		most = fmaxf(most, fabsf(values[i]));
	for (int i = 0; i < 32; i++)
		quants[i] = (int8_t)(most > 0 ? lrintf(values[i] * 127 / most) : 0);
	put_half(out, type_float_to_half(most / 127));
	bytes_put(out, quants, sizeof(quants));
}

static void
put_q4(struct bytes *out, const float *values)
{
	uint8_t quants[32], packed[16];
	float most = 0;

	for (int i = 0; i < 32; i++)
		most = fmaxf(most, fabsf(values[i]));
	for (int i = 0; i < 32; i++)
		quants[i] = most > 0 ? (uint8_t)(lrintf(values[i] * 7 / most) + 8) : 8;
	for (int i = 0; i < 16; i++)
		packed[i] = (uint8_t)(quants[i] | quants[i + 16] << 4);
	put_half(out, type_float_to_half(most / 7));
	bytes_put(out, packed, sizeof(packed));
}

static void
encode(struct bytes *out, uint32_t type, const float *values, uint64_t n)
{
	uint32_t bits;

	for (uint64_t i = 0; type == TYPE_BF16 && i < n; i++) {
		memcpy(&bits, &values[i], sizeof(bits));
		put_half(out, (uint16_t)(bits >> 16));
	}
	for (uint64_t i = 0; type == TYPE_F16 && i < n; i++)
		put_half(out, type_float_to_half(values[i]));
	for (uint64_t i = 0; type == TYPE_Q8_0 && i < n; i += 32)
		put_q8(out, values + i);
	for (uint64_t i = 0; type == TYPE_Q4_0 && i < n; i += 32)
		put_q4(out, values + i);
	if (type == TYPE_F32)
		bytes_put(out, values, n * sizeof(*values));
	assert(out->n > 0); /* a type that this maker knows */
}

/* Every tensor has its own random stream, so that parts hold what the whole does. */
static void
add(struct weights *w, const char *name, uint32_t type, uint64_t columns, uint64_t rows,
    uint64_t experts)
{
	uint64_t dims[3] = { columns, rows, experts };
	uint64_t n = columns * rows * experts;
	uint32_t random = (w->tiny->seed * 2654435761u) ^ ((w->index + 1) * 40503u);
	uint32_t n_dims = experts > 1 ? 3 : rows > 1 ? 2 : 1;
	float scale = 1.0f / sqrtf((float)columns);
	struct bytes out = { 0 };
	float *values;

	w->index++;
	if (w->index <= w->from || w->index > w->to)
		return;
	values = malloc(n * sizeof(*values));
	assert(values);
	random = random ? random : 1;
	for (int i = 0; i < 8; i++)
		next_random(&random);
	for (uint64_t i = 0; i < n; i++)
		values[i] = n_dims == 1 ? 1 + 0.1f * next_random(&random)
					: 1.7f * scale * next_random(&random);
	encode(&out, type, values, n);
	builder_tensor(w->b, name, type, n_dims, dims, out.at, out.n);
	bytes_close(&out);
	free(values);
}

static void
add_layer(struct weights *w, uint32_t layer)
{
	const struct tiny *t = w->tiny;
	uint32_t q = t->heads * t->head_dim, kv = t->kv_heads * t->head_dim;
	const struct {
		const char *part;
		uint32_t type, columns, rows, experts;
	} list[] = {
		{ "attn_norm", TYPE_F32, t->hidden, 1, 1 },
		{ "attn_q", t->type, t->hidden, q, 1 },
		{ "attn_k", t->type, t->hidden, kv, 1 },
		{ "attn_v", t->type, t->hidden, kv, 1 },
		{ "attn_output", t->type, q, t->hidden, 1 },
		{ "attn_q_norm", TYPE_F32, t->head_dim, 1, 1 },
		{ "attn_k_norm", TYPE_F32, t->head_dim, 1, 1 },
		{ "ffn_norm", TYPE_F32, t->hidden, 1, 1 },
		{ "ffn_gate_inp", TYPE_F32, t->hidden, t->experts, 1 },
		{ "ffn_gate_exps", t->expert_type, t->hidden, t->width, t->experts },
		{ "ffn_up_exps", t->expert_type, t->hidden, t->width, t->experts },
		{ "ffn_down_exps", t->expert_type, t->width, t->hidden, t->experts },
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
		char name[GGUF_MAX_NAME];

		snprintf(name, sizeof(name), "blk.%u.%s.weight", layer, list[i].part);
		add(w, name, list[i].type, list[i].columns, list[i].rows, list[i].experts);
	}
}

static uint32_t
count_tensors(const struct tiny *tiny)
{
	return 2 + !tiny->tied + 12 * tiny->layers;
}

static void
add_tensors(struct builder *b, const struct tiny *tiny, uint32_t from, uint32_t to)
{
	struct weights w = { .b = b, .tiny = tiny, .from = from, .to = to };

	add(&w, "token_embd.weight", tiny->type, tiny->hidden, tiny->vocabulary, 1);
	add(&w, "output_norm.weight", TYPE_F32, tiny->hidden, 1, 1);
	if (!tiny->tied)
		add(&w, "output.weight", tiny->type, tiny->hidden, tiny->vocabulary, 1);
	for (uint32_t i = 0; i < tiny->layers; i++)
		add_layer(&w, i);
}

static void
add_keys(struct builder *b, const struct tiny *tiny)
{
	builder_string(b, "general.architecture", "qwen3moe");
	builder_string(b, "general.name", tiny->name);
	if (tiny->file_type)
		builder_u32(b, "general.file_type", tiny->file_type);
	builder_u32(b, "qwen3moe.block_count", tiny->layers);
	builder_u32(b, "qwen3moe.context_length", tiny->context);
	builder_u32(b, "qwen3moe.embedding_length", tiny->hidden);
	builder_u32(b, "qwen3moe.attention.head_count", tiny->heads);
	builder_u32(b, "qwen3moe.attention.head_count_kv", tiny->kv_heads);
	builder_u32(b, "qwen3moe.attention.key_length", tiny->head_dim);
	builder_u32(b, "qwen3moe.attention.value_length", tiny->head_dim);
	builder_u32(b, "qwen3moe.expert_count", tiny->experts);
	builder_u32(b, "qwen3moe.expert_used_count", tiny->top_k);
	builder_u32(b, "qwen3moe.expert_feed_forward_length", tiny->width);
	builder_f32(b, "qwen3moe.rope.freq_base", 10000);
	builder_f32(b, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
}

void
tiny_build(struct builder *b, const struct tiny *tiny)
{
	add_keys(b, tiny);
	add_tensors(b, tiny, 0, count_tensors(tiny));
}

void
tiny_write(const struct tiny *tiny, const char *path)
{
	struct builder b;

	builder_open(&b);
	tiny_build(&b, tiny);
	builder_write(&b, path);
	builder_close(&b);
}

void
tiny_build_part(struct builder *b, const struct tiny *tiny, uint32_t part, uint32_t parts)
{
	uint32_t n = count_tensors(tiny);
	uint32_t from = (uint32_t)((uint64_t)n * part / parts);
	uint32_t to = (uint32_t)((uint64_t)n * (part + 1) / parts);

	if (part == 0)
		add_keys(b, tiny);
	builder_u16(b, "split.no", (uint16_t)part);
	builder_u16(b, "split.count", (uint16_t)parts);
	builder_raw(b, "split.tensors.count", GGUF_I32, &n, sizeof(n));
	add_tensors(b, tiny, from, to);
}

void
tiny_split_path(char *ret, size_t room, const char *stem, uint32_t part, uint32_t parts)
{
	snprintf(ret, room, "%s-%05u-of-%05u.gguf", stem, part + 1, parts);
}

void
tiny_write_split(const struct tiny *tiny, const char *stem, uint32_t parts)
{
	for (uint32_t part = 0; part < parts; part++) {
		struct builder b;
		char path[512];

		builder_open(&b);
		tiny_build_part(&b, tiny, part, parts);
		tiny_split_path(path, sizeof(path), stem, part, parts);
		builder_write(&b, path);
		builder_close(&b);
	}
}
