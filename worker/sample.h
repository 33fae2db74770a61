/* Picks a token from logits.  The random number is a function of seed and token index alone, so
 * that a token does not depend on which worker computed it. */
#ifndef HEARTH_WORKER_SAMPLE_H
#define HEARTH_WORKER_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sampling {
	float temperature; /* 0: greedy (the first of equals) */
	uint32_t top_k;    /* 0: all */
	float top_p;       /* >= 1 or <= 0: all; the smallest set whose probability reaches it */
	uint64_t seed;
};

struct sample_scratch; /* room for one vocabulary */
int sample_scratch_open(struct sample_scratch **ret, uint32_t vocabulary);
void sample_scratch_close(struct sample_scratch *scratch);

/* Whether sample() gives sample_greatest(), whatever is drawn. */
bool sampling_is_greedy(const struct sampling *sampling);
/* The first of the greatest; NaN never wins; 0 if all are NaN. */
uint32_t sample_greatest(const float *logits, uint32_t vocabulary);

/* Order as the field has it: temperature, top-k, top-p.  Allocates nothing.  NaN never wins. */
uint32_t sample(const float *logits, uint32_t vocabulary, const struct sampling *sampling,
		uint64_t index, struct sample_scratch *scratch);

/* In [0, 1): splitmix64 of (seed, index). */
double sample_uniform(uint64_t seed, uint64_t index);

#endif
