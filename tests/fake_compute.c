#include "tests/fake_compute.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct compute *fake_compute_opened;

static uint64_t
hash_step(uint64_t hash, uint64_t key)
{
	return (hash ^ (key + 1)) * 1099511628211ull;
}

static uint32_t
hash_end(uint64_t hash, uint32_t vocabulary)
{
	return (uint32_t)((hash >> 20) % vocabulary);
}

uint32_t
fake_compute_next(const uint32_t *ids, uint32_t n, uint32_t vocabulary)
{
	uint64_t hash = 1469598103934665603ull;

	for (uint32_t i = 0; i < n; i++)
		hash = hash_step(hash, ids[i]);
	return hash_end(hash, vocabulary);
}

uint32_t
fake_compute_expert(const struct model *model, uint32_t id, uint32_t layer)
{
	assert(model->n_experts > 0);
	return (id + layer) % model->n_experts;
}

static float *
make_logits(uint32_t vocabulary)
{
	float *logits = calloc(vocabulary, sizeof(*logits));

	if (logits == NULL)
		abort();
	return logits;
}

void
fake_compute_init(struct compute *compute, uint64_t *kv, uint32_t context)
{
	memset(compute, 0, sizeof(*compute));
	compute->config.kv = kv;
	compute->config.context = context;
	compute->vocabulary = FAKE_VOCABULARY;
	compute->logits = make_logits(FAKE_VOCABULARY);
	pthread_mutex_init(&compute->lock, NULL);
	pthread_cond_init(&compute->moved, NULL);
}

void
fake_compute_done(struct compute *compute)
{
	free(compute->logits);
	pthread_cond_destroy(&compute->moved);
	pthread_mutex_destroy(&compute->lock);
}

void
fake_compute_gate(struct compute *compute, bool gated)
{
	pthread_mutex_lock(&compute->lock);
	compute->gated = gated;
	pthread_cond_broadcast(&compute->moved);
	pthread_mutex_unlock(&compute->lock);
}

void
fake_compute_wait_entered(struct compute *compute, uint32_t n)
{
	pthread_mutex_lock(&compute->lock);
	while (compute->entered < n)
		pthread_cond_wait(&compute->moved, &compute->lock);
	pthread_mutex_unlock(&compute->lock);
}

void
fake_compute_let(struct compute *compute, uint32_t n)
{
	pthread_mutex_lock(&compute->lock);
	compute->let += n;
	pthread_cond_broadcast(&compute->moved);
	pthread_mutex_unlock(&compute->lock);
}

/* Gives the code that the forward is to end with. */
static int
gate_pass(struct compute *compute)
{
	int rc;

	pthread_mutex_lock(&compute->lock);
	compute->entered++;
	pthread_cond_broadcast(&compute->moved);
	while (compute->gated && compute->let == 0)
		pthread_cond_wait(&compute->moved, &compute->lock);
	if (compute->gated)
		compute->let--;
	rc = compute->fails;
	pthread_mutex_unlock(&compute->lock);
	return rc;
}

static int
need(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t layer)
{
	const struct compute_config *config = &compute->config;
	uint32_t experts[64], n_needed = 0;

	if (config->model->n_experts > 64)
		abort();
	for (uint32_t e = 0; e < config->model->n_experts; e++)
		for (uint32_t i = 0; i < n; i++)
			if (fake_compute_expert(config->model, ids[i], layer) == e) {
				experts[n_needed++] = e;
				break;
			}
	for (uint32_t i = 0; i < n; i++)
		if (compute->used != NULL)
			compute->used[layer * config->model->n_experts +
				      fake_compute_expert(config->model, ids[i], layer)]++;
	return compute->asks ? config->need_experts(config->need_arg, layer, experts, n_needed) : 0;
}

#define RUBBISH UINT64_MAX

static void
go_ahead(struct compute *compute, uint32_t pos, struct compute_result *ret)
{
	uint64_t *kv = compute->config.kv;

	compute->ahead++;
	if (pos == compute->config.context || compute->asks)
		return;
	kv[pos] = RUBBISH;
	compute->next_pos = pos;
	compute->next_id = ret->greatest;
	ret->ahead = true;
}

static void
answer(struct compute *compute, uint64_t hash, const struct compute_want *want,
       struct compute_result *ret)
{
	uint32_t next = hash_end(hash, compute->vocabulary);

	for (uint32_t i = 0; i < compute->vocabulary; i++)
		compute->logits[i] = compute->no_numbers ? NAN : (float)i / 1000.0f;
	if (!compute->no_numbers)
		compute->logits[next] = 20;
	ret->greatest = compute->no_numbers ? 0 : next;
	ret->logit = compute->logits[ret->greatest];
	ret->ahead = false;
	ret->logits = want->logits ? compute->logits : NULL;
}

static int
fake_forward(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
	     const struct compute_want *want, struct compute_result *ret, struct error *err)
{
	const struct compute_config *config = &compute->config;
	uint64_t *kv = config->kv, hash = 1469598103934665603ull;
	int rc = gate_pass(compute);

	if (rc < 0)
		return error_set(err, rc, "the fake device fails");
	if (n == 0 || n > COMPUTE_BATCH || pos + n > config->context)
		abort();
	for (uint32_t i = 0; i < n; i++)
		kv[pos + i] = ids[i];
	for (uint32_t layer = 0; config->model != NULL && layer < config->model->n_layers;
	     layer++) {
		rc = need(compute, ids, n, layer);
		if (rc < 0)
			return rc;
	}
	for (uint32_t i = 0; i < pos + n; i++)
		hash = hash_step(hash, kv[i]);
	pthread_mutex_lock(&compute->lock);
	compute->begun += n == 1 && compute->next_pos == pos && pos > 0 && compute->next_id == *ids;
	compute->next_pos = 0;
	if (want != NULL)
		answer(compute, hash, want, ret);
	compute->logits_given += want != NULL && want->logits;
	if (want != NULL && want->ahead)
		go_ahead(compute, pos + n, ret);
	compute->forwards++;
	compute->tokens += n;
	pthread_cond_broadcast(&compute->moved);
	pthread_mutex_unlock(&compute->lock);
	return 0;
}

static uint64_t
fake_kv_bytes(const struct model *model, uint32_t context)
{
	(void)model;
	return (uint64_t)context * sizeof(uint64_t);
}

static uint64_t
fake_own_bytes(const struct model *model, uint32_t context)
{
	(void)model;
	(void)context;
	return 0;
}

static int
fake_open(struct compute **ret, const struct compute_config *config, struct error *err)
{
	struct compute *compute = malloc(sizeof(*compute));

	if (compute == NULL)
		return error_set(err, -ENOMEM, "no memory");
	fake_compute_init(compute, config->kv, config->context);
	compute->config = *config;
	compute->vocabulary = config->model->vocabulary;
	free(compute->logits);
	compute->logits = make_logits(compute->vocabulary);
	compute->asks = config->need_experts != NULL;
	compute->used = calloc((size_t)config->model->n_layers * config->model->n_experts,
			       sizeof(*compute->used));
	fake_compute_opened = *ret = compute;
	return 0;
}

static void
fake_close(struct compute *compute)
{
	fake_compute_done(compute);
	free(compute->used);
	free(compute);
}

static const char *
fake_kernels(const struct compute *compute)
{
	(void)compute;
	return "fake";
}

static int
fake_places_changed(struct compute *compute, struct error *err)
{
	(void)err;
	compute->places_changed++;
	return 0;
}

static void
fake_ask(struct compute *compute, bool ask)
{
	compute->asks = ask && compute->config.need_experts != NULL;
}

static int
fake_usage(struct compute *compute, uint64_t *counts)
{
	const struct model *model = compute->config.model;

	for (size_t i = 0; model != NULL && i < (size_t)model->n_layers * model->n_experts; i++) {
		counts[i] += compute->used[i];
		compute->used[i] = 0;
	}
	return 0;
}

static void
fake_drop(struct compute *compute)
{
	pthread_mutex_lock(&compute->lock);
	compute->dropped += compute->next_pos != 0;
	compute->next_pos = 0;
	pthread_cond_broadcast(&compute->moved);
	pthread_mutex_unlock(&compute->lock);
}

const struct compute_ops fake_compute_ops = {
	.kv_bytes = fake_kv_bytes,
	.own_bytes = fake_own_bytes,
	.open = fake_open,
	.close = fake_close,
	.kernels = fake_kernels,
	.places_changed = fake_places_changed,
	.forward = fake_forward,
	.ask = fake_ask,
	.usage = fake_usage,
	.drop = fake_drop,
};
