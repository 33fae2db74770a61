/* worker/staging.h on a GPU: experts that reach the device through the ring compute the same bits
 * as those it reads in place.  Exit 77 without a GPU. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/forward_copy.h"
#include "tests/gpu.h"
#include "worker/staging.h"

#define MODEL "tests/data/kjv-16x1m.gguf"
#define CONTEXT 128u
#define PROMPT 64u
#define TOKENS 12u

static struct device *device;

static void
prompt(const struct gpu_model *m, uint32_t ids[PROMPT + TOKENS])
{
	for (uint32_t i = 0; i < PROMPT + TOKENS; i++)
		ids[i] = (i * 7919 + 11) % m->model.vocabulary;
}

struct ring {
	struct gpu_model *model;
	struct staging *staging;
	struct expert_place *home; /* (layers, experts) */
	uint64_t staged;
};

static int
stage_needed(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	struct ring *ring = arg;
	const struct model *model = &ring->model->model;
	struct error err;
	int rc = 0;

	staging_begin(ring->staging);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		uint32_t which = layer * model->n_experts + experts[i];

		rc = staging_add(ring->staging, &model->layers[layer], &ring->home[which],
				 &ring->model->places[which], &err);
	}
	ring->staged += n;
	return rc == 0 ? staging_end(ring->staging, &err) : rc;
}

static void
forward(struct gpu_model *m, const uint32_t *ids, uint32_t n, uint32_t pos, float *logits)
{
	struct error err = { "" };

	if (forward_copy(&compute_cuda, m->compute, &m->model, ids, n, pos, logits, &err) < 0)
		fail_msg("%s", err.text);
}

/* Until an expert is needed its place leads nowhere. */
struct needs {
	struct gpu_model *model;
	struct expert_place *hidden;
	uint32_t calls, fail_at; /* the call that fails, from 1; 0: none */
	uint32_t experts;        /* in all calls */
	bool in_order;
};

static int
give_needed(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	struct needs *needs = arg;
	const struct model *model = &needs->model->model;

	if (layer != needs->calls % model->n_layers || n == 0)
		needs->in_order = false;
	needs->calls++;
	if (needs->calls == needs->fail_at)
		return -ECANCELED;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t which = layer * model->n_experts + experts[i];

		if (i > 0 && experts[i] <= experts[i - 1])
			needs->in_order = false;
		needs->model->places[which] = needs->hidden[which];
	}
	needs->experts += n;
	return 0;
}

static void
hide_places(struct needs *needs, struct gpu_model *model)
{
	size_t n = (size_t)model->model.n_layers * model->model.n_experts;
	struct error err = { "" };

	*needs = (struct needs){ .model = model, .in_order = true };
	needs->hidden = malloc(n * sizeof(*needs->hidden));
	memcpy(needs->hidden, model->places, n * sizeof(*needs->hidden));
	memset(model->places, 0, n * sizeof(*needs->hidden));
	assert_int_equal(compute_cuda.places_changed(model->compute, &err), 0);
}

/* Without asking, the second of them is a graph. */
static void
needed_experts_are_asked_for_and_a_failure_ends_the_forward(void **state)
{
	struct needs needs;
	struct gpu_model m, all_there;
	struct error err = { "" };
	uint32_t ids[PROMPT + TOKENS];
	float *a, *b;

	(void)state;
	gpu_model_open(&m, device, MODEL, CONTEXT, false, give_needed, &needs);
	hide_places(&needs, &m);
	needs.fail_at = 2;
	gpu_model_open(&all_there, device, MODEL, CONTEXT, false, NULL, NULL);
	a = malloc(m.model.vocabulary * sizeof(*a));
	b = malloc(m.model.vocabulary * sizeof(*b));
	prompt(&m, ids);
	assert_int_equal(forward_copy(&compute_cuda, m.compute, &m.model, ids, 3, 0, a, &err),
			 -ECANCELED);
	assert_int_equal(needs.calls, 2);
	assert_true(needs.in_order);
	needs.calls = needs.fail_at = 0;
	for (uint32_t i = 0; i < 3; i++) {
		forward(&m, ids + i, 1, i, a);
		forward(&all_there, ids + i, 1, i, b);
		assert_memory_equal(a, b, m.model.vocabulary * sizeof(*a));
	}
	assert_int_equal(needs.calls, 3 * m.model.n_layers);
	assert_true(needs.in_order);
	/* All is there: nothing is asked. */
	memcpy(m.places, needs.hidden,
	       (size_t)m.model.n_layers * m.model.n_experts * sizeof(*m.places));
	assert_int_equal(compute_cuda.places_changed(m.compute, &err), 0);
	compute_cuda.ask(m.compute, false);
	for (uint32_t i = 3; i < 6; i++) {
		forward(&m, ids + i, 1, i, a);
		forward(&all_there, ids + i, 1, i, b);
		assert_memory_equal(a, b, m.model.vocabulary * sizeof(*a));
	}
	assert_int_equal(needs.calls, 3 * m.model.n_layers);
	free(needs.hidden);
	free(a);
	free(b);
	gpu_model_close(&all_there);
	gpu_model_close(&m);
}

static void
usage_counts_what_was_asked_for(void **state)
{
	struct needs needs;
	struct gpu_model m;
	uint32_t ids[PROMPT + TOKENS];
	uint64_t *counts, sum = 0;
	size_t n;

	(void)state;
	gpu_model_open(&m, device, MODEL, CONTEXT, false, give_needed, &needs);
	hide_places(&needs, &m);
	n = (size_t)m.model.n_layers * m.model.n_experts;
	counts = calloc(n, sizeof(*counts));
	prompt(&m, ids);
	for (uint32_t i = 0; i < 4; i++)
		forward(&m, ids + i, 1, i, NULL);
	assert_int_equal(compute_cuda.usage(m.compute, counts), 0);
	for (size_t i = 0; i < n; i++) {
		sum += counts[i];
		assert_int_equal(counts[i] != 0, m.places[i].role[0] != NULL);
	}
	assert_int_equal(sum, 4 * m.model.n_layers * m.model.top_k);
	assert_int_equal(sum, needs.experts);
	assert_int_equal(compute_cuda.usage(m.compute, counts), 0);
	for (size_t i = 0; i < n; i++)
		sum -= counts[i];
	assert_int_equal(sum, 0); /* each is told once */
	free(counts);
	free(needs.hidden);
	gpu_model_close(&m);
}

static void
what_is_staged_computes_the_same_bits(void **state)
{
	struct gpu_model in_place, staged;
	struct ring ring = { .model = &staged };
	struct error err = { "" };
	uint32_t ids[PROMPT + TOKENS];
	uint32_t first = gpu_many(device, PROMPT, 11), n = first + gpu_many(device, TOKENS, 3);
	size_t places, bytes;
	float *a, *b;

	(void)state;
	gpu_model_open(&in_place, device, MODEL, CONTEXT, false, NULL, NULL);
	gpu_model_open(&staged, device, MODEL, CONTEXT, false, stage_needed, &ring);
	places = (size_t)staged.model.n_layers * staged.model.n_experts * sizeof(*ring.home);
	ring.home = malloc(places);
	memcpy(ring.home, staged.places, places);
	memset(staged.places, 0, places);
	assert_int_equal(staging_open(&ring.staging, device, &staged.model, 4, &err), 0);
	bytes = staged.model.vocabulary * sizeof(float);
	a = malloc(bytes);
	b = malloc(bytes);
	prompt(&staged, ids);
	forward(&in_place, ids, first, 0, a);
	forward(&staged, ids, first, 0, b);
	assert_memory_equal(a, b, bytes);
	for (uint32_t i = first; i < n; i++) {
		forward(&in_place, ids + i, 1, i, a);
		forward(&staged, ids + i, 1, i, b);
		assert_memory_equal(a, b, bytes);
	}
	assert_true(ring.staged >= (1ull + n - first) * staged.model.n_layers * staged.model.top_k);
	staging_close(ring.staging);
	free(ring.home);
	free(a);
	free(b);
	gpu_model_close(&staged);
	gpu_model_close(&in_place);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(needed_experts_are_asked_for_and_a_failure_ends_the_forward),
		cmocka_unit_test(usage_counts_what_was_asked_for),
		cmocka_unit_test(what_is_staged_computes_the_same_bits),
	};
	int failed;

	device = gpu_open();
	if (device == NULL)
		return 77;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
