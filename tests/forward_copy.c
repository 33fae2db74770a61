#include "tests/forward_copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/sample.h"

static uint32_t
bits_of(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static void
check_greatest(const struct compute_result *result, uint32_t vocabulary)
{
	uint32_t id = sample_greatest(result->logits, vocabulary);

	if (result->greatest == id && bits_of(result->logit) == bits_of(result->logits[id]))
		return;
	fprintf(stderr, "the greatest is %u with %g, want %u with %g\n", result->greatest,
		(double)result->logit, id, (double)result->logits[id]);
	abort();
}

int
forward_copy(const struct compute_ops *ops, struct compute *compute, const struct model *model,
	     const uint32_t *ids, uint32_t n, uint32_t pos, float *logits, struct error *err)
{
	const struct compute_want want = { .logits = true };
	struct compute_result result;
	int rc = ops->forward(compute, ids, n, pos, logits ? &want : NULL, &result, err);

	if (rc < 0 || !logits)
		return rc;
	check_greatest(&result, model->vocabulary);
	memcpy(logits, result.logits, model->vocabulary * sizeof(*logits));
	return 0;
}
