#include "worker/cpu_share.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cpu_experts.h"

#define LINE 64u /* bytes of a cache line */

struct cpu_share {
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
lay_out(struct cpu_share *share, const struct model *model, uint8_t *base)
{
	uint32_t longest =
	    model->hidden > model->expert_width ? model->hidden : model->expert_width;
	uint64_t used = 0;

	share->inner = cpu_inner_carve(model, model->top_k, base, &used);
	share->x = cpu_carve_vectors(base, &used, 1, model->hidden);
	share->groups = cpu_carve(base, &used, model->top_k, sizeof(*share->groups));
	share->order = cpu_carve(base, &used, model->top_k, sizeof(*share->order));
	share->crew.scratch_stride = cpu_stride((uint64_t)CPU_SCRATCH_ROWS * longest);
	share->crew.scratch =
	    cpu_carve_floats(base, &used, share->crew.threads, share->crew.scratch_stride);
	return used;
}

int
cpu_share_open(struct cpu_share **ret, const struct model *model, uint32_t threads,
	       struct error *err)
{
	struct cpu_share *share = calloc(1, sizeof(*share));
	uint64_t bytes;
	int rc;

	if (!share)
		return error_sys(err, -ENOMEM, "opening the CPU's share");
	share->model = model;
	share->crew.kernels = cpu_kernels_best();
	share->crew.threads = threads;
	rc = cpu_pool_open(&share->crew.pool, threads, err);
	if (rc < 0)
		goto fail;
	bytes = lay_out(share, model, NULL);
	share->block = aligned_alloc(LINE, bytes);
	if (!share->block) {
		rc = error_sys(err, -ENOMEM, "%llu bytes to compute in", (unsigned long long)bytes);
		goto fail;
	}
	memset(share->block, 0, bytes); /* what is behind the ends of fixed vectors */
	lay_out(share, model, share->block);
	for (uint32_t i = 0; i < model->top_k; i++)
		share->order[i] = i;
	*ret = share;
	return 0;
fail:
	cpu_share_close(share);
	return rc;
}

void
cpu_share_close(struct cpu_share *share)
{
	if (!share)
		return;
	cpu_pool_close(share->crew.pool);
	free(share->block);
	free(share);
}

void
cpu_share_run(struct cpu_share *share, uint32_t layer, const float *x,
	      const struct expert_place *const *places, const float *weights, uint32_t n,
	      float *out)
{
	struct cpu_experts_job job = { .crew = &share->crew,
				       .inner = &share->inner,
				       .model = share->model,
				       .layer = layer,
				       .n_tokens = 1,
				       .top_k = n,
				       .n_groups = n,
				       .groups = share->groups,
				       .order = share->order,
				       .shares = weights,
				       .x = &share->x,
				       .out = out,
				       .out_stride = share->model->hidden };

	assert(n >= 1 && n <= share->model->top_k);
	for (uint32_t i = 0; i < n; i++)
		share->groups[i] = (struct cpu_group){ .first = i, .n = 1, .place = places[i] };
	memcpy(share->x.x, x, share->model->hidden * sizeof(*x));
	cpu_fix(&share->crew, &share->x, 0, 0, share->model->hidden);
	memset(out, 0, share->model->hidden * sizeof(*out));
	cpu_experts_run(&job);
}
