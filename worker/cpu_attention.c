/* Grouped-query attention over a float32 cache: (layer, k or v, kv head, position, head_dim), so
 * that what one head reads is contiguous. */
#include <math.h>
#include <string.h>

#include "common/checked.h"
#include "common/types.h"
#include "worker/cpu_compute.h"

uint64_t
cpu_kv_bytes(const struct model *model, uint32_t context)
{
	uint64_t bytes = 2 * sizeof(float) * (uint64_t)context;

	if (!checked_mul(bytes, model->n_layers, &bytes) ||
	    !checked_mul(bytes, model->kv_heads, &bytes) ||
	    !checked_mul(bytes, model->head_dim, &bytes))
		return UINT64_MAX; /* more than anybody lends */
	return bytes;
}

/* Position 0 of a head's keys (which = 0) or values (1). */
static float *
cache_at(const struct compute *compute, uint32_t which, uint32_t kv_head)
{
	const struct model *model = compute->config.model;
	uint64_t row = ((uint64_t)compute->layer * 2 + which) * model->kv_heads + kv_head;

	return (float *)compute->config.kv + row * compute->config.context * model->head_dim;
}

void
cpu_rotation_prepare(struct compute *compute)
{
	uint32_t half = compute->config.model->head_dim / 2;

	for (uint32_t token = 0; token < compute->n; token++)
		for (uint32_t i = 0; i < half; i++) {
			/* float32, as in training: at a late position its rounding shows */
			float angle = (float)(compute->pos + token) * compute->frequencies[i];

			compute->cosines[token * half + i] = (float)cos(angle);
			compute->sines[token * half + i] = (float)sin(angle);
		}
}

/* NEOX pairs: i and i + head_dim / 2. */
static void
rotate(const struct compute *compute, uint32_t token, float *head)
{
	uint32_t half = compute->config.model->head_dim / 2;
	const float *cosines = compute->cosines + (size_t)token * half;
	const float *sines = compute->sines + (size_t)token * half;

	for (uint32_t i = 0; i < half; i++) {
		float a = head[i], b = head[i + half];

		head[i] = a * cosines[i] - b * sines[i];
		head[i + half] = b * cosines[i] + a * sines[i];
	}
}

/* Normalizes and rotates a token's queries in place, its keys too, and puts keys and values into
 * the cache. */
static void
place_part(void *arg, uint32_t token, uint32_t thread)
{
	struct compute *compute = arg;
	const struct model *model = compute->config.model;
	const struct model_layer *layer = &model->layers[compute->layer];
	uint64_t at = (uint64_t)(compute->pos + token) * model->head_dim;
	size_t bytes = model->head_dim * sizeof(float);

	(void)thread;
	for (uint32_t h = 0; h < model->heads; h++) {
		float *q = compute->q + token * compute->q_stride + (size_t)h * model->head_dim;

		cpu_norm(compute, &layer->q_norm, q, q);
		rotate(compute, token, q);
	}
	for (uint32_t h = 0; h < model->kv_heads; h++) {
		uint64_t from = token * compute->kv_stride + (uint64_t)h * model->head_dim;
		float *k = compute->k + from;

		cpu_norm(compute, &layer->k_norm, k, k);
		rotate(compute, token, k);
		memcpy(cache_at(compute, 0, h) + at, k, bytes);
		memcpy(cache_at(compute, 1, h) + at, compute->v + from, bytes);
	}
}

/* Scores become weights relative to the greatest; returns their sum. */
static float
soften(float *scores, uint32_t n, float scale)
{
	float greatest = scores[0];
	double sum = 0;

	for (uint32_t i = 1; i < n; i++)
		if (scores[i] > greatest)
			greatest = scores[i];
	for (uint32_t i = 0; i < n; i++) {
		scores[i] = expf((scores[i] - greatest) * scale);
		sum += scores[i];
	}
	return (float)sum;
}

/* One head of one token over all positions up to its own. */
static void
attend(struct compute *compute, uint32_t token, uint32_t head, uint32_t thread)
{
	const struct model *model = compute->config.model;
	uint32_t kv_head = head / (model->heads / model->kv_heads), dim = model->head_dim;
	uint32_t n = compute->pos + token + 1;
	float *scores = compute->scores + thread * compute->scores_stride;
	uint64_t at = token * compute->q_stride + (uint64_t)head * dim;
	const float *q = compute->q + at;
	float *mixed = compute->mixed.x + at;
	struct cpu_dot dot = { .rows = (const void *)cache_at(compute, 0, kv_head),
			       .row_bytes = dim * sizeof(float),
			       .n_rows = n,
			       .n = dim,
			       .n_columns = 1,
			       .x = &q,
			       .y = &scores };
	float sum;

	cpu_dot_rows(&compute->crew, TYPE_F32, &dot, thread);
	sum = soften(scores, n, 1 / sqrtf((float)dim));
	compute->crew.kernels->mix(cache_at(compute, 1, kv_head), scores, n, dim, mixed);
	for (uint32_t i = 0; i < dim; i++)
		mixed[i] /= sum;
}

static void
fix_part(void *arg, uint32_t token, uint32_t thread)
{
	struct compute *compute = arg;

	(void)thread;
	cpu_fix(&compute->crew, &compute->mixed, token, 0, compute->mixed.width);
}

struct attending {
	struct compute *compute;
	uint32_t n; /* heads of all tokens */
	uint32_t a_part;
};

static void
attend_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct attending *job = arg;
	uint32_t heads = job->compute->config.model->heads;
	uint32_t first = part * job->a_part;

	for (uint32_t i = first; i < first + job->a_part && i < job->n; i++)
		attend(job->compute, i / heads, i % heads, thread);
}

static void
attend_all(struct compute *compute)
{
	const struct model *model = compute->config.model;
	struct attending job = { .compute = compute, .n = compute->n * model->heads };
	uint64_t positions = (uint64_t)compute->pos + compute->n;

	job.a_part = cpu_items_a_part(&compute->crew, job.n,
				      2 * sizeof(float) * positions * model->head_dim);
	cpu_pool_run(compute->crew.pool, attend_part, &job, (job.n - 1) / job.a_part + 1);
	cpu_pool_run(compute->crew.pool, fix_part, compute, compute->n);
}

static void
add_part(void *arg, uint32_t token, uint32_t thread)
{
	struct compute *compute = arg;
	float *x = compute->x + token * compute->hidden_stride;
	const float *added = compute->added + token * compute->hidden_stride;

	(void)thread;
	for (uint32_t i = 0; i < compute->config.model->hidden; i++)
		x[i] += added[i];
}

void
cpu_attention(struct compute *compute)
{
	const struct model *model = compute->config.model;
	const struct model_layer *layer = &model->layers[compute->layer];
	uint32_t n = compute->n;
	const struct cpu_vectors *in = &compute->normed;
	struct cpu_product qkv[] = {
		{ &layer->q, n, in, compute->q, compute->q_stride },
		{ &layer->k, n, in, compute->k, compute->kv_stride },
		{ &layer->v, n, in, compute->v, compute->kv_stride },
	};
	struct cpu_product out = { &layer->out, n, &compute->mixed, compute->added,
				   compute->hidden_stride };

	cpu_multiply(compute, qkv, 3);
	cpu_pool_run(compute->crew.pool, place_part, compute, n);
	attend_all(compute);
	cpu_multiply(compute, &out, 1);
	cpu_pool_run(compute->crew.pool, add_part, compute, n);
}
