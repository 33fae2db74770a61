#include "worker/cpu_experts.h"

#include <assert.h>
#include <math.h>

struct cpu_inner
cpu_inner_carve(const struct model *model, uint64_t slots, uint8_t *base, uint64_t *used)
{
	struct cpu_inner ret = { .down_stride = cpu_stride(model->hidden) };

	ret.gate = cpu_carve_vectors(base, used, slots, model->expert_width);
	ret.up = cpu_carve_floats(base, used, slots, ret.gate.stride);
	ret.down = cpu_carve_floats(base, used, slots, ret.down_stride);
	return ret;
}

/* Where row `first` of one role of a group's expert is. */
static const uint8_t *
expert_row(const struct cpu_experts_job *job, const struct cpu_group *group, enum role role,
	   uint32_t first)
{
	const struct experts *experts = &job->model->layers[job->layer].role[role];

	return (const uint8_t *)group->place->role[role] + first * (experts->bytes / experts->rows);
}

/* Rows `first` .. of one role of a group's expert. */
static void
expert_rows(const struct cpu_experts_job *job, const struct cpu_group *group, enum role role,
	    uint32_t first, struct cpu_dot *dot, uint32_t thread)
{
	const struct experts *experts = &job->model->layers[job->layer].role[role];

	dot->row_bytes = experts->bytes / experts->rows;
	dot->rows = expert_row(job, group, role, first);
	dot->n = experts->columns;
	dot->n_columns = group->n;
	cpu_dot_rows(job->crew, experts->type, dot, thread);
}

static uint32_t
rows_from(uint32_t first, uint32_t rows_a_part, uint32_t n_rows)
{
	return n_rows - first < rows_a_part ? n_rows - first : rows_a_part;
}

/* Elements first .. of a slot: gate = silu(gate) * up. */
static void
activate(const struct cpu_experts_job *job, uint32_t slot, uint32_t first, uint32_t n)
{
	const struct cpu_vectors *vectors = &job->inner->gate;
	float *gate = vectors->x + slot * vectors->stride + first;
	const float *up = job->inner->up + slot * vectors->stride + first;

	for (uint32_t i = 0; i < n; i++) {
		float g = gate[i];

		gate[i] = g / (1 + expf(-g)) * up[i];
	}
	cpu_fix(job->crew, vectors, slot, first, n);
}

/* Some rows of gate and up of one expert. */
static void
gate_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct cpu_experts_job *job = arg;
	const struct cpu_group *group = &job->groups[part / job->parts_an_expert];
	uint32_t first = part % job->parts_an_expert * job->rows_a_part;
	uint32_t n_rows = rows_from(first, job->rows_a_part, job->model->expert_width);
	const struct cpu_inner *inner = job->inner;
	const float *x[COMPUTE_BATCH];
	const struct fixed_block *fixed[COMPUTE_BATCH];
	float *gate[COMPUTE_BATCH], *up[COMPUTE_BATCH];
	struct cpu_dot dot = { .n_rows = n_rows, .x = x, .fixed = fixed };

	for (uint32_t c = 0; c < group->n; c++) {
		uint32_t slot = job->order[group->first + c];

		x[c] = job->x->x + slot / job->top_k * job->x->stride;
		fixed[c] = job->x->fixed + slot / job->top_k * job->x->blocks;
		gate[c] = inner->gate.x + slot * inner->gate.stride + first;
		up[c] = inner->up + slot * inner->gate.stride + first;
	}
	dot.y = gate;
	dot.next = expert_row(job, group, ROLE_UP, first);
	expert_rows(job, group, ROLE_GATE, first, &dot, thread);
	dot.y = up;
	dot.next = NULL;
	expert_rows(job, group, ROLE_UP, first, &dot, thread);
	for (uint32_t c = 0; c < group->n; c++)
		activate(job, job->order[group->first + c], first, n_rows);
}

/* Elements first .. of every token: the sum over its experts, in the order they were chosen. */
static void
add_experts(const struct cpu_experts_job *job, uint32_t first, uint32_t n)
{
	uint64_t stride = job->inner->down_stride;

	for (uint32_t token = 0; token < job->n_tokens; token++)
		for (uint32_t i = first; i < first + n; i++) {
			float sum = 0;

			for (uint32_t k = 0; k < job->top_k; k++) {
				uint64_t slot = token * job->top_k + k;

				sum += job->shares[slot] * job->inner->down[slot * stride + i];
			}
			job->out[token * job->out_stride + i] += sum;
		}
}

/* Some rows of all groups' down. */
static void
down_part(void *arg, uint32_t part, uint32_t thread)
{
	const struct cpu_experts_job *job = arg;
	const struct cpu_inner *inner = job->inner;
	uint32_t first = part * job->rows_a_part;
	const float *x[COMPUTE_BATCH];
	const struct fixed_block *fixed[COMPUTE_BATCH];
	float *y[COMPUTE_BATCH];
	struct cpu_dot dot = { .x = x, .fixed = fixed, .y = y };

	dot.n_rows = rows_from(first, job->rows_a_part, job->model->hidden);
	for (uint32_t g = 0; g < job->n_groups; g++) {
		const struct cpu_group *group = &job->groups[g];

		for (uint32_t c = 0; c < group->n; c++) {
			uint32_t slot = job->order[group->first + c];

			x[c] = inner->gate.x + slot * inner->gate.stride;
			fixed[c] = inner->gate.fixed + slot * inner->gate.blocks;
			y[c] = inner->down + slot * inner->down_stride + first;
		}
		dot.next =
		    g + 1 < job->n_groups ? expert_row(job, group + 1, ROLE_DOWN, first) : NULL;
		expert_rows(job, group, ROLE_DOWN, first, &dot, thread);
	}
	add_experts(job, first, dot.n_rows);
}

void
cpu_experts_run(struct cpu_experts_job *job)
{
	const struct model *model = job->model;
	const struct experts *role = model->layers[job->layer].role;
	uint64_t slots = (uint64_t)job->n_tokens * job->top_k, work;

	assert(job->n_groups > 0);
	work = 2 * role[ROLE_GATE].bytes / role[ROLE_GATE].rows * slots / job->n_groups;
	job->rows_a_part =
	    cpu_rows_a_part(job->crew, (uint64_t)model->expert_width * job->n_groups, work);
	if (job->rows_a_part > model->expert_width)
		job->rows_a_part = model->expert_width;
	job->parts_an_expert = (model->expert_width - 1) / job->rows_a_part + 1;
	cpu_pool_run(job->crew->pool, gate_part, job, job->n_groups * job->parts_an_expert);

	work = role[ROLE_DOWN].bytes / role[ROLE_DOWN].rows * slots;
	job->rows_a_part = cpu_rows_a_part(job->crew, model->hidden, work);
	cpu_pool_run(job->crew->pool, down_part, job, (model->hidden - 1) / job->rows_a_part + 1);
}
