extern "C" {
#include "common/checked.h"
#include "common/types.h"
}
#include "worker/cuda_launch.cuh"
#include "worker/cuda_step.h"

#define SCRATCH_ALIGN 256u
#define PARTIAL_MAX_BYTES (64ull << 20) /* for a batch; one token always has room */

static uint8_t *
take(uint8_t *base, uint64_t *used, uint64_t bytes)
{
	uint8_t *at = base + *used;

	*used += round_up(bytes, SCRATCH_ALIGN);
	return at;
}

static struct cuda_rows
take_rows(uint8_t *base, uint64_t *used, uint64_t rows, uint64_t columns)
{
	struct cuda_rows ret;

	ret.stride = (uint32_t)round_up(columns, CUDA_ROW_ALIGN);
	ret.at = (float *)take(base, used, rows * ret.stride * sizeof(float));
	return ret;
}

static uint32_t
tokens_at_once(const struct model *model, uint32_t context)
{
	uint64_t one = cuda_partial_floats(model->heads, model->head_dim, context, 1);
	uint64_t fit = PARTIAL_MAX_BYTES / (one * sizeof(float));

	return fit == 0 ? 1 : fit > COMPUTE_BATCH ? COMPUTE_BATCH : (uint32_t)fit;
}

uint64_t
cuda_scratch_plan(const struct model *model, uint32_t context, uint8_t *base,
		  struct cuda_scratch *ret)
{
	const uint64_t batch = COMPUTE_BATCH, q_columns = (uint64_t)model->heads * model->head_dim;
	const uint64_t chosen = batch * model->top_k;
	uint64_t used = 0;

	ret->input = (struct cuda_input *)take(base, &used, sizeof *ret->input);
	ret->places = (struct expert_place *)take(
	    base, &used, (uint64_t)model->n_layers * model->n_experts * sizeof *ret->places);
	ret->frequency = (float *)take(base, &used, model->head_dim / 2 * sizeof(float));
	ret->h = take_rows(base, &used, batch, model->hidden);
	ret->x = take_rows(base, &used, batch, model->hidden);
	ret->qkv =
	    take_rows(base, &used, batch, q_columns + 2ull * model->kv_heads * model->head_dim);
	ret->q = take_rows(base, &used, batch, q_columns);
	ret->attended = take_rows(base, &used, batch, q_columns);
	ret->router = take_rows(base, &used, batch, model->n_experts);
	ret->act = take_rows(base, &used, chosen, model->expert_width);
	ret->logits = take_rows(base, &used, 1, model->vocabulary);
	ret->chosen = (uint32_t *)take(base, &used, chosen * sizeof *ret->chosen);
	ret->used = (unsigned long long *)take(
	    base, &used, (uint64_t)model->n_layers * model->n_experts * sizeof *ret->used);
	ret->weights = (float *)take(base, &used, chosen * sizeof *ret->weights);
	ret->at_once = tokens_at_once(model, context);
	ret->partial = (float *)take(
	    base, &used,
	    cuda_partial_floats(model->heads, model->head_dim, context, ret->at_once) *
		sizeof(float));
	return used;
}

/* Of one layer's keys, or values. */
static uint64_t
half_layer_kv(const struct model *model, uint32_t context)
{
	return (uint64_t)model->kv_heads * context * CUDA_KV_ROW(model->head_dim);
}

uint64_t
cuda_kv_bytes(const struct model *model, uint32_t context)
{
	return model->n_layers * 2 * half_layer_kv(model, context) * sizeof(float);
}

static const void *
trunk_at(const struct compute_config *config, const struct matrix *matrix)
{
	return config->trunk + (matrix->offset - config->trunk_offset);
}

static struct cuda_matrix
trunk_matrix(const struct compute_config *config, const struct matrix *matrix)
{
	return cuda_matrix{ trunk_at(config, matrix), matrix->bytes / matrix->rows, matrix->type,
			    matrix->rows };
}

static int
multiply(const struct cuda_step *step, const struct matrix *matrix, struct cuda_rows from,
	 struct cuda_rows to, bool add, struct error *err)
{
	struct cuda_matrices one = {};

	one.of[0] = trunk_matrix(step->config, matrix);
	one.n = 1;
	one.columns = matrix->columns;
	return cuda_multiply(step->stream, &one, from, to, add, step->tokens, err);
}

static int
norm(const struct cuda_step *step, const struct matrix *weight, struct error *err)
{
	const struct model *model = step->config->model;

	return cuda_norm(step->stream, step->scratch->h,
			 (const float *)trunk_at(step->config, weight), model->norm_epsilon,
			 model->hidden, step->scratch->x, step->tokens, err);
}

static struct cuda_attention
attention_of(const struct cuda_step *step, uint32_t layer)
{
	const struct compute_config *config = step->config;
	const struct model *model = config->model;
	const struct cuda_scratch *scratch = step->scratch;
	uint64_t half = half_layer_kv(model, config->context);
	struct cuda_attention a = {};

	a.heads = model->heads;
	a.kv_heads = model->kv_heads;
	a.head_dim = model->head_dim;
	a.context = config->context;
	a.epsilon = model->norm_epsilon;
	a.q_norm = (const float *)trunk_at(config, &model->layers[layer].q_norm);
	a.k_norm = (const float *)trunk_at(config, &model->layers[layer].k_norm);
	a.frequency = scratch->frequency;
	a.qkv = scratch->qkv;
	a.keys = (float *)config->kv + 2 * half * layer;
	a.values = a.keys + half;
	a.q = scratch->q;
	a.out = scratch->attended;
	a.partial = scratch->partial;
	a.at_once = scratch->at_once;
	return a;
}

static int
attention(const struct cuda_step *step, uint32_t index, struct error *err)
{
	const struct model_layer *layer = &step->config->model->layers[index];
	const struct cuda_scratch *scratch = step->scratch;
	struct cuda_attention a = attention_of(step, index);
	struct cuda_matrices qkv = {};
	int r;

	qkv.of[0] = trunk_matrix(step->config, &layer->q);
	qkv.of[1] = trunk_matrix(step->config, &layer->k);
	qkv.of[2] = trunk_matrix(step->config, &layer->v);
	qkv.n = 3;
	qkv.columns = layer->q.columns;
	r = norm(step, &layer->attn_norm, err);
	if (!r)
		r = cuda_multiply(step->stream, &qkv, scratch->x, scratch->qkv, false, step->tokens,
				  err);
	if (!r)
		r = cuda_heads(step->stream, &a, scratch->input, step->tokens, err);
	if (!r)
		r = cuda_attend(step->stream, &a, scratch->input, step->tokens, err);
	if (!r)
		r = multiply(step, &layer->out, scratch->attended, scratch->h, true, err);
	return r;
}

static struct cuda_moe
moe_of(const struct cuda_step *step, uint32_t layer)
{
	const struct model *model = step->config->model;
	const struct cuda_scratch *scratch = step->scratch;
	struct cuda_moe moe = {};

	moe.places = scratch->places + (uint64_t)layer * model->n_experts;
	for (uint32_t role = 0; role < N_ROLES; role++) {
		const struct experts *experts = &model->layers[layer].role[role];

		moe.type[role] = experts->type;
		moe.row_bytes[role] = experts->bytes / experts->rows;
	}
	moe.hidden = model->hidden;
	moe.width = model->expert_width;
	moe.experts = model->n_experts;
	moe.top_k = model->top_k;
	moe.x = scratch->x;
	moe.logits = scratch->router;
	moe.chosen = scratch->chosen;
	moe.used = scratch->used + (uint64_t)layer * model->n_experts;
	moe.weights = scratch->weights;
	moe.act = scratch->act;
	moe.h = scratch->h;
	return moe;
}

/* Learns what the router chose and asks for these; places of the layer may be others afterwards. */
static int
ask_experts(const struct cuda_step *step, uint32_t index, struct error *err)
{
	const struct compute_config *config = step->config;
	const struct cuda_asking *asking = step->asking;
	const uint32_t n_experts = config->model->n_experts;
	const uint32_t n_chosen = step->tokens * config->model->top_k;
	const uint64_t row = (uint64_t)index * n_experts;
	cudaStream_t stream = (cudaStream_t)step->stream;
	uint32_t n = 0;
	int r = cuda_check(cudaMemcpyAsync(asking->chosen, step->scratch->chosen,
					   n_chosen * sizeof *asking->chosen,
					   cudaMemcpyDeviceToHost, stream),
			   "copying the router's choice", err);

	if (!r)
		r = cuda_finish(stream, err);
	if (r)
		return r;
	for (uint32_t i = 0; i < n_chosen; i++)
		asking->is_needed[asking->chosen[i]] = true;
	for (uint32_t e = 0; e < n_experts; e++) {
		if (asking->is_needed[e])
			asking->needed[n++] = e;
		asking->is_needed[e] = false;
	}
	r = config->need_experts(config->need_arg, index, asking->needed, n);
	if (r)
		return error_set(err, r, "waiting for the experts of layer %u ended", index);
	return cuda_check(cudaMemcpyAsync(step->scratch->places + row, config->places + row,
					  n_experts * sizeof *config->places,
					  cudaMemcpyHostToDevice, stream),
			  "copying the layer's expert table", err);
}

static int
experts(const struct cuda_step *step, uint32_t index, struct error *err)
{
	const struct model_layer *layer = &step->config->model->layers[index];
	struct cuda_moe moe = moe_of(step, index);
	int r = norm(step, &layer->ffn_norm, err);

	if (!r)
		r = multiply(step, &layer->router, step->scratch->x, step->scratch->router, false,
			     err);
	if (!r)
		r = cuda_choose(step->stream, &moe, step->tokens, err);
	if (!r && step->asking)
		r = ask_experts(step, index, err);
	if (!r)
		r = cuda_experts_in(step->stream, &moe, step->tokens, err);
	if (!r)
		r = cuda_experts_out(step->stream, &moe, step->tokens, err);
	return r;
}

static int
head(const struct cuda_step *step, struct error *err)
{
	const struct model *model = step->config->model;
	const struct cuda_scratch *scratch = step->scratch;
	struct cuda_scratch last = *scratch;
	struct cuda_step one = *step;
	int r;

	last.h.at += (uint64_t)(step->tokens - 1) * last.h.stride;
	one.scratch = &last;
	one.tokens = 1;
	r = norm(&one, &model->output_norm, err);
	return r ? r : multiply(&one, &model->output, last.x, last.logits, false, err);
}

int
cuda_step_launch(const struct cuda_step *step, struct error *err)
{
	const struct model *model = step->config->model;
	struct cuda_matrix embedding = trunk_matrix(step->config, &model->embedding);
	int r = cuda_embed(step->stream, &embedding, model->hidden, step->scratch->input,
			   step->scratch->h, step->tokens, err);

	for (uint32_t i = 0; i < model->n_layers && !r; i++) {
		r = attention(step, i, err);
		if (!r)
			r = experts(step, i, err);
	}
	if (!r && step->logits)
		r = head(step, err);
	return r;
}
