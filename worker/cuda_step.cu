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

static struct cuda_vectors
take_vectors(uint8_t *base, uint64_t *used, uint64_t rows, uint32_t columns)
{
	struct cuda_vectors ret;

	ret.rows = take_rows(base, used, rows, columns);
	ret.fixed.stride = CUDA_FIXED_BYTES(columns);
	ret.fixed.at = take(base, used, rows * ret.fixed.stride);
	return ret;
}

static uint32_t
tokens_at_once(const struct model *model)
{
	uint64_t one = cuda_partial_floats(model->heads, model->kv_heads, model->head_dim, 1);
	uint64_t fit = PARTIAL_MAX_BYTES / (one * sizeof(float));

	return fit == 0 ? 1 : fit > COMPUTE_BATCH ? COMPUTE_BATCH : (uint32_t)fit;
}

uint64_t
cuda_scratch_plan(const struct model *model, uint8_t *base, struct cuda_scratch *ret)
{
	const uint32_t q_columns = model->heads * model->head_dim;
	const uint64_t batch = COMPUTE_BATCH, chosen = batch * model->top_k;
	uint64_t used = 0;

	ret->input = (struct cuda_input *)take(base, &used, sizeof *ret->input);
	ret->places = (struct expert_place *)take(
	    base, &used, (uint64_t)model->n_layers * model->n_experts * sizeof *ret->places);
	ret->frequency = (float *)take(base, &used, model->head_dim / 2 * sizeof(float));
	ret->h = take_rows(base, &used, batch, model->hidden);
	ret->x = take_vectors(base, &used, batch, model->hidden);
	ret->qkv =
	    take_rows(base, &used, batch, q_columns + 2ull * model->kv_heads * model->head_dim);
	ret->attended = take_vectors(base, &used, batch, q_columns);
	ret->router = take_rows(base, &used, batch, model->n_experts);
	ret->act = take_vectors(base, &used, chosen, model->expert_width);
	ret->logits = take_rows(base, &used, 1, model->vocabulary);
	ret->parts = (unsigned long long *)take(
	    base, &used, CUDA_GREATEST_PARTS((uint64_t)model->vocabulary) * sizeof *ret->parts);
	ret->chosen = (uint32_t *)take(base, &used, chosen * sizeof *ret->chosen);
	ret->used = (unsigned long long *)take(
	    base, &used, (uint64_t)model->n_layers * model->n_experts * sizeof *ret->used);
	ret->weights = (float *)take(base, &used, chosen * sizeof *ret->weights);
	ret->groups = (struct cuda_group *)take(
	    base, &used, CUDA_GROUPS(model->n_experts, chosen) * sizeof *ret->groups);
	ret->members = (uint32_t *)take(base, &used, chosen * sizeof *ret->members);
	ret->products = take_rows(base, &used, chosen, model->hidden);
	ret->at_once = tokens_at_once(model);
	ret->route_arrived = (uint32_t *)take(base, &used, batch * sizeof *ret->route_arrived);
	ret->share_arrived = (uint32_t *)take(base, &used, sizeof *ret->share_arrived);
	ret->parts_arrived = (uint32_t *)take(base, &used, sizeof *ret->parts_arrived);
	ret->given = (uint32_t *)take(base, &used, model->top_k * sizeof *ret->given);
	ret->met = (unsigned long long *)take(base, &used, sizeof *ret->met);
	ret->attend_arrived = (uint32_t *)take(
	    base, &used,
	    cuda_arrived_counts(model->heads, model->kv_heads, model->head_dim, ret->at_once) *
		sizeof *ret->attend_arrived);
	ret->partial = (float *)take(
	    base, &used,
	    cuda_partial_floats(model->heads, model->kv_heads, model->head_dim, ret->at_once) *
		sizeof(float));
	return used;
}

/* Of one layer's keys, or values. */
static uint64_t
half_layer_tiles(const struct model *model, uint32_t context)
{
	return (uint64_t)model->kv_heads * CUDA_KV_TILES((uint64_t)context) *
	       CUDA_KV_GROUPS(model->head_dim);
}

uint64_t
cuda_kv_bytes(const struct model *model, uint32_t context)
{
	return model->n_layers * 2 * half_layer_tiles(model, context) * sizeof(struct cuda_kv_tile);
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

static struct cuda_norm
norm_of(const struct cuda_step *step, const struct matrix *weight)
{
	return cuda_norm{ (const float *)trunk_at(step->config, weight),
			  step->config->model->norm_epsilon };
}

static struct cuda_attention
attention_of(const struct cuda_step *step, uint32_t layer)
{
	const struct compute_config *config = step->config;
	const struct model *model = config->model;
	const struct cuda_scratch *scratch = step->scratch;
	uint64_t half = half_layer_tiles(model, config->context);
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
	a.keys = (struct cuda_kv_tile *)config->kv + 2 * half * layer;
	a.values = a.keys + half;
	a.out = scratch->attended;
	a.partial = scratch->partial;
	a.arrived = scratch->attend_arrived;
	a.at_once = scratch->at_once;
	return a;
}

/* To qkv.  A batch is normed once, not by every block that has rows. */
static int
multiply_normed(const struct cuda_step *step, const struct cuda_matrices *qkv,
		const struct cuda_norm *norm, struct error *err)
{
	const struct cuda_scratch *scratch = step->scratch;
	int r;

	if (step->tokens == 1)
		return cuda_multiply_normed(step->stream, qkv, scratch->h, norm, scratch->qkv, 1,
					    err);
	r = cuda_normed(step->stream, scratch->h, norm, qkv->columns, scratch->x, step->tokens,
			err);
	return r ? r
		 : cuda_multiply(step->stream, qkv, scratch->x, scratch->qkv, false, step->tokens,
				 err);
}

static int
attention(const struct cuda_step *step, uint32_t index, struct error *err)
{
	const struct model_layer *layer = &step->config->model->layers[index];
	const struct cuda_scratch *scratch = step->scratch;
	const struct cuda_attention a = attention_of(step, index);
	const struct cuda_norm norm = norm_of(step, &layer->attn_norm);
	struct cuda_matrices qkv = {}, out = {};
	int r;

	qkv.of[0] = trunk_matrix(step->config, &layer->q);
	qkv.of[1] = trunk_matrix(step->config, &layer->k);
	qkv.of[2] = trunk_matrix(step->config, &layer->v);
	qkv.n = 3;
	qkv.columns = layer->q.columns;
	out.of[0] = trunk_matrix(step->config, &layer->out);
	out.n = 1;
	out.columns = layer->out.columns;
	r = multiply_normed(step, &qkv, &norm, err);
	if (!r)
		r = cuda_attend(step->stream, &a, scratch->input, step->tokens, err);
	if (!r)
		r = cuda_multiply(step->stream, &out, scratch->attended, scratch->h, true,
				  step->tokens, err);
	return r;
}

static struct cuda_share
share_of(const struct cuda_step *step, uint32_t layer)
{
	const struct compute_config *config = step->config;
	const struct cuda_scratch *scratch = step->scratch;
	struct cuda_share share = {};

	if (!step->sharing || !cpu_share_layer_possible(config->model, layer))
		return share;
	share.in = scratch->input;
	share.order = step->sharing->order;
	share.answer = step->sharing->answer;
	share.seen = step->sharing->seen + layer;
	share.memory = config->arena;
	share.memory_bytes = config->arena_bytes;
	share.given = scratch->given;
	share.arrived = scratch->share_arrived;
	share.met = scratch->met;
	share.layer = layer;
	share.layers = config->model->n_layers;
	return share;
}

static struct cuda_moe
moe_of(const struct cuda_step *step, uint32_t layer)
{
	const struct model *model = step->config->model;
	const struct cuda_scratch *scratch = step->scratch;
	struct cuda_moe moe = {};

	moe.share = share_of(step, layer);
	moe.places = scratch->places + (uint64_t)layer * model->n_experts;
	moe.behind_copy = step->asking != NULL;
	for (uint32_t role = 0; role < N_ROLES; role++) {
		const struct experts *experts = &model->layers[layer].role[role];

		moe.type[role] = experts->type;
		moe.row_bytes[role] = experts->bytes / experts->rows;
	}
	moe.hidden = model->hidden;
	moe.width = model->expert_width;
	moe.experts = model->n_experts;
	moe.top_k = model->top_k;
	moe.router = trunk_matrix(step->config, &model->layers[layer].router);
	moe.norm = norm_of(step, &model->layers[layer].ffn_norm);
	moe.x = scratch->x;
	moe.logits = scratch->router;
	moe.arrived = scratch->route_arrived;
	moe.chosen = scratch->chosen;
	moe.used = scratch->used + (uint64_t)layer * model->n_experts;
	moe.weights = scratch->weights;
	moe.act = scratch->act;
	moe.groups = scratch->groups;
	moe.members = scratch->members;
	moe.products = scratch->products;
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
	const struct cuda_moe moe = moe_of(step, index);
	int r = cuda_route(step->stream, &moe, step->tokens, err);

	if (!r && step->asking)
		r = ask_experts(step, index, err);
	if (!r)
		r = cuda_experts_in(step->stream, &moe, step->tokens, err);
	if (!r)
		r = cuda_experts_out(step->stream, &moe, step->tokens, err);
	return r;
}

/* Of the last token.  Its norm is a kernel of its own, for the head has many blocks. */
static int
head(const struct cuda_step *step, struct error *err)
{
	const struct model *model = step->config->model;
	const struct cuda_scratch *scratch = step->scratch;
	const struct cuda_norm norm = norm_of(step, &model->output_norm);
	struct cuda_rows last = scratch->h;
	const struct cuda_pick pick = { scratch->logits, model->vocabulary,
					scratch->parts,  scratch->parts_arrived,
					step->greatest,  scratch->input,
					step->tokens };
	struct cuda_matrices output = {};
	int r;

	last.at += (uint64_t)(step->tokens - 1) * last.stride;
	output.of[0] = trunk_matrix(step->config, &model->output);
	output.n = 1;
	output.columns = model->hidden;
	r = cuda_normed(step->stream, last, &norm, model->hidden, scratch->x, 1, err);
	if (!r)
		r = cuda_multiply(step->stream, &output, scratch->x, scratch->logits, false, 1,
				  err);
	return r ? r : cuda_pick_greatest(step->stream, &pick, err);
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
	if (!r && step->greatest)
		r = head(step, err);
	return r;
}
