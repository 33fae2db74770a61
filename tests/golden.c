#include "tests/golden.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t
golden_read_file(const char *path, uint8_t **ret)
{
	FILE *file = fopen(path, "rb");
	long n;

	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	n = ftell(file);
	assert_true(n > 0);
	rewind(file);
	*ret = malloc((size_t)n);
	assert_non_null(*ret);
	assert_int_equal(fread(*ret, 1, (size_t)n, file), n);
	fclose(file);
	return (uint64_t)n;
}

static void
take_tensors(struct golden_model *golden)
{
	golden->tensors = calloc(golden->gguf.n_tensors, sizeof(*golden->tensors));
	assert_non_null(golden->tensors);
	for (uint64_t i = 0; i < golden->gguf.n_tensors; i++) {
		const struct gguf_tensor *from = &golden->gguf.tensors[i];
		struct arena_tensor *to = &golden->tensors[i];

		memcpy(to->name, from->name.at, from->name.bytes);
		memcpy(to->dims, from->dims, sizeof(to->dims));
		to->type = from->type;
		to->n_dims = from->n_dims;
		to->offset = to->file_offset = from->offset;
		to->bytes = from->bytes;
	}
}

static void
place_experts(struct golden_model *golden)
{
	const struct model *model = &golden->model;

	golden->places =
	    calloc((size_t)model->n_layers * model->n_experts, sizeof(*golden->places));
	assert_non_null(golden->places);
	for (uint32_t i = 0; i < model->n_layers * model->n_experts; i++) {
		const struct experts *role = model->layers[i / model->n_experts].role;
		uint64_t expert = i % model->n_experts;

		for (int r = 0; r < N_ROLES; r++)
			golden->places[i].role[r] =
			    golden->bytes + role[r].offset + expert * role[r].stride;
	}
}

void
golden_model_open(struct golden_model *ret, const char *path)
{
	struct error err = { "" };

	*ret = (struct golden_model){ 0 };
	ret->n_bytes = golden_read_file(path, &ret->bytes);
	if (gguf_parse(&ret->gguf, ret->bytes, ret->n_bytes, ret->n_bytes, path, &err) < 0)
		fail_msg("%s", err.text);
	take_tensors(ret);
	if (model_read(&ret->model, &ret->gguf, ret->tensors, ret->gguf.n_tensors, path, &err) < 0)
		fail_msg("%s", err.text);
	place_experts(ret);
}

void
golden_model_close(struct golden_model *golden)
{
	free(golden->places);
	model_close(&golden->model);
	free(golden->tensors);
	gguf_close(&golden->gguf);
	free(golden->bytes);
}

static uint32_t
read_ids(const json_t *array, uint32_t **ret)
{
	uint32_t n = (uint32_t)json_array_size(array);

	assert_true(n > 0);
	*ret = calloc(n + 1, sizeof(**ret));
	assert_non_null(*ret);
	for (uint32_t i = 0; i < n; i++)
		(*ret)[i] = (uint32_t)json_integer_value(json_array_get(array, i));
	return n;
}

static void
read_case(struct golden_case *ret, const json_t *item)
{
	const json_t *margins = json_object_get(item, "margins");

	ret->n_prompt = read_ids(json_object_get(item, "prompt_ids"), &ret->prompt);
	ret->n_greedy = read_ids(json_object_get(item, "greedy_ids"), &ret->greedy);
	assert_int_equal(json_array_size(margins), ret->n_greedy);
	ret->margins = calloc(ret->n_greedy + 1, sizeof(*ret->margins));
	assert_non_null(ret->margins);
	for (uint32_t i = 0; i < ret->n_greedy; i++)
		ret->margins[i] = json_number_value(json_array_get(margins, i));
}

static void
read_logits(struct golden *golden, const json_t *cases, const char *path, uint32_t vocabulary)
{
	size_t row = vocabulary * sizeof(float);
	uint8_t *rows = NULL;

	if (path)
		assert_int_equal(golden_read_file(path, &rows), golden->n_cases * row);
	for (uint32_t i = 0; i < golden->n_cases; i++) {
		const json_t *item = json_array_get(cases, i);
		const json_t *array = json_object_get(item, "first_logits");
		float *to = calloc(vocabulary, sizeof(*to));

		assert_non_null(to);
		golden->cases[i].first_logits = to;
		if (rows) {
			memcpy(to, rows + i * row, row);
			continue;
		}
		assert_int_equal(json_array_size(array), vocabulary);
		for (uint32_t j = 0; j < vocabulary; j++)
			to[j] = (float)json_number_value(json_array_get(array, j));
	}
	free(rows);
}

void
golden_open(struct golden *ret, const char *json, const char *logits, uint32_t vocabulary)
{
	json_error_t error;
	json_t *root = json_load_file(json, 0, &error);
	const json_t *cases = json_object_get(root, "cases");

	if (!root)
		fail_msg("%s: %s", json, error.text);
	ret->n_cases = (uint32_t)json_array_size(cases);
	assert_true(ret->n_cases > 0);
	ret->cases = calloc(ret->n_cases + 1, sizeof(*ret->cases));
	assert_non_null(ret->cases);
	for (uint32_t i = 0; i < ret->n_cases; i++)
		read_case(&ret->cases[i], json_array_get(cases, i));
	read_logits(ret, cases, logits, vocabulary);
	json_decref(root);
}

void
golden_close(struct golden *golden)
{
	for (uint32_t i = 0; i < golden->n_cases; i++) {
		free(golden->cases[i].prompt);
		free(golden->cases[i].greedy);
		free(golden->cases[i].margins);
		free(golden->cases[i].first_logits);
	}
	free(golden->cases);
}

double
golden_relative_error(const float *got, const float *want, uint32_t n)
{
	double off = 0, size = 0;

	for (uint32_t i = 0; i < n; i++) {
		off += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
		size += (double)want[i] * want[i];
	}
	return sqrt(off / size);
}

uint32_t
golden_best(const float *logits, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}
