#include "tests/slot_sim.h"

#include <stdlib.h>
#include <string.h>

#include "worker/slot_policy.h"

struct sim {
	const struct route_trace *trace;
	const struct sim_policy *config;
	struct slot_plan slots;
	struct slot_policy policy;
	uint64_t *counts; /* (layers, experts) since the last decision */
	bool *allowed;    /* (layers) */
	struct slot_fill moves[SLOT_POLICY_MAX];
	uint32_t n_moves; /* on their way */
	double credit;    /* moves that the cap allows by now */
	uint64_t uses, hits, moved;
};

static void
sim_open(struct sim *sim, const struct route_trace *trace, const struct sim_policy *config,
	 uint32_t slots)
{
	size_t all = (size_t)trace->layers * trace->experts;

	*sim = (struct sim){ .trace = trace, .config = config };
	sim->policy = (struct slot_policy){ .layers = trace->layers,
					    .experts = trace->experts,
					    .half_life = config->half_life,
					    .margin = config->margin };
	sim->policy.heat = calloc(all, sizeof(*sim->policy.heat));
	sim->counts = calloc(all, sizeof(*sim->counts));
	sim->allowed = malloc(trace->layers * sizeof(*sim->allowed));
	if (!sim->policy.heat || !sim->counts || !sim->allowed ||
	    slot_plan_open(&sim->slots, slots, trace->layers, trace->experts) < 0)
		abort();
	memset(sim->allowed, 1, trace->layers * sizeof(*sim->allowed));
}

static void
sim_close(struct sim *sim)
{
	slot_plan_close(&sim->slots);
	free(sim->policy.heat);
	free(sim->counts);
	free(sim->allowed);
}

static uint32_t
which_at(const struct sim *sim, uint32_t token, uint32_t layer, uint32_t i)
{
	return layer * sim->trace->experts + route_trace_at(sim->trace, token, layer)[i];
}

static void
sim_profile(struct sim *sim, uint32_t tokens)
{
	const struct route_trace *trace = sim->trace;

	for (uint32_t token = 0; token < tokens; token++)
		for (uint32_t layer = 0; layer < trace->layers; layer++)
			for (uint32_t i = 0; i < trace->top_k; i++)
				sim->counts[which_at(sim, token, layer, i)]++;
}

/* The next slot goes to the hottest one without, of a layer that has not got its share. */
static void
sim_fill(struct sim *sim)
{
	uint32_t share = sim->slots.n / sim->trace->layers;

	for (uint32_t slot = 0; slot < sim->slots.n; slot++) {
		uint32_t best = SLOT_NONE, experts = sim->trace->experts;

		for (uint32_t i = 0; i < sim->trace->layers * experts; i++)
			if (sim->slots.slot_of[i] == SLOT_NONE &&
			    !(sim->config->shares && sim->slots.in_layer[i / experts] >= share) &&
			    (best == SLOT_NONE || sim->counts[i] > sim->counts[best]))
				best = i;
		if (best == SLOT_NONE)
			return;
		slot_plan_hold(&sim->slots,
			       &(struct slot_fill){ best / experts, best % experts, slot });
	}
}

static void
sim_begin(struct sim *sim, uint32_t tokens)
{
	size_t all = (size_t)sim->trace->layers * sim->trace->experts;

	if (sim->config->kind == SIM_IN_ORDER || sim->config->cold) {
		while ((sim->n_moves =
			    slot_plan_next(&sim->slots, sim->allowed, sim->moves, SLOT_POLICY_MAX)))
			while (sim->n_moves)
				slot_plan_hold(&sim->slots, &sim->moves[--sim->n_moves]);
		return;
	}
	sim_profile(sim, tokens);
	sim_fill(sim);
	if (sim->config->kind == SIM_LFU)
		slot_policy_begin(&sim->policy, sim->counts, tokens);
	memset(sim->counts, 0, all * sizeof(*sim->counts));
}

static void
sim_token(struct sim *sim, uint32_t token)
{
	for (uint32_t layer = 0; layer < sim->trace->layers; layer++)
		for (uint32_t i = 0; i < sim->trace->top_k; i++) {
			uint32_t which = which_at(sim, token, layer, i);

			sim->counts[which]++;
			sim->uses++;
			sim->hits += sim->slots.slot_of[which] != SLOT_NONE;
			if (sim->config->kind == SIM_LRU)
				sim->policy.heat[which] = (float)token;
		}
}

static uint32_t
sim_find(struct sim *sim, uint32_t max)
{
	uint32_t n = 0, layers = sim->trace->layers;

	if (!sim->config->shares)
		return slot_policy_next(&sim->policy, &sim->slots, sim->allowed, sim->moves, max);
	for (uint32_t layer = 0; layer < layers; layer++) {
		memset(sim->allowed, 0, layers * sizeof(*sim->allowed));
		sim->allowed[layer] = true;
		n += slot_policy_next(&sim->policy, &sim->slots, sim->allowed, sim->moves + n,
				      (max - n) / (layers - layer));
	}
	return n;
}

/* What was on its way is there; what is asked for now is on its way, its victims are out. */
static void
sim_decide(struct sim *sim)
{
	const struct sim_policy *config = sim->config;
	size_t all = (size_t)sim->trace->layers * sim->trace->experts;
	uint32_t max = SLOT_POLICY_MAX;

	while (sim->n_moves)
		slot_plan_hold(&sim->slots, &sim->moves[--sim->n_moves]);
	if (config->kind == SIM_LFU)
		slot_policy_age(&sim->policy, sim->counts, config->every);
	memset(sim->counts, 0, all * sizeof(*sim->counts));
	if (config->cap > 0) {
		sim->credit += config->cap * config->every;
		sim->credit = sim->credit < max ? sim->credit : max;
		max = (uint32_t)sim->credit;
	}
	sim->n_moves = sim_find(sim, max);
	sim->credit -= sim->n_moves;
	sim->moved += sim->n_moves;
	for (uint32_t i = 0; i < sim->n_moves; i++)
		slot_plan_free(&sim->slots, sim->moves[i].slot);
}

struct sim_result
slot_sim(const struct route_trace *trace, const struct sim_policy *config, uint32_t slots)
{
	uint32_t first = trace->tokens / 4;
	double tokens = trace->tokens - first;
	struct sim_result result;
	struct sim sim;

	sim_open(&sim, trace, config, slots);
	sim_begin(&sim, first);
	for (uint32_t token = first; token < trace->tokens; token++) {
		sim_token(&sim, token);
		if (config->kind >= SIM_LRU && (token + 1 - first) % config->every == 0)
			sim_decide(&sim);
	}
	result = (struct sim_result){ .hits = (double)sim.hits / (double)sim.uses,
				      .misses = (double)(sim.uses - sim.hits) / tokens,
				      .moves = (double)sim.moved / tokens,
				      .uses = (double)sim.uses / tokens };
	sim_close(&sim);
	return result;
}
