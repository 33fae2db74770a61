#include "common/model.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/model_keys.h"
#include "common/types.h"

static const char *const role_names[N_ROLES] = { "gate", "up", "down" };

/* The tensors by name, and which of them the model has taken. */
struct finder {
	const struct arena_tensor *tensors;
	uint64_t n;
	uint32_t *sorted; /* indices in the order of names */
	bool *taken;
	const char *file;
	struct error *err;
};

static int
compare_tensors(const void *a, const void *b, void *arg)
{
	const struct arena_tensor *tensors = arg;

	return strcmp(tensors[*(const uint32_t *)a].name, tensors[*(const uint32_t *)b].name);
}

static void
finder_close(struct finder *finder)
{
	free(finder->sorted);
	free(finder->taken);
}

static int
finder_open(struct finder *finder)
{
	if (finder->n > UINT32_MAX) {
		error_set(finder->err, -EINVAL, "%" PRIu64 " tensors, want below 2^32 (%s)",
			  finder->n, finder->file);
		return -EINVAL;
	}
	finder->sorted = calloc(finder->n + 1, sizeof(*finder->sorted));
	finder->taken = calloc(finder->n + 1, sizeof(*finder->taken));
	if (!finder->sorted || !finder->taken) {
		error_sys(finder->err, -ENOMEM, "%" PRIu64 " tensors (%s)", finder->n,
			  finder->file);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < finder->n; i++)
		finder->sorted[i] = i;
	qsort_r(finder->sorted, finder->n, sizeof(*finder->sorted), compare_tensors,
		(void *)finder->tensors);
	for (uint64_t i = 1; i < finder->n; i++) {
		const char *name = finder->tensors[finder->sorted[i]].name;

		if (strcmp(finder->tensors[finder->sorted[i - 1]].name, name) == 0)
			return error_set(finder->err, -EINVAL,
					 "%s: in two shards, want it in one (%s)", name,
					 finder->file);
	}
	return 0;
}

/* Index, or -1. */
static int64_t
finder_find(const struct finder *finder, const char *name)
{
	uint64_t low = 0, high = finder->n;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		uint32_t index = finder->sorted[middle];
		int order = strcmp(name, finder->tensors[index].name);

		if (order == 0)
			return index;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return -1;
}

static int
wrong_shape(const struct finder *finder, const struct arena_tensor *tensor, const uint64_t want[3])
{
	char text[64] = "";

	for (int i = 0; i < 3 && (i == 0 || want[i] > 1); i++) {
		size_t n = strlen(text);

		snprintf(text + n, sizeof(text) - n, "%s%" PRIu64, i ? " x " : "", want[i]);
	}
	return error_set(finder->err, -EINVAL,
			 "%s: %" PRIu32 " dimensions of %" PRIu64 " x %" PRIu64 " x %" PRIu64
			 " x %" PRIu64 ", want %s (%s)",
			 tensor->name, tensor->n_dims, tensor->dims[0], tensor->dims[1],
			 tensor->dims[2], tensor->dims[3], text, finder->file);
}

/* Finds a tensor and checks shape and size; dims is (columns, rows, experts or 1). */
static int
take(struct finder *finder, const char *name, const uint64_t dims[3], uint32_t *ret_index,
     uint64_t *ret_row_bytes)
{
	int64_t index = finder_find(finder, name);
	const struct arena_tensor *tensor;
	const struct type_info *type;
	uint64_t row, bytes;

	if (index < 0)
		return error_set(finder->err, -EINVAL, "%s: no such tensor, want one (%s)", name,
				 finder->file);
	tensor = &finder->tensors[index];
	if (tensor->dims[3] != 1)
		return wrong_shape(finder, tensor, dims);
	for (int i = 0; i < 3; i++)
		if (tensor->dims[i] != dims[i])
			return wrong_shape(finder, tensor, dims);
	type = type_find(tensor->type);
	if (!type)
		return error_set(finder->err, -ENOTSUP,
				 "%s: type %" PRIu32 ", supported are %s (%s)", name, tensor->type,
				 type_supported_names(), finder->file);
	if (!type_row_bytes(type, dims[0], &row) || !checked_mul(row, dims[1], &bytes) ||
	    !checked_mul(bytes, dims[2], &bytes) || bytes != tensor->bytes)
		return error_set(finder->err, -EINVAL,
				 "%s: %" PRIu64 " bytes, want whole blocks of %s, %" PRIu64
				 " elements a row (%s)",
				 name, tensor->bytes, type->name, dims[0], finder->file);
	finder->taken[index] = true;
	*ret_index = (uint32_t)index;
	*ret_row_bytes = row;
	return 0;
}

static int
take_matrix(struct finder *finder, const char *name, uint64_t rows, uint64_t columns,
	    struct matrix *ret)
{
	uint64_t dims[3] = { columns, rows, 1 };
	uint64_t row = 0;
	uint32_t index = 0;
	int rc = take(finder, name, dims, &index, &row);

	if (rc < 0)
		return rc;
	*ret = (struct matrix){
		.offset = finder->tensors[index].offset,
		.bytes = row * rows,
		.type = finder->tensors[index].type,
		.rows = (uint32_t)rows,
		.columns = (uint32_t)columns,
		.tensor = index,
	};
	return 0;
}

static int
take_norm(struct finder *finder, const char *name, uint64_t columns, struct matrix *ret)
{
	struct matrix norm;
	int rc = take_matrix(finder, name, 1, columns, &norm);

	if (rc < 0)
		return rc;
	if (norm.type != TYPE_F32)
		return error_set(finder->err, -ENOTSUP, "%s: type %s, want F32 (%s)", name,
				 type_find(norm.type)->name, finder->file);
	*ret = norm;
	return 0;
}

static int
take_router(struct finder *finder, const char *name, const struct model *model, struct matrix *ret)
{
	struct matrix router;
	int rc = take_matrix(finder, name, model->n_experts, model->hidden, &router);

	if (rc < 0)
		return rc;
	if (router.type != TYPE_F32 && router.type != TYPE_F16 && router.type != TYPE_BF16)
		return error_set(finder->err, -ENOTSUP, "%s: type %s, want F32, F16 or BF16 (%s)",
				 name, type_find(router.type)->name, finder->file);
	*ret = router;
	return 0;
}

static int
take_experts(struct finder *finder, const char *name, const struct model *model, enum role role,
	     struct experts *ret)
{
	uint64_t rows = role == ROLE_DOWN ? model->hidden : model->expert_width;
	uint64_t columns = role == ROLE_DOWN ? model->expert_width : model->hidden;
	uint64_t dims[3] = { columns, rows, model->n_experts };
	uint64_t row = 0;
	uint32_t index = 0;
	int rc = take(finder, name, dims, &index, &row);

	if (rc < 0)
		return rc;
	*ret = (struct experts){
		.offset = finder->tensors[index].offset,
		.stride =
		    finder->tensors[index].stride ? finder->tensors[index].stride : row * rows,
		.bytes = row * rows,
		.type = finder->tensors[index].type,
		.rows = (uint32_t)rows,
		.columns = (uint32_t)columns,
		.tensor = index,
	};
	return 0;
}

/* "blk.<layer>.<part>.weight" in a buffer of GGUF_MAX_NAME bytes. */
static const char *
layer_name(char *text, uint32_t layer, const char *part)
{
	snprintf(text, GGUF_MAX_NAME, "blk.%" PRIu32 ".%s.weight", layer, part);
	return text;
}

static int
read_attention(struct finder *finder, const struct model *model, uint32_t i,
	       struct model_layer *layer)
{
	uint64_t q_rows = (uint64_t)model->heads * model->head_dim;
	uint64_t kv_rows = (uint64_t)model->kv_heads * model->head_dim;
	uint64_t hidden = model->hidden;
	char name[GGUF_MAX_NAME];
	int rc;

	rc = take_norm(finder, layer_name(name, i, "attn_norm"), hidden, &layer->attn_norm);
	if (rc == 0)
		rc = take_matrix(finder, layer_name(name, i, "attn_q"), q_rows, hidden, &layer->q);
	if (rc == 0)
		rc = take_matrix(finder, layer_name(name, i, "attn_k"), kv_rows, hidden, &layer->k);
	if (rc == 0)
		rc = take_matrix(finder, layer_name(name, i, "attn_v"), kv_rows, hidden, &layer->v);
	if (rc == 0)
		rc = take_norm(finder, layer_name(name, i, "attn_q_norm"), model->head_dim,
			       &layer->q_norm);
	if (rc == 0)
		rc = take_norm(finder, layer_name(name, i, "attn_k_norm"), model->head_dim,
			       &layer->k_norm);
	if (rc == 0)
		rc = take_matrix(finder, layer_name(name, i, "attn_output"), hidden, q_rows,
				 &layer->out);
	return rc;
}

static int
read_layer(struct finder *finder, const struct model *model, uint32_t i, struct model_layer *layer)
{
	char name[GGUF_MAX_NAME], part[16];
	int rc = read_attention(finder, model, i, layer);

	if (rc == 0)
		rc = take_norm(finder, layer_name(name, i, "ffn_norm"), model->hidden,
			       &layer->ffn_norm);
	if (rc < 0)
		return rc;
	layer_name(name, i, "ffn_gate");
	if (finder_find(finder, name) >= 0)
		return error_set(finder->err, -ENOTSUP,
				 "%s: a layer without experts, want ffn_gate_exps in each (%s)",
				 name, finder->file);
	rc = take_router(finder, layer_name(name, i, "ffn_gate_inp"), model, &layer->router);
	for (enum role role = 0; role < N_ROLES && rc == 0; role++) {
		snprintf(part, sizeof(part), "ffn_%s_exps", role_names[role]);
		rc = take_experts(finder, layer_name(name, i, part), model, role,
				  &layer->role[role]);
	}
	return rc;
}

/* The embedding tells the vocabulary. */
static int
read_ends(struct finder *finder, struct model *model)
{
	int64_t index = finder_find(finder, "token_embd.weight");
	uint64_t rows = index < 0 ? 0 : finder->tensors[index].dims[1];
	int rc;

	if (index >= 0 && (rows == 0 || rows > MAX_VOCABULARY))
		return error_set(finder->err, -EINVAL,
				 "token_embd.weight: %" PRIu64 " rows, want 1 to %u (%s)", rows,
				 MAX_VOCABULARY, finder->file);
	rc = take_matrix(finder, "token_embd.weight", rows, model->hidden, &model->embedding);
	if (rc == 0)
		rc = take_norm(finder, "output_norm.weight", model->hidden, &model->output_norm);
	if (rc < 0)
		return rc;
	model->vocabulary = (uint32_t)rows;
	model->tied = finder_find(finder, "output.weight") < 0;
	model->output = model->embedding;
	if (model->tied)
		return 0;
	return take_matrix(finder, "output.weight", rows, model->hidden, &model->output);
}

/* A tensor that the arithmetic does not use would change the answer if it were left out. */
static int
check_all_taken(const struct finder *finder)
{
	for (uint64_t i = 0; i < finder->n; i++) {
		const char *name = finder->tensors[i].name;

		if (finder->taken[i])
			continue;
		if (strstr(name, "_shexp"))
			return error_set(finder->err, -ENOTSUP,
					 "%s: shared experts, want a model without (%s)", name,
					 finder->file);
		return error_set(finder->err, -ENOTSUP,
				 "%s: not a tensor of a qwen3moe model of this many layers (%s)",
				 name, finder->file);
	}
	return 0;
}

int
model_read(struct model *ret, const struct gguf *gguf, const struct arena_tensor *tensors,
	   uint64_t n_tensors, const char *file, struct error *err)
{
	struct finder finder = { .tensors = tensors, .n = n_tensors, .file = file, .err = err };
	struct model model = { 0 };
	int rc = model_read_keys(&model, gguf, file, err);

	if (rc < 0)
		return rc;
	rc = finder_open(&finder);
	if (rc == 0) {
		model.layers = calloc(model.n_layers, sizeof(*model.layers));
		if (!model.layers) {
			error_sys(err, -ENOMEM, "%" PRIu32 " layers (%s)", model.n_layers, file);
			rc = -ENOMEM;
		}
	}
	if (rc == 0)
		rc = read_ends(&finder, &model);
	for (uint32_t i = 0; i < model.n_layers && rc == 0; i++)
		rc = read_layer(&finder, &model, i, &model.layers[i]);
	if (rc == 0)
		rc = check_all_taken(&finder);
	finder_close(&finder);
	if (rc < 0) {
		model_close(&model);
		return rc;
	}
	*ret = model;
	return 0;
}

void
model_close(struct model *model)
{
	free(model->layers);
	*model = (struct model){ 0 };
}
