/* The router: which experts each token chooses, and the tokens by expert. */
#include <math.h>

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
	size_t first = (size_t)compute->layer * model->n_experts;
	const struct expert_place *places = compute->config.places + first;
	uint64_t *used = compute->used + first;
	uint32_t n_slots = compute->n * model->top_k, at = 0;

	for (uint32_t e = 0; e < model->n_experts; e++)
		compute->groups[e] = (struct cpu_group){ .expert = e, .place = places + e };
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
	struct cpu_product router = { &model->layers[compute->layer].router, compute->n,
				      &compute->normed, compute->routed, model->n_experts };

	cpu_multiply(compute, &router, 1);
	cpu_pool_run(compute->crew.pool, choose_part, compute, compute->n);
	group_slots(compute);
}
