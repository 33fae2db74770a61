/* Whole forwards on the GPU against references from Hugging Face transformers, and against each
 * other: batches, slots, graph or launches must not change a bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "common/clock.h"
#include "tests/forward_copy.h"
#include "tests/gpu.h"

#define CONTEXT 600u
#define TOLERANCE 2e-2 /* relative norm of the first logits */
#define MARGIN 0.05    /* a smaller lead of the best logit may be another's on a GPU */

#define KJV "tests/data/kjv-16x1m.gguf"
#define ODD "tests/data/odd-shapes.gguf"

static struct device *device;

struct reference {
	const char *model, *json, *logits; /* logits: rows of float32, NULL: in the json */
};

static const struct reference references[] = {
	{ KJV, "tests/data/kjv-16x1m.golden.json", "tests/data/kjv-16x1m.first-logits.f32" },
	{ ODD, "tests/data/odd-shapes.json", NULL },
};

static uint32_t
read_ids(const json_t *array, uint32_t *ret, uint32_t room)
{
	uint32_t n = (uint32_t)json_array_size(array);

	assert_true(n <= room);
	for (uint32_t i = 0; i < n; i++)
		ret[i] = (uint32_t)json_integer_value(json_array_get(array, i));
	return n;
}

static void
forward(struct gpu_model *m, const uint32_t *ids, uint32_t n, uint32_t pos, float *logits)
{
	struct error err = { "" };
	int rc = forward_copy(&compute_cuda, m->compute, &m->model, ids, n, pos, logits, &err);

	if (rc < 0)
		print_error("%s\n", err.text);
	assert_int_equal(rc, 0);
}

/* From position 0, `step` tokens a call. */
static void
prompt(struct gpu_model *m, const uint32_t *ids, uint32_t n, uint32_t step, float *logits)
{
	for (uint32_t at = 0; at < n; at += step) {
		uint32_t now = n - at < step ? n - at : step;

		forward(m, ids + at, now, at, at + now == n ? logits : NULL);
	}
}

static uint32_t
best(const float *logits, uint32_t n)
{
	uint32_t top = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[top])
			top = i;
	return top;
}

static void
read_first_logits(const struct reference *reference, const json_t *item, size_t index,
		  uint32_t vocabulary, float *ret)
{
	const json_t *array = json_object_get(item, "first_logits");
	FILE *file;

	if (!reference->logits) {
		assert_int_equal(json_array_size(array), vocabulary);
		for (uint32_t i = 0; i < vocabulary; i++)
			ret[i] = (float)json_number_value(json_array_get(array, i));
		return;
	}
	file = fopen(reference->logits, "rb");
	assert_non_null(file);
	assert_int_equal(fseek(file, (long)(index * vocabulary * sizeof(float)), SEEK_SET), 0);
	assert_int_equal(fread(ret, sizeof(float), vocabulary, file), vocabulary);
	fclose(file);
}

static double
relative_error(const float *got, const float *want, uint32_t n)
{
	double off = 0, size = 0;

	for (uint32_t i = 0; i < n; i++) {
		off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		size += (double)want[i] * want[i];
	}
	return sqrt(off / size);
}

struct tally {
	double worst;
	uint32_t compared, close;
	uint64_t decode_ns, steps;
};

/* The reference's own tokens are fed, so that every step is compared. */
static void
one_case(struct gpu_model *m, const struct reference *reference, const json_t *item, size_t index,
	 struct tally *tally)
{
	const json_t *margins = json_object_get(item, "margins");
	uint32_t vocabulary = m->model.vocabulary;
	float *logits = calloc(vocabulary, sizeof(*logits));
	float *want = calloc(vocabulary, sizeof(*want));
	uint32_t ids[CONTEXT], greedy[CONTEXT] = { 0 };
	uint32_t n = read_ids(json_object_get(item, "prompt_ids"), ids, CONTEXT);
	uint32_t all = read_ids(json_object_get(item, "greedy_ids"), greedy, CONTEXT - n);
	uint32_t steps = gpu_many(device, all, 8);
	double error;

	prompt(m, ids, n, COMPUTE_BATCH, logits);
	read_first_logits(reference, item, index, vocabulary, want);
	error = relative_error(logits, want, vocabulary);
	assert_true(error < TOLERANCE);
	tally->worst = fmax(tally->worst, error);
	for (uint32_t i = 0; i < steps; i++) {
		uint64_t begin;

		if (json_number_value(json_array_get(margins, i)) > MARGIN) {
			assert_int_equal(best(logits, vocabulary), greedy[i]);
			tally->compared++;
		} else {
			tally->close++;
		}
		begin = clock_ns();
		forward(m, &greedy[i], 1, n + i, logits);
		tally->decode_ns += clock_ns() - begin;
		tally->steps++;
	}
	free(logits);
	free(want);
}

static void
agrees_with_the_references(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		for (uint32_t slots = 2 - gpu_many(device, 2, 1); slots < 2; slots++) {
			json_t *json = json_load_file(references[f].json, 0, NULL), *cases;
			struct tally tally = { 0 };
			struct gpu_model m;
			uint32_t n;

			assert_non_null(json);
			cases = json_object_get(json, "cases");
			gpu_model_open(&m, device, references[f].model, CONTEXT, slots != 0, NULL,
				       NULL);
			n = gpu_many(device, (uint32_t)json_array_size(cases), 3);
			for (uint32_t i = 0; i < n; i++)
				one_case(&m, &references[f], json_array_get(cases, i), i, &tally);
			printf("%s, %s: first logits off by %.1e at most; %u tokens equal (%u too "
			       "close to compare); %.0f us a step, %.0f tokens/s\n",
			       references[f].model, slots ? "half in slots" : "in place",
			       tally.worst, tally.compared, tally.close,
			       (double)tally.decode_ns / 1e3 / (double)tally.steps,
			       (double)tally.steps * 1e9 / (double)tally.decode_ns);
			assert_true(tally.compared > 0);
			gpu_model_close(&m);
			json_decref(json);
		}
	}
}

#define LONG 307u /* crosses a split of the attention, and no multiple of a batch */

static uint32_t
long_prompt(const struct gpu_model *m, uint32_t *ids)
{
	uint32_t n = gpu_many(m->device, LONG, 19);
	uint64_t seed = 7;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = (uint32_t)((gpu_random(&seed) + 1) / 2 * (float)m->model.vocabulary) %
			 m->model.vocabulary;
	return n;
}

static void
bits_do_not_depend_on_the_batch(void **state)
{
	static const uint32_t steps[] = { COMPUTE_BATCH, 1, 7, 63, 2 };

	(void)state;
	for (int f = 0; f < 2; f++) {
		struct gpu_model m;
		uint32_t ids[LONG], n, n_steps = gpu_many(device, 5, 3);
		float *first, *logits;

		gpu_model_open(&m, device, references[f].model, CONTEXT, false, NULL, NULL);
		n = long_prompt(&m, ids);
		first = calloc(m.model.vocabulary, sizeof(*first));
		logits = calloc(m.model.vocabulary, sizeof(*logits));
		for (uint32_t s = 0; s < n_steps; s++) {
			uint64_t begin = clock_ns();

			memset(logits, 0, m.model.vocabulary * sizeof(*logits));
			prompt(&m, ids, n, steps[s], logits);
			printf("%s: prompt by %u: %.0f tokens/s\n", references[f].model, steps[s],
			       n * 1e9 / (double)(clock_ns() - begin));
			if (s == 0)
				memcpy(first, logits, m.model.vocabulary * sizeof(*first));
			assert_memory_equal(first, logits, m.model.vocabulary * sizeof(*first));
		}
		free(first);
		free(logits);
		gpu_model_close(&m);
	}
}

#define GREEDY 20u

/* Logits of a prompt, then of greedy tokens. */
static void
run_on(struct gpu_model *m, float *ret)
{
	uint32_t ids[LONG], vocabulary = m->model.vocabulary, id;
	uint32_t n = long_prompt(m, ids), greedy = gpu_many(m->device, GREEDY, 3);

	prompt(m, ids, n, COMPUTE_BATCH, ret);
	for (uint32_t i = 0; i < greedy; i++, ret += vocabulary) {
		id = best(ret, vocabulary);
		forward(m, &id, 1, n + i, ret + vocabulary);
	}
}

static void
bits_do_not_depend_on_where_experts_lie(void **state)
{
	(void)state;
	for (int f = 0; f < 2; f++) {
		float *logits[2];
		uint64_t bytes = 0;

		for (int slots = 0; slots < 2; slots++) {
			struct gpu_model m;

			gpu_model_open(&m, device, references[f].model, CONTEXT, slots, NULL, NULL);
			bytes = (GREEDY + 1ull) * m.model.vocabulary * sizeof(float);
			logits[slots] = calloc(1, bytes);
			run_on(&m, logits[slots]);
			gpu_model_close(&m);
		}
		assert_memory_equal(logits[0], logits[1], bytes);
		free(logits[0]);
		free(logits[1]);
	}
}

static void
a_place_may_change_between_forwards(void **state)
{
	struct gpu_model m;
	struct error err;
	uint32_t ids[LONG], last;
	float *logits[2];
	uint64_t bytes, n;
	struct expert_place *slots;

	(void)state;
	gpu_model_open(&m, device, ODD, CONTEXT, true, NULL, NULL);
	bytes = m.model.vocabulary * sizeof(float);
	n = (uint64_t)m.model.n_layers * m.model.n_experts;
	last = gpu_many(device, 39, 5);
	long_prompt(&m, ids);
	for (int i = 0; i < 2; i++)
		logits[i] = malloc(bytes);
	forward(&m, ids, last + 1, 0, logits[0]);
	/* Every expert to the arena: what is in the slots must not be read any more. */
	slots = malloc(n * sizeof(*slots));
	memcpy(slots, m.places, n * sizeof(*slots));
	for (uint64_t i = 0; i < n; i++) {
		const struct model_layer *layer = &m.model.layers[i / m.model.n_experts];

		for (enum role role = 0; role < N_ROLES; role++)
			m.places[i].role[role] = m.file + layer->role[role].offset +
						 i % m.model.n_experts * layer->role[role].stride;
	}
	assert_int_equal(compute_cuda.places_changed(m.compute, &err), 0);
	forward(&m, ids, last, 0, NULL);
	forward(&m, ids + last, 1, last, logits[1]);
	assert_memory_equal(logits[0], logits[1], bytes);
	for (int i = 0; i < 2; i++)
		free(logits[i]);
	free(slots);
	gpu_model_close(&m);
}

static void
tokens_out_of_range_are_refused(void **state)
{
	struct gpu_model m;
	struct error err;
	uint32_t ids[COMPUTE_BATCH + 1] = { 0 };

	(void)state;
	gpu_model_open(&m, device, ODD, CONTEXT, false, NULL, NULL);
	assert_int_equal(compute_cuda.forward(m.compute, ids, 0, 0, NULL, NULL, &err), -EINVAL);
	assert_int_equal(
	    compute_cuda.forward(m.compute, ids, COMPUTE_BATCH + 1, 0, NULL, NULL, &err), -EINVAL);
	assert_int_equal(compute_cuda.forward(m.compute, ids, 1, CONTEXT, NULL, NULL, &err),
			 -EINVAL);
	assert_int_equal(compute_cuda.forward(m.compute, ids, 2, UINT32_MAX, NULL, NULL, &err),
			 -EINVAL);
	ids[0] = m.model.vocabulary;
	assert_int_equal(compute_cuda.forward(m.compute, ids, 1, 0, NULL, NULL, &err), -EINVAL);
	ids[0] = 0;
	forward(&m, ids, 1, CONTEXT - 1, NULL);
	gpu_model_close(&m);
}

/* An argument is a pattern: the tests to run. */
int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(agrees_with_the_references),
		cmocka_unit_test(bits_do_not_depend_on_the_batch),
		cmocka_unit_test(bits_do_not_depend_on_where_experts_lie),
		cmocka_unit_test(a_place_may_change_between_forwards),
		cmocka_unit_test(tokens_out_of_range_are_refused),
	};
	int failed;

	device = gpu_open();
	if (!device)
		return 77;
	printf("%s\n", device_describe(device)->name);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	device_close(device);
	return failed;
}
