/* worker/staging.h on a GPU: experts that reach the device through the ring compute the same bits
 * as those it reads in place.  Exit 77 without a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gpu.h"
#include "worker/staging.h"

#define MODEL "tests/data/kjv-16x1m.gguf"
#define CONTEXT 128u
#define PROMPT 64u
#define TOKENS 12u

static struct device *device;

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

	if (compute_cuda.forward(m->compute, ids, n, pos, logits, &err) < 0)
		fail_msg("%s", err.text);
}

static void
what_is_staged_computes_the_same_bits(void **state)
{
	struct gpu_model in_place, staged;
	struct ring ring = { .model = &staged };
	struct error err = { "" };
	uint32_t ids[PROMPT + TOKENS];
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
	for (uint32_t i = 0; i < PROMPT + TOKENS; i++)
		ids[i] = (i * 7919 + 11) % staged.model.vocabulary;
	forward(&in_place, ids, PROMPT, 0, a);
	forward(&staged, ids, PROMPT, 0, b);
	assert_memory_equal(a, b, bytes);
	for (uint32_t i = PROMPT; i < PROMPT + TOKENS; i++) {
		forward(&in_place, ids + i, 1, i, a);
		forward(&staged, ids + i, 1, i, b);
		assert_memory_equal(a, b, bytes);
	}
	assert_true(ring.staged >= (1 + TOKENS) * staged.model.n_layers * staged.model.top_k);
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
