/* The life of the CPU's arithmetic and its walk through the layers. */
#include "worker/cpu_compute.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/types.h"
#include "worker/sample.h"

#define LINE 64u /* bytes of a cache line */

static uint64_t
longest_row(const struct model *model)
{
	uint64_t q_width = (uint64_t)model->heads * model->head_dim;
	uint64_t longest = model->hidden > q_width ? model->hidden : q_width;

	return longest > model->expert_width ? longest : model->expert_width;
}

/* Sets all pointers into `base`; returns how many bytes they need.  With counts below 2^32 each,
 * and batches and threads below 2^11, no product here passes 2^60. */
static uint64_t
lay_out(struct compute *c, const struct model *model, uint32_t context, uint32_t threads,
	uint8_t *base)
{
	uint64_t n = COMPUTE_BATCH, slots = n * model->top_k, used = 0;

	c->hidden_stride = cpu_stride(model->hidden);
	c->q_stride = cpu_stride((uint64_t)model->heads * model->head_dim);
	c->kv_stride = cpu_stride((uint64_t)model->kv_heads * model->head_dim);
	c->crew.scratch_stride = cpu_stride(CPU_SCRATCH_ROWS * longest_row(model));
	c->scores_stride = cpu_stride(context);
	c->x = cpu_carve_floats(base, &used, n, c->hidden_stride);
	c->normed = cpu_carve_vectors(base, &used, n, model->hidden);
	c->added = cpu_carve_floats(base, &used, n, c->hidden_stride);
	c->q = cpu_carve_floats(base, &used, n, c->q_stride);
	c->mixed = cpu_carve_vectors(base, &used, n, model->heads * model->head_dim);
	c->k = cpu_carve_floats(base, &used, n, c->kv_stride);
	c->v = cpu_carve_floats(base, &used, n, c->kv_stride);
	c->cosines = cpu_carve_floats(base, &used, n, model->head_dim / 2);
	c->sines = cpu_carve_floats(base, &used, n, model->head_dim / 2);
	c->frequencies = cpu_carve_floats(base, &used, 1, model->head_dim / 2);
	c->routed = cpu_carve_floats(base, &used, n, model->n_experts);
	c->shares = cpu_carve_floats(base, &used, 1, slots);
	c->chosen = cpu_carve(base, &used, slots, sizeof(*c->chosen));
	c->order = cpu_carve(base, &used, slots, sizeof(*c->order));
	c->groups = cpu_carve(base, &used, model->n_experts, sizeof(*c->groups));
	c->needed = cpu_carve(base, &used, model->n_experts, sizeof(*c->needed));
	c->used =
	    cpu_carve(base, &used, (uint64_t)model->n_layers * model->n_experts, sizeof(*c->used));
	c->logits = cpu_carve_floats(base, &used, 1, model->vocabulary);
	c->inner = cpu_inner_carve(model, slots, base, &used);
	c->crew.scratch = cpu_carve_floats(base, &used, threads, c->crew.scratch_stride);
	c->scores = cpu_carve_floats(base, &used, threads, c->scores_stride);
	return used;
}

static uint64_t
own_bytes(const struct model *model, uint32_t context)
{
	struct compute unused;

	return lay_out(&unused, model, context, 1, NULL);
}

const uint8_t *
cpu_trunk_at(const struct compute *compute, const struct matrix *matrix)
{
	return compute->config.trunk + (matrix->offset - compute->config.trunk_offset);
}

static void
compute_close(struct compute *compute)
{
	if (!compute)
		return;
	cpu_pool_close(compute->crew.pool);
	free(compute->block);
	free(compute);
}

/* base^(-2 i / head_dim), in float32 as the model was trained with. */
static void
set_frequencies(struct compute *compute, const struct model *model)
{
	for (uint32_t i = 0; i < model->head_dim / 2; i++)
		compute->frequencies[i] = (float)pow(model->rope_base, -2.0 * i / model->head_dim);
}

int
cpu_compute_open(struct compute **ret, const struct compute_config *config,
		 const struct cpu_kernels *kernels, struct error *err)
{
	struct compute *compute = calloc(1, sizeof(*compute));
	uint64_t bytes;
	int rc;

	if (!compute)
		return error_sys(err, -ENOMEM, "opening the CPU's arithmetic");
	compute->config = *config;
	compute->crew.kernels = kernels;
	compute->crew.threads = config->threads;
	rc = cpu_pool_open(&compute->crew.pool, config->threads, err);
	if (rc < 0)
		goto fail;
	bytes = lay_out(compute, config->model, config->context, config->threads, NULL);
	compute->block = aligned_alloc(LINE, bytes);
	if (!compute->block) {
		rc = error_sys(err, -ENOMEM, "%llu bytes to compute in", (unsigned long long)bytes);
		goto fail;
	}
	lay_out(compute, config->model, config->context, config->threads, compute->block);
	memset(compute->block, 0, bytes); /* `used`, and what is behind the ends of fixed vectors */
	compute->asks = config->need_experts != NULL;
	set_frequencies(compute, config->model);
	*ret = compute;
	return 0;
fail:
	compute_close(compute);
	return rc;
}

static int
compute_open(struct compute **ret, const struct compute_config *config, struct error *err)
{
	return cpu_compute_open(ret, config, cpu_kernels_best(), err);
}

static const char *
compute_kernels(const struct compute *compute)
{
	return compute->crew.kernels->name;
}

/* The places are read anew in each call. */
static int
places_changed(struct compute *compute, struct error *err)
{
	(void)compute;
	(void)err;
	return 0;
}

static int
check_call(const struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
	   struct error *err)
{
	uint32_t vocabulary = compute->config.model->vocabulary;

	if (n < 1 || n > COMPUTE_BATCH)
		return error_set(err, -EINVAL, "%u tokens in a batch, want 1 to %u", n,
				 COMPUTE_BATCH);
	if (pos > compute->config.context || n > compute->config.context - pos)
		return error_set(err, -EINVAL, "%u tokens at position %u, the context ends at %u",
				 n, pos, compute->config.context);
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] >= vocabulary)
			return error_set(err, -EINVAL, "token id %u, want below %u", ids[i],
					 vocabulary);
	return 0;
}

static void
embed(struct compute *compute, const uint32_t *ids)
{
	const struct matrix *matrix = &compute->config.model->embedding;
	const struct type_info *type = type_find(matrix->type);
	uint64_t row_bytes = matrix->bytes / matrix->rows;

	for (uint32_t i = 0; i < compute->n; i++)
		type->unpack(cpu_trunk_at(compute, matrix) + ids[i] * row_bytes,
			     compute->x + i * compute->hidden_stride,
			     matrix->columns / type->block_elements);
}

void
cpu_experts(struct compute *compute)
{
	const struct model *model = compute->config.model;
	struct cpu_experts_job job = { .crew = &compute->crew,
				       .inner = &compute->inner,
				       .model = model,
				       .layer = compute->layer,
				       .n_tokens = compute->n,
				       .top_k = model->top_k,
				       .n_groups = compute->n_groups,
				       .groups = compute->groups,
				       .order = compute->order,
				       .shares = compute->shares,
				       .x = &compute->normed,
				       .out = compute->x,
				       .out_stride = compute->hidden_stride };

	cpu_experts_run(&job);
}

static int
compute_layer(struct compute *compute, struct error *err)
{
	const struct compute_config *config = &compute->config;
	const struct model_layer *layer = &config->model->layers[compute->layer];
	int rc;

	cpu_norm_all(compute, &layer->attn_norm);
	cpu_attention(compute);
	cpu_norm_all(compute, &layer->ffn_norm);
	cpu_route(compute);
	if (compute->asks) {
		rc = config->need_experts(config->need_arg, compute->layer, compute->needed,
					  compute->n_groups);
		if (rc < 0)
			return error_set(err, rc, "waiting for the experts of layer %u ended",
					 compute->layer);
	}
	cpu_experts(compute);
	return 0;
}

/* The last token's logits. */
static void
head(struct compute *compute)
{
	const struct model *model = compute->config.model;
	float *last = compute->x + (uint64_t)(compute->n - 1) * compute->hidden_stride;
	struct cpu_product product = { .matrix = model->tied ? &model->embedding : &model->output,
				       .n_columns = 1,
				       .x = &compute->normed,
				       .y = compute->logits };

	cpu_norm(compute, &model->output_norm, last, compute->normed.x);
	cpu_fix(&compute->crew, &compute->normed, 0, 0, model->hidden);
	cpu_multiply(compute, &product, 1);
}

static void
answer(struct compute *compute, const struct compute_want *want, struct compute_result *ret)
{
	head(compute);
	ret->greatest = sample_greatest(compute->logits, compute->config.model->vocabulary);
	ret->logit = compute->logits[ret->greatest];
	ret->ahead = false;
	ret->logits = want->logits ? compute->logits : NULL;
}

static int
forward(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
	const struct compute_want *want, struct compute_result *ret, struct error *err)
{
	int rc = check_call(compute, ids, n, pos, err);

	if (rc < 0)
		return rc;
	compute->n = n;
	compute->pos = pos;
	embed(compute, ids);
	cpu_rotation_prepare(compute);
	for (compute->layer = 0; compute->layer < compute->config.model->n_layers;
	     compute->layer++) {
		rc = compute_layer(compute, err);
		if (rc < 0)
			return rc;
	}
	if (want)
		answer(compute, want, ret);
	return 0;
}

static void
compute_ask(struct compute *compute, bool ask)
{
	compute->asks = ask && compute->config.need_experts != NULL;
}

static int
compute_usage(struct compute *compute, uint64_t *counts)
{
	const struct model *model = compute->config.model;
	size_t n = (size_t)model->n_layers * model->n_experts;

	for (size_t i = 0; i < n; i++)
		counts[i] += compute->used[i];
	memset(compute->used, 0, n * sizeof(*compute->used));
	return 0;
}

const struct compute_ops compute_cpu = {
	.kv_bytes = cpu_kv_bytes,
	.own_bytes = own_bytes,
	.open = compute_open,
	.close = compute_close,
	.kernels = compute_kernels,
	.places_changed = places_changed,
	.forward = forward,
	.ask = compute_ask,
	.usage = compute_usage,
};
