/* Tokens that the GPU begins before they are asked for: results, dropped guesses, and when it does
 * not.  What is right is what another cache gives for the same tokens in one call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/forward_copy.h"
#include "tests/gpu.h"
#include "worker/cpu_lanes.h"
#include "worker/sample.h"

#define CONTEXT 64u
#define PROMPT 3u
#define KJV "tests/data/kjv-16x1m.gguf"
#define ODD "tests/data/odd-shapes.gguf"

static struct device *device;
static float cpu_share; /* of the experts in the arena */

struct stage {
	struct gpu_model m, plain;
	float *logits; /* of plain */
	uint32_t ids[CONTEXT], n;
};

static void
stage_open(struct stage *stage, const char *path, bool slots)
{
	gpu_model_open_sharing(&stage->m, device, path, CONTEXT, slots, cpu_share, 2);
	gpu_model_open(&stage->plain, device, path, CONTEXT, false, NULL, NULL);
	stage->logits = malloc(stage->m.model.vocabulary * sizeof(*stage->logits));
	assert_non_null(stage->logits);
	stage->n = 0;
	for (uint32_t i = 0; i < CONTEXT; i++)
		stage->ids[i] = (i * 31 + 5) % stage->m.model.vocabulary;
}

static void
stage_close(struct stage *stage)
{
	free(stage->logits);
	gpu_model_close(&stage->plain);
	gpu_model_close(&stage->m);
}

static void
expect(struct stage *stage, const struct compute_result *got)
{
	uint32_t vocabulary = stage->m.model.vocabulary, id;
	struct error err = { "" };

	if (forward_copy(&compute_cuda, stage->plain.compute, &stage->plain.model, stage->ids,
			 stage->n, 0, stage->logits, &err) < 0)
		fail_msg("%s", err.text);
	id = sample_greatest(stage->logits, vocabulary);
	assert_int_equal(got->greatest, id);
	assert_memory_equal(&got->logit, &stage->logits[id], sizeof(float));
	if (got->logits)
		assert_memory_equal(got->logits, stage->logits, vocabulary * sizeof(float));
}

#define AHEAD 1u
#define LOGITS 2u

/* The next n of the stage's tokens.  Returns whether what follows is begun. */
static bool
forward(struct stage *stage, uint32_t n, uint32_t wants)
{
	const struct compute_want want = { .ahead = wants & AHEAD, .logits = wants & LOGITS };
	struct compute_result result;
	struct error err = { "" };

	if (compute_cuda.forward(stage->m.compute, stage->ids + stage->n, n, stage->n, &want,
				 &result, &err) < 0)
		fail_msg("%s", err.text);
	stage->n += n;
	assert_int_equal(result.logits != NULL, (wants & LOGITS) != 0);
	expect(stage, &result);
	if (stage->n < CONTEXT)
		stage->ids[stage->n] = result.greatest;
	return result.ahead;
}

/* A prompt and the token behind it; the next one is begun. */
static void
begin(struct stage *stage)
{
	forward(stage, PROMPT, AHEAD);
	assert_true(forward(stage, 1, AHEAD));
}

static void
tokens_are_those_without(void **state)
{
	static const uint32_t wants[] = { AHEAD, AHEAD | LOGITS, AHEAD, 0, AHEAD, LOGITS };

	(void)state;
	for (int f = 0; f < 2; f++) {
		uint32_t tokens = gpu_many(device, CONTEXT - PROMPT, f == 0 ? 3 : 12);
		struct stage stage;

		stage_open(&stage, f == 0 ? KJV : ODD, true);
		forward(&stage, PROMPT, AHEAD);
		for (uint32_t i = 0; i < tokens; i++) {
			uint32_t want = wants[i % 6];
			bool more = stage.n + 1 < CONTEXT;

			assert_int_equal(forward(&stage, 1, want), (want & AHEAD) && more);
		}
		stage_close(&stage);
	}
}

static void
nothing_is_begun_before_the_first_answer_nor_unasked(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, false);
	assert_false(forward(&stage, PROMPT, AHEAD));
	assert_false(forward(&stage, 1, 0));
	assert_false(forward(&stage, 1, LOGITS));
	assert_true(forward(&stage, 1, AHEAD));
	stage_close(&stage);
}

static void
behind_a_prompt_the_first_token_is_begun(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, false);
	forward(&stage, PROMPT, 0);
	stage.n = 0;
	assert_true(forward(&stage, PROMPT + 1, AHEAD));
	assert_true(forward(&stage, 1, AHEAD | LOGITS));
	forward(&stage, 1, 0);
	stage_close(&stage);
}

static void
the_last_position_is_the_end(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, false);
	forward(&stage, PROMPT, 0);
	forward(&stage, CONTEXT - 2 - PROMPT, 0);
	assert_true(forward(&stage, 1, AHEAD));
	assert_false(forward(&stage, 1, AHEAD));
	assert_int_equal(stage.n, CONTEXT);
	stage_close(&stage);
}

static void
another_token_drops_it(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, true);
	begin(&stage);
	for (uint32_t i = 0; i < 4; i++) {
		stage.ids[stage.n] = (stage.ids[stage.n] + 1) % stage.m.model.vocabulary;
		assert_true(forward(&stage, 1, i % 2 ? AHEAD : AHEAD | LOGITS));
	}
	stage_close(&stage);
}

static void
another_position_drops_it(void **state)
{
	struct stage stage;
	uint32_t next;

	(void)state;
	stage_open(&stage, ODD, true);
	begin(&stage);
	next = stage.ids[stage.n];
	stage.ids[--stage.n] = next; /* the same token, one earlier */
	assert_true(forward(&stage, 1, AHEAD));
	stage.n = 0;
	stage.ids[0] = next;
	assert_true(forward(&stage, 1, AHEAD));
	forward(&stage, 1, LOGITS);
	stage_close(&stage);
}

/* Its keys and values lie behind those of the next prompt, or under them. */
static void
another_request_drops_it(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, true);
	for (uint32_t n = 1; n <= 6; n++) {
		stage.n = 0;
		forward(&stage, PROMPT, 0);
		assert_true(forward(&stage, 1, AHEAD));
		stage.n = n % 3; /* is kept */
		for (uint32_t i = stage.n; i < CONTEXT; i++)
			stage.ids[i] = (i * 17 + n) % stage.m.model.vocabulary;
		forward(&stage, n, AHEAD | LOGITS);
		forward(&stage, 1, AHEAD);
		forward(&stage, 1, LOGITS);
	}
	stage_close(&stage);
}

static void
a_forward_without_result_drops_it(void **state)
{
	struct stage stage;
	struct error err = { "" };

	(void)state;
	stage_open(&stage, ODD, true);
	begin(&stage);
	if (compute_cuda.forward(stage.m.compute, stage.ids + stage.n, 1, stage.n, NULL, NULL,
				 &err) < 0)
		fail_msg("%s", err.text);
	stage.n++;
	forward(&stage, 2, LOGITS);
	stage_close(&stage);
}

/* All experts where they would be if `file` were the model's. */
static void
point_to(struct gpu_model *m, const uint8_t *file)
{
	struct error err = { "" };

	for (uint64_t i = 0; i < (uint64_t)m->model.n_layers * m->model.n_experts; i++) {
		const struct model_layer *layer = &m->model.layers[i / m->model.n_experts];

		for (enum role role = 0; role < N_ROLES; role++)
			m->places[i].role[role] = file + layer->role[role].offset +
						  i % m->model.n_experts * layer->role[role].stride;
	}
	if (compute_cuda.places_changed(m->compute, &err) < 0)
		fail_msg("%s", err.text);
}

/* To the arena, all of them; what was in the slots is gone at once. */
static void
empty_slots(struct gpu_model *m)
{
	struct error err = { "" };
	uint8_t *nothing = gpu_shared(device, m->slots.bytes);

	point_to(m, m->file);
	memset(nothing, 0xff, m->slots.bytes);
	assert_int_equal(device_copy_in(device, m->slots.at, nothing, m->slots.bytes, &err), 0);
	assert_int_equal(device_wait(device, &err), 0);
	gpu_shared_free(device, nothing, m->slots.bytes);
}

static void
places_may_change_while_it_is_computed(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, true);
	begin(&stage);
	empty_slots(&stage.m);
	assert_true(forward(&stage, 1, AHEAD | LOGITS));
	assert_true(forward(&stage, 1, AHEAD));
	forward(&stage, 1, LOGITS);
	stage_close(&stage);
}

/* It reads where experts were when it was begun, on either device. */
static void
what_places_become_is_not_for_it(void **state)
{
	struct stage stage;
	uint8_t *nothing;

	(void)state;
	stage_open(&stage, ODD, false);
	nothing = gpu_shared(device, stage.m.file_bytes);
	memset(nothing, 0xff, stage.m.file_bytes);
	begin(&stage);
	for (uint32_t i = 0; i < 3; i++) {
		point_to(&stage.m, nothing);
		point_to(&stage.m, stage.m.file);
		assert_true(forward(&stage, 1, AHEAD | LOGITS));
	}
	stage_close(&stage);
	gpu_shared_free(device, nothing, stage.m.file_bytes);
}

static uint64_t
count_use(struct gpu_model *m)
{
	uint64_t n = (uint64_t)m->model.n_layers * m->model.n_experts, sum = 0;
	uint64_t *counts = calloc(n, sizeof(*counts));

	assert_non_null(counts);
	assert_int_equal(compute_cuda.usage(m->compute, counts), 0);
	for (uint64_t i = 0; i < n; i++)
		sum += counts[i];
	free(counts);
	return sum / m->model.n_layers / m->model.top_k;
}

static void
use_is_counted_once(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, true);
	begin(&stage);
	assert_int_equal(count_use(&stage.m), PROMPT + 1 + 1);
	assert_true(forward(&stage, 1, AHEAD | LOGITS));
	assert_int_equal(count_use(&stage.m), 1);
	forward(&stage, 1, LOGITS);
	assert_int_equal(count_use(&stage.m), 0);
	stage_close(&stage);
}

static int
all_are_there(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	(void)layer;
	(void)experts;
	(void)n;
	++*(uint32_t *)arg;
	return 0;
}

static void
none_while_experts_are_asked_for(void **state)
{
	struct stage stage;
	uint32_t asked = 0;

	(void)state;
	stage_open(&stage, ODD, false);
	gpu_model_close(&stage.m);
	gpu_model_open(&stage.m, device, ODD, CONTEXT, false, all_are_there, &asked);
	for (uint32_t i = 0; i < 3; i++)
		assert_false(forward(&stage, 1, AHEAD));
	compute_cuda.ask(stage.m.compute, false);
	assert_true(forward(&stage, 1, AHEAD));
	assert_int_equal(asked, 3 * stage.m.model.n_layers);
	compute_cuda.ask(stage.m.compute, true);
	assert_false(forward(&stage, 1, AHEAD));
	assert_int_equal(asked, 4 * stage.m.model.n_layers);
	stage_close(&stage);
}

static uint64_t
cpu_experts(const struct stage *stage)
{
	struct compute_share share;

	compute_cuda.share(stage->m.compute, &share);
	return share.experts;
}

/* Each token misses as many: so the CPU computes as many of each, and of one that is dropped too,
 * before the next one's are ordered. */
static void
the_cpu_computes_its_share_of_each_that_was_begun(void **state)
{
	struct stage stage;
	uint64_t each;

	(void)state;
	stage_open(&stage, ODD, false);
	forward(&stage, PROMPT, AHEAD);
	assert_false(forward(&stage, 1, 0));
	each = cpu_experts(&stage);
	assert_int_equal(each > 0, cpu_share > 0);
	assert_true(forward(&stage, 1, AHEAD));
	assert_true(forward(&stage, 1, AHEAD));
	stage.ids[stage.n] = (stage.ids[stage.n] + 1) % stage.m.model.vocabulary;
	assert_false(forward(&stage, 1, 0));
	assert_int_equal(cpu_experts(&stage), 5 * each);
	stage_close(&stage);
}

/* As where no token follows for now. */
static void
dropping_it_changes_no_token(void **state)
{
	struct stage stage;

	(void)state;
	stage_open(&stage, ODD, true);
	begin(&stage);
	for (uint32_t i = 0; i < 3; i++) {
		compute_cuda.drop(stage.m.compute);
		compute_cuda.drop(stage.m.compute);
		assert_true(forward(&stage, 1, i == 1 ? AHEAD | LOGITS : AHEAD));
	}
	stage_close(&stage);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tokens_are_those_without),
		cmocka_unit_test(nothing_is_begun_before_the_first_answer_nor_unasked),
		cmocka_unit_test(behind_a_prompt_the_first_token_is_begun),
		cmocka_unit_test(the_last_position_is_the_end),
		cmocka_unit_test(another_token_drops_it),
		cmocka_unit_test(another_position_drops_it),
		cmocka_unit_test(another_request_drops_it),
		cmocka_unit_test(a_forward_without_result_drops_it),
		cmocka_unit_test(places_may_change_while_it_is_computed),
		cmocka_unit_test(what_places_become_is_not_for_it),
		cmocka_unit_test(use_is_counted_once),
		cmocka_unit_test(none_while_experts_are_asked_for),
		cmocka_unit_test(the_cpu_computes_its_share_of_each_that_was_begun),
		cmocka_unit_test(dropping_it_changes_no_token),
	};
	/* Where it makes a difference. */
	const struct CMUnitTest with_share[] = {
		cmocka_unit_test(tokens_are_those_without),
		cmocka_unit_test(another_token_drops_it),
		cmocka_unit_test(another_position_drops_it),
		cmocka_unit_test(a_forward_without_result_drops_it),
		cmocka_unit_test(places_may_change_while_it_is_computed),
		cmocka_unit_test(what_places_become_is_not_for_it),
		cmocka_unit_test(use_is_counted_once),
		cmocka_unit_test(the_cpu_computes_its_share_of_each_that_was_begun),
		cmocka_unit_test(dropping_it_changes_no_token),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = cmocka_run_group_tests_name("the GPU alone", tests, NULL, NULL);
	cpu_share = 0.5f;
	if (lanes_kernels_best() != NULL)
		failed +=
		    cmocka_run_group_tests_name("with a share of the CPU", with_share, NULL, NULL);
	device_close(device);
	return failed;
}
