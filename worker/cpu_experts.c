/* The router and the chosen experts.  Tokens are grouped by expert, so that each expert's weights
 * are read once for all of a batch's tokens that chose it. */
#include <assert.h>
#include <math.h>

#include "common/types.h"
#include "worker/cpu_compute.h"

/* The top_k experts of a token, the greatest logit first, of equals the lower index; and their
 * shares: the softmax over all, renormalized over the chosen, which is the softmax over these. */
static void
choose_part(void *arg, uint32_t token, uint32_t thread)
{
	struct compute *compute = arg;
	const struct model *model = compute->config.model;
	const float *logits = compute->routed + (size_t)token * model->n_experts;
	uint32_t *chosen = compute->chosen + (size_t)token * model->top_k;
	float *shares = compute->shares + (size_t)token * model->top_k;
	float sum = 0;

	(void)thread;
	for (uint32_t k = 0; k < model->top_k; k++) {
		int64_t best = -1;

		for (uint32_t e = 0; e < model->n_experts; e++) {
			bool taken = false;

			if (best >= 0 && !(logits[e] > logits[best]))
				continue;
			for (uint32_t j = 0; j < k; j++)
				taken = taken || chosen[j] == e;
			if (!taken)
				best = e;
		}
		chosen[k] = (uint32_t)best; /* top_k <= n_experts: there is one */
		shares[k] = expf(logits[best] - logits[chosen[0]]);
		sum += shares[k];
	}
	for (uint32_t k = 0; k < model->top_k; k++)
		shares[k] /= sum;
}

/* Slots by expert, in the order of tokens; and the experts that have any. */
static void
group_slots(struct compute *compute)
{
	const struct model *model = compute->config.model;
	uint64_t *used = compute->used + (size_t)compute->layer * model->n_experts;
	uint32_t n_slots = compute->n * model->top_k, at = 0;

	for (uint32_t e = 0; e < model->n_experts; e++)
		compute->groups[e] = (struct cpu_group){ .expert = e };
	for (uint32_t slot = 0; slot < n_slots; slot++)
		compute->groups[compute->chosen[slot]].n++;
	for (uint32_t e = 0; e < model->n_experts; e++) {
		compute->groups[e].first = at;
		at += compute->groups[e].n;
		compute->groups[e].n = 0;
	}
	for (uint32_t slot = 0; slot < n_slots; slot++) {
		struct cpu_group *group = &compute->groups[compute->chosen[slot]];

		compute->order[group->first + group->n++] = slot;
	}
	compute->n_groups = 0;
	for (uint32_t e = 0; e < model->n_experts; e++)
		if (compute->groups[e].n > 0) {
			used[e] += compute->groups[e].n;
			compute->needed[compute->n_groups] = e;
			compute->groups[compute->n_groups++] = compute->groups[e];
		}
}

void
cpu_route(struct compute *compute)
{
	const struct model *model = compute->config.model;
	struct cpu_product router = { &model->layers[compute->layer].router,
				      compute->n,
				      compute->normed,
				      compute->hidden_stride,
				      compute->routed,
				      model->n_experts };

	cpu_multiply(compute, &router, 1);
	cpu_pool_run(compute->pool, choose_part, compute, compute->n);
	group_slots(compute);
}

struct expert_job {
	struct compute *compute;
	uint32_t rows_a_part;
	uint32_t parts_an_expert;
};

/* Rows `first` .. of one role of a group's expert; x and y hold a column for each of its slots. */
static void
expert_rows(const struct compute *compute, const struct cpu_group *group, enum role role,
	    uint32_t first, uint32_t n_rows, const float *const *x, float *const *y,
	    uint32_t thread)
{
	const struct model *model = compute->config.model;
	const struct experts *experts = &model->layers[compute->layer].role[role];
	uint64_t place = (uint64_t)compute->layer * model->n_experts + group->expert;
	const uint8_t *rows = compute->config.places[place].role[role];
	struct cpu_dot dot = { .row_bytes = experts->bytes / experts->rows,
			       .n_rows = n_rows,
			       .n = experts->columns,
			       .n_columns = group->n,
			       .x = x,
			       .y = y };

	dot.rows = rows + first * dot.row_bytes;
	cpu_dot_rows(compute, experts->type, &dot, thread);
}

static uint32_t
rows_from(uint32_t first, uint32_t rows_a_part, uint32_t n_rows)
{
	return n_rows - first < rows_a_part ? n_rows - first : rows_a_part;
}

/* Some rows of gate and up of one expert: gate = silu(gate x) * up x. */
static void
gate_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct expert_job *job = arg;
	struct compute *compute = job->compute;
	const struct model *model = compute->config.model;
	const struct cpu_group *group = &compute->groups[part / job->parts_an_expert];
	uint32_t first = part % job->parts_an_expert * job->rows_a_part;
	uint32_t n_rows = rows_from(first, job->rows_a_part, model->expert_width);
	const float *x[COMPUTE_BATCH];
	float *gate[COMPUTE_BATCH], *up[COMPUTE_BATCH];

	for (uint32_t c = 0; c < group->n; c++) {
		uint32_t slot = compute->order[group->first + c];

		x[c] = compute->normed + slot / model->top_k * compute->hidden_stride;
		gate[c] = compute->gate + slot * compute->width_stride + first;
		up[c] = compute->up + slot * compute->width_stride + first;
	}
	expert_rows(compute, group, ROLE_GATE, first, n_rows, x, gate, thread);
	expert_rows(compute, group, ROLE_UP, first, n_rows, x, up, thread);
	for (uint32_t c = 0; c < group->n; c++)
		for (uint32_t i = 0; i < n_rows; i++) {
			float g = gate[c][i];

			gate[c][i] = g / (1 + expf(-g)) * up[c][i];
		}
}

/* Some rows of all groups' down, then these elements of every token: x += the sum over its experts,
 * in the order they were chosen. */
static void
down_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct expert_job *job = arg;
	struct compute *compute = job->compute;
	const struct model *model = compute->config.model;
	uint32_t first = part * job->rows_a_part;
	uint32_t n_rows = rows_from(first, job->rows_a_part, model->hidden);
	const float *x[COMPUTE_BATCH];
	float *y[COMPUTE_BATCH];

	for (uint32_t g = 0; g < compute->n_groups; g++) {
		const struct cpu_group *group = &compute->groups[g];

		for (uint32_t c = 0; c < group->n; c++) {
			uint32_t slot = compute->order[group->first + c];

			x[c] = compute->gate + slot * compute->width_stride;
			y[c] = compute->down + slot * compute->hidden_stride + first;
		}
		expert_rows(compute, group, ROLE_DOWN, first, n_rows, x, y, thread);
	}
	for (uint32_t token = 0; token < compute->n; token++)
		for (uint32_t i = first; i < first + n_rows; i++) {
			float sum = 0;

			for (uint32_t k = 0; k < model->top_k; k++) {
				uint64_t slot = token * model->top_k + k;

				sum += compute->shares[slot] *
				       compute->down[slot * compute->hidden_stride + i];
			}
			compute->x[token * compute->hidden_stride + i] += sum;
		}
}

void
cpu_experts(struct compute *compute)
{
	const struct model *model = compute->config.model;
	const struct experts *role = model->layers[compute->layer].role;
	uint64_t slots = (uint64_t)compute->n * model->top_k;
	struct expert_job job = { .compute = compute };
	uint64_t work;

	assert(compute->n_groups > 0); /* n and top_k are */
	work = 2 * role[ROLE_GATE].bytes / role[ROLE_GATE].rows * slots / compute->n_groups;
	job.rows_a_part =
	    cpu_rows_a_part(compute, (uint64_t)model->expert_width * compute->n_groups, work);
	if (job.rows_a_part > model->expert_width)
		job.rows_a_part = model->expert_width;
	job.parts_an_expert = (model->expert_width - 1) / job.rows_a_part + 1;
	cpu_pool_run(compute->pool, gate_part, &job, compute->n_groups * job.parts_an_expert);

	work = role[ROLE_DOWN].bytes / role[ROLE_DOWN].rows * slots;
	job.rows_a_part = cpu_rows_a_part(compute, model->hidden, work);
	cpu_pool_run(compute->pool, down_part, &job, (model->hidden - 1) / job.rows_a_part + 1);
}
