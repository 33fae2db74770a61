/* common/model.h: which models are taken, and why others are not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/model.h"
#include "common/types.h"
#include "tests/gguf_builder.h"

/* Parses what the builder holds and reads the model of it. */
static int
read_built(struct builder *b, struct model *model, struct error *err)
{
	struct arena_tensor *tensors;
	struct bytes whole;
	struct gguf gguf;
	int rc;

	builder_finish(b, &whole);
	builder_close(b);
	rc = gguf_parse(&gguf, whole.at, whole.n, whole.n, "m.gguf", err);
	if (rc < 0)
		fail_msg("%s", err->text);
	tensors = calloc(gguf.n_tensors, sizeof(*tensors));
	assert_non_null(tensors);
	for (uint64_t i = 0; i < gguf.n_tensors; i++) {
		const struct gguf_tensor *from = &gguf.tensors[i];

		memcpy(tensors[i].name, from->name.at, from->name.bytes);
		memcpy(tensors[i].dims, from->dims, sizeof(from->dims));
		tensors[i].type = from->type;
		tensors[i].n_dims = from->n_dims;
		tensors[i].offset = from->offset;
		tensors[i].bytes = from->bytes;
	}
	rc = model_read(model, &gguf, tensors, gguf.n_tensors, "m.gguf", err);
	free(tensors);
	gguf_close(&gguf);
	bytes_close(&whole);
	return rc;
}

static void
expect_refused(struct builder *b, int code, const char *part)
{
	struct model model = { 0 };
	struct error err = { "" };

	assert_int_equal(read_built(b, &model, &err), code);
	if (!strstr(err.text, part) || !strstr(err.text, "(m.gguf)"))
		fail_msg("\"%s\" does not say \"%s\"", err.text, part);
	assert_null(model.layers);
}

static void
open_tiny(struct builder *b)
{
	struct tiny tiny = tiny_default();

	builder_open(b);
	tiny_build(b, &tiny);
}

/* Where `text` stands in a table of the builder. */
static uint8_t *
find_text(struct bytes *in, const char *text)
{
	uint8_t *at = memmem(in->at, in->n, text, strlen(text));

	assert_non_null(at);
	return at;
}

/* Gives an integer key of the tiny model another value. */
static void
set_u32(struct builder *b, const char *key, uint32_t value)
{
	memcpy(find_text(&b->pairs, key) + strlen(key) + 4, &value, sizeof(value));
}

/* Gives a key another name of the same length, so that it is not there. */
static void
hide_key(struct builder *b, const char *key)
{
	*find_text(&b->pairs, key) = '_';
}

static void
a_tiny_model_gives_its_shape(void **state)
{
	struct tiny tiny = tiny_default();
	struct model model;
	struct error err;
	struct builder b;

	(void)state;
	tiny.type = TYPE_Q8_0;
	tiny.expert_type = TYPE_Q4_0;
	builder_open(&b);
	tiny_build(&b, &tiny);
	assert_int_equal(read_built(&b, &model, &err), 0);
	assert_string_equal(model.name, "tiny");
	assert_int_equal(model.n_layers, 2);
	assert_int_equal(model.hidden, 64);
	assert_int_equal(model.heads, 4);
	assert_int_equal(model.kv_heads, 2);
	assert_int_equal(model.head_dim, 32);
	assert_int_equal(model.n_experts, 8);
	assert_int_equal(model.top_k, 2);
	assert_int_equal(model.expert_width, 32);
	assert_int_equal(model.vocabulary, 96);
	assert_int_equal(model.context, 256);
	assert_true(model.rope_base == 10000);
	assert_true(model.norm_epsilon == 1e-6f);
	assert_false(model.tied);
	assert_int_equal(model.layers[1].q.rows, 128);
	assert_int_equal(model.layers[1].q.columns, 64);
	assert_int_equal(model.layers[1].out.rows, 64);
	assert_int_equal(model.layers[1].out.columns, 128);
	assert_int_equal(model.layers[1].q_norm.rows, 1);
	assert_int_equal(model.layers[1].role[ROLE_DOWN].rows, 64);
	assert_int_equal(model.layers[1].role[ROLE_DOWN].columns, 32);
	assert_int_equal(model.layers[1].role[ROLE_GATE].stride, 32 * 2 * 18);
	model_close(&model);
}

static void
without_output_the_head_is_the_embedding(void **state)
{
	struct tiny tiny = tiny_default();
	struct model model;
	struct error err;
	struct builder b;

	(void)state;
	tiny.tied = true;
	builder_open(&b);
	tiny_build(&b, &tiny);
	assert_int_equal(read_built(&b, &model, &err), 0);
	assert_true(model.tied);
	assert_int_equal(model.output.offset, model.embedding.offset);
	model_close(&model);
}

static void
head_lengths_default_to_hidden_by_heads(void **state)
{
	struct tiny tiny = tiny_default();
	struct model model;
	struct error err;
	struct builder b;

	(void)state;
	tiny.head_dim = tiny.hidden / tiny.heads;
	builder_open(&b);
	tiny_build(&b, &tiny);
	hide_key(&b, "qwen3moe.attention.key_length");
	hide_key(&b, "qwen3moe.attention.value_length");
	assert_int_equal(read_built(&b, &model, &err), 0);
	assert_int_equal(model.head_dim, 16);
	model_close(&model);
}

static void
another_architecture_is_told_what_is_supported(void **state)
{
	struct builder b;

	(void)state;
	builder_open(&b);
	builder_string(&b, "general.architecture", "llama");
	expect_refused(&b, -ENOTSUP, "general.architecture: \"llama\", supported is \"qwen3moe\"");
	builder_open(&b);
	builder_u32(&b, "general.name", 1);
	expect_refused(&b, -EINVAL, "general.architecture: not there");
}

static void
each_key_is_needed(void **state)
{
	static const char *const keys[] = {
		"qwen3moe.block_count",
		"qwen3moe.context_length",
		"qwen3moe.embedding_length",
		"qwen3moe.attention.head_count",
		"qwen3moe.expert_count",
		"qwen3moe.expert_used_count",
		"qwen3moe.expert_feed_forward_length",
		"qwen3moe.attention.layer_norm_rms_epsilon",
	};
	char part[96];
	struct builder b;

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
		open_tiny(&b);
		hide_key(&b, keys[i]);
		snprintf(part, sizeof(part), "key %s: not there", keys[i]);
		expect_refused(&b, -EINVAL, part);
	}
}

static void
numbers_out_of_range_are_refused(void **state)
{
	static const struct {
		const char *key;
		uint32_t value;
		int code;
		const char *says;
	} rows[] = {
		{ "qwen3moe.block_count", 0, -EINVAL, "block_count: 0, want 1 to 512" },
		{ "qwen3moe.block_count", 513, -EINVAL, "block_count: 513" },
		{ "qwen3moe.embedding_length", 0, -EINVAL, "embedding_length: 0" },
		{ "qwen3moe.embedding_length", 1u << 31, -EINVAL, "embedding_length: " },
		{ "qwen3moe.attention.head_count_kv", 3, -EINVAL, "want a divisor of 4 heads" },
		{ "qwen3moe.attention.head_count_kv", 0, -EINVAL, "head_count_kv: 0" },
		{ "qwen3moe.attention.key_length", 31, -EINVAL, "want an even number" },
		{ "qwen3moe.attention.value_length", 16, -ENOTSUP, "supported is the key_length" },
		{ "qwen3moe.expert_count", 1025, -EINVAL, "expert_count: 1025, want 1 to 1024" },
		{ "qwen3moe.expert_used_count", 9, -EINVAL, "want at most the 8 experts" },
		{ "qwen3moe.context_length", (1u << 20) + 1, -EINVAL, "context_length: " },
		{ "qwen3moe.rope.freq_base", 0, -EINVAL, "freq_base: 0, want a float above 0" },
		{ "qwen3moe.rope.freq_base", 0x7fc00000, -EINVAL, "freq_base: nan" },
		{ "qwen3moe.rope.freq_base", 0x7f800000, -EINVAL, "freq_base: inf" },
	};
	struct builder b;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		open_tiny(&b);
		set_u32(&b, rows[i].key, rows[i].value);
		expect_refused(&b, rows[i].code, rows[i].says);
	}
}

static void
arithmetic_that_is_not_there_is_refused(void **state)
{
	struct builder b;

	(void)state;
	open_tiny(&b);
	builder_string(&b, "qwen3moe.rope.scaling.type", "yarn");
	expect_refused(&b, -ENOTSUP, "key qwen3moe.rope.scaling.type: scaled rotary positions");
	open_tiny(&b);
	builder_f32(&b, "qwen3moe.rope.scaling.factor", 4);
	expect_refused(&b, -ENOTSUP, "key qwen3moe.rope.scaling.factor: scaled");
	open_tiny(&b);
	builder_u32(&b, "qwen3moe.rope.dimension_count", 16);
	expect_refused(&b, -ENOTSUP, "rope.dimension_count: 16, supported is 32");
	open_tiny(&b);
	builder_u32(&b, "qwen3moe.expert_shared_count", 1);
	expect_refused(&b, -ENOTSUP, "expert_shared_count: 1, supported is 0");
	open_tiny(&b);
	builder_u32(&b, "qwen3moe.expert_gating_func", 2);
	expect_refused(&b, -ENOTSUP, "expert_gating_func: 2, supported is 1");
	open_tiny(&b);
	builder_bool(&b, "qwen3moe.expert_weights_norm", false);
	expect_refused(&b, -ENOTSUP, "expert_weights_norm: false");
}

static void
rope_scaling_none_is_fine(void **state)
{
	struct model model;
	struct error err;
	struct builder b;

	(void)state;
	open_tiny(&b);
	builder_string(&b, "qwen3moe.rope.scaling.type", "none");
	assert_int_equal(read_built(&b, &model, &err), 0);
	model_close(&model);
}

/* Renames (same length) one tensor after the other: each is missed by its name. */
static void
each_tensor_is_needed(void **state)
{
	static const char *const names[] = {
		"token_embd.weight",         "output_norm.weight",
		"blk.1.attn_norm.weight",    "blk.1.attn_q.weight",
		"blk.1.attn_k.weight",       "blk.1.attn_v.weight",
		"blk.1.attn_output.weight",  "blk.1.attn_q_norm.weight",
		"blk.1.attn_k_norm.weight",  "blk.1.ffn_norm.weight",
		"blk.1.ffn_gate_inp.weight", "blk.1.ffn_gate_exps.weight",
		"blk.1.ffn_up_exps.weight",  "blk.1.ffn_down_exps.weight",
	};
	char part[96];
	struct builder b;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		open_tiny(&b);
		*find_text(&b.infos, names[i]) = '_';
		snprintf(part, sizeof(part), "%s: no such tensor", names[i]);
		expect_refused(&b, -EINVAL, part);
	}
}

static void
a_tensor_of_another_shape_is_refused(void **state)
{
	const char *name = "blk.0.ffn_up_exps.weight";
	uint64_t dims[3] = { 64, 64, 4 }; /* the same bytes */
	struct builder b;

	(void)state;
	open_tiny(&b);
	memcpy(find_text(&b.infos, name) + strlen(name) + 4, dims, sizeof(dims));
	expect_refused(
	    &b, -EINVAL,
	    "blk.0.ffn_up_exps.weight: 3 dimensions of 64 x 64 x 4 x 1, want 64 x 32 x 8");
}

static void
norms_are_f32(void **state)
{
	const char *name = "blk.0.ffn_norm.weight";
	uint32_t type = TYPE_F16;
	struct builder b;

	(void)state;
	open_tiny(&b);
	memcpy(find_text(&b.infos, name) + strlen(name) + 4 + 8, &type, sizeof(type));
	expect_refused(&b, -ENOTSUP, "blk.0.ffn_norm.weight: type F16, want F32");
}

static void
routers_are_not_quantized(void **state)
{
	const char *name = "blk.0.ffn_gate_inp.weight";
	uint32_t type = TYPE_Q8_0;
	struct builder b;

	(void)state;
	open_tiny(&b);
	memcpy(find_text(&b.infos, name) + strlen(name) + 4 + 16, &type, sizeof(type));
	expect_refused(&b, -ENOTSUP, "type Q8_0, want F32, F16 or BF16");
}

static void
a_tensor_that_nobody_would_use_is_refused(void **state)
{
	static const uint64_t dims[1] = { 64 };
	struct builder b;

	(void)state;
	open_tiny(&b);
	builder_tensor(&b, "blk.0.attn_q.bias", TYPE_F32, 1, dims, NULL, 256);
	expect_refused(&b, -ENOTSUP, "blk.0.attn_q.bias: not a tensor of");
	open_tiny(&b);
	builder_tensor(&b, "blk.0.ffn_up_shexp.weight", TYPE_F32, 1, dims, NULL, 256);
	expect_refused(&b, -ENOTSUP, "blk.0.ffn_up_shexp.weight: shared experts");
	open_tiny(&b);
	builder_tensor(&b, "blk.0.ffn_gate.weight", TYPE_F32, 1, dims, NULL, 256);
	expect_refused(&b, -ENOTSUP, "blk.0.ffn_gate.weight: a layer without experts");
}

static void
expert_tensors_are_known_by_name(void **state)
{
	enum role role = N_ROLES;

	(void)state;
	assert_int_equal(model_expert_layer("blk.0.ffn_gate_exps.weight", &role), 0);
	assert_int_equal(role, ROLE_GATE);
	assert_int_equal(model_expert_layer("blk.47.ffn_down_exps.weight", &role), 47);
	assert_int_equal(role, ROLE_DOWN);
	assert_int_equal(model_expert_layer("blk.511.ffn_up_exps.weight", NULL), 511);
	assert_int_equal(model_expert_layer("blk.512.ffn_up_exps.weight", NULL), -1);
	assert_int_equal(model_expert_layer("blk.99999999999.ffn_up_exps.weight", NULL), -1);
	assert_int_equal(model_expert_layer("blk.01.ffn_up_exps.weight", NULL), -1);
	assert_int_equal(model_expert_layer("blk..ffn_up_exps.weight", NULL), -1);
	assert_int_equal(model_expert_layer("blk.1.ffn_up.weight", NULL), -1);
	assert_int_equal(model_expert_layer("blk", NULL), -1);
	assert_int_equal(model_expert_layer("", NULL), -1);
}

static void
roles_lie_aligned_in_a_slot_that_fits_any_layer(void **state)
{
	struct model_layer layers[2] = { 0 };
	struct model model = { .n_layers = 2, .layers = layers };

	(void)state;
	layers[0].role[ROLE_GATE].bytes = 100;
	layers[0].role[ROLE_UP].bytes = 256;
	layers[0].role[ROLE_DOWN].bytes = 257;
	layers[1].role[ROLE_DOWN].bytes = 10;
	assert_int_equal(model_slot_offset(&layers[0], ROLE_GATE), 0);
	assert_int_equal(model_slot_offset(&layers[0], ROLE_UP), 256);
	assert_int_equal(model_slot_offset(&layers[0], ROLE_DOWN), 512);
	assert_int_equal(model_slot_bytes(&model), 1024);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tiny_model_gives_its_shape),
		cmocka_unit_test(without_output_the_head_is_the_embedding),
		cmocka_unit_test(head_lengths_default_to_hidden_by_heads),
		cmocka_unit_test(another_architecture_is_told_what_is_supported),
		cmocka_unit_test(each_key_is_needed),
		cmocka_unit_test(numbers_out_of_range_are_refused),
		cmocka_unit_test(arithmetic_that_is_not_there_is_refused),
		cmocka_unit_test(rope_scaling_none_is_fine),
		cmocka_unit_test(each_tensor_is_needed),
		cmocka_unit_test(a_tensor_of_another_shape_is_refused),
		cmocka_unit_test(norms_are_f32),
		cmocka_unit_test(routers_are_not_quantized),
		cmocka_unit_test(a_tensor_that_nobody_would_use_is_refused),
		cmocka_unit_test(expert_tensors_are_known_by_name),
		cmocka_unit_test(roles_lie_aligned_in_a_slot_that_fits_any_layer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
