/* Models with reference results in tests/data, for any device: a model file read into memory, whose
 * file offsets serve as arena offsets, and the reference's cases.  Dies (cmocka) on a file that is
 * not as it should be. */
#ifndef HEARTH_TESTS_GOLDEN_H
#define HEARTH_TESTS_GOLDEN_H

#include <stdint.h>

#include "common/gguf.h"
#include "common/model.h"
#include "worker/compute.h"

struct golden_model {
	uint8_t *bytes; /* the file */
	uint64_t n_bytes;
	struct gguf gguf;
	struct arena_tensor *tensors;
	struct model model;
	struct expert_place *places; /* (layers, experts), into bytes */
};

struct golden_case {
	uint32_t n_prompt, n_greedy;
	uint32_t *prompt, *greedy;
	double *margins;     /* (n_greedy): the best logit's lead over the second */
	float *first_logits; /* (vocabulary) */
};

struct golden {
	uint32_t n_cases;
	struct golden_case *cases;
};

void golden_model_open(struct golden_model *ret, const char *path);
void golden_model_close(struct golden_model *golden);

/* logits: a file with a row of float32 for each case, or NULL: they are in the json. */
void golden_open(struct golden *ret, const char *json, const char *logits, uint32_t vocabulary);
void golden_close(struct golden *golden);

/* A whole file; the caller frees *ret. */
uint64_t golden_read_file(const char *path, uint8_t **ret);

/* |got - want| / |want| */
double golden_relative_error(const float *got, const float *want, uint32_t n);

uint32_t golden_best(const float *logits, uint32_t n); /* the first of equals */

#endif
