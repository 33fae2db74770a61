#include "tests/experts_alone.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cpu_experts.h"

#define LINE 64u /* bytes of a cache line */

struct experts_alone {
	const struct model *model;
	struct cpu_crew crew;
	void *block; /* all of the below */
	struct cpu_inner inner;
	struct cpu_vectors x;     /* 1 */
	struct cpu_group *groups; /* (top_k) */
	uint32_t *order;          /* (top_k) 0, 1, .. */
};

/* Sets all pointers into `base`; returns how many bytes they need. */
static uint64_t
lay_out(struct experts_alone *alone, const struct model *model, uint8_t *base)
{
	uint32_t longest =
	    model->hidden > model->expert_width ? model->hidden : model->expert_width;
	uint64_t used = 0;

	alone->inner = cpu_inner_carve(model, model->top_k, base, &used);
	alone->x = cpu_carve_vectors(base, &used, 1, model->hidden);
	alone->groups = cpu_carve(base, &used, model->top_k, sizeof(*alone->groups));
	alone->order = cpu_carve(base, &used, model->top_k, sizeof(*alone->order));
	alone->crew.scratch_stride = cpu_stride((uint64_t)CPU_SCRATCH_ROWS * longest);
	alone->crew.scratch =
	    cpu_carve_floats(base, &used, alone->crew.threads, alone->crew.scratch_stride);
	return used;
}

int
experts_alone_open(struct experts_alone **ret, const struct model *model, uint32_t threads,
		   struct error *err)
{
	struct experts_alone *alone = calloc(1, sizeof(*alone));
	uint64_t bytes;
	int rc;

	if (!alone)
		return error_sys(err, -ENOMEM, "opening the CPU's alone");
	alone->model = model;
	alone->crew.kernels = cpu_kernels_best();
	alone->crew.threads = threads;
	rc = cpu_pool_open(&alone->crew.pool, threads, err);
	if (rc < 0)
		goto fail;
	bytes = lay_out(alone, model, NULL);
	alone->block = aligned_alloc(LINE, bytes);
	if (!alone->block) {
		rc = error_sys(err, -ENOMEM, "%llu bytes to compute in", (unsigned long long)bytes);
		goto fail;
	}
	memset(alone->block, 0, bytes); /* what is behind the ends of fixed vectors */
	lay_out(alone, model, alone->block);
	for (uint32_t i = 0; i < model->top_k; i++)
		alone->order[i] = i;
	*ret = alone;
	return 0;
fail:
	experts_alone_close(alone);
	return rc;
}

void
experts_alone_close(struct experts_alone *alone)
{
	if (!alone)
		return;
	cpu_pool_close(alone->crew.pool);
	free(alone->block);
	free(alone);
}

void
experts_alone_run(struct experts_alone *alone, uint32_t layer, const float *x,
		  const struct expert_place *const *places, const float *weights, uint32_t n,
		  float *out)
{
	struct cpu_experts_job job = { .crew = &alone->crew,
				       .inner = &alone->inner,
				       .model = alone->model,
				       .layer = layer,
				       .n_tokens = 1,
				       .top_k = n,
				       .n_groups = n,
				       .groups = alone->groups,
				       .order = alone->order,
				       .shares = weights,
				       .x = &alone->x,
				       .out = out,
				       .out_stride = alone->model->hidden };

	assert(n >= 1 && n <= alone->model->top_k);
	for (uint32_t i = 0; i < n; i++)
		alone->groups[i] = (struct cpu_group){ .first = i, .n = 1, .place = places[i] };
	memcpy(alone->x.x, x, alone->model->hidden * sizeof(*x));
	cpu_fix(&alone->crew, &alone->x, 0, 0, alone->model->hidden);
	memset(out, 0, alone->model->hidden * sizeof(*out));
	cpu_experts_run(&job);
}
