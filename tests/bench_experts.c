#include "tests/bench_experts.h"

#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "tests/bench_figures.h"
#include "tests/bench_traffic.h"
#include "worker/cpu_compute.h"

#define PASSES 7u
#define CONTEXT 64u

static struct expert_place *
find_experts(const struct arena *arena, const struct model *model)
{
	uint64_t n = (uint64_t)model->n_layers * model->n_experts;
	struct expert_place *places = calloc(n, sizeof(*places));

	for (uint64_t i = 0; i < n && places; i++)
		for (enum role role = 0; role < N_ROLES; role++)
			places[i].role[role] =
			    arena->base +
			    arena_expert_offset(arena, model, (uint32_t)(i / model->n_experts),
						(uint32_t)(i % model->n_experts), role);
	return places;
}

/* Seconds of the experts of all layers, for the token whose row lies in `compute`: behind the first
 * pass always the same ones, more than any cache holds of a model that is worth it. */
static double
time_experts(struct compute *compute)
{
	uint64_t ns = 0, begin;

	for (compute->layer = 0; compute->layer < compute->config.model->n_layers;
	     compute->layer++) {
		cpu_route(compute);
		begin = clock_ns();
		cpu_experts(compute);
		ns += clock_ns() - begin;
	}
	return (double)ns / (double)NS_PER_SECOND;
}

/* The first pass brings the pages into this process, and is not timed. */
static int
time_passes(struct compute *compute, double *ret_seconds, struct error *err)
{
	double seconds[PASSES];
	uint32_t id = 1;
	int rc = compute_cpu.forward(compute, &id, 1, 0, NULL, NULL, err);

	if (rc < 0)
		return rc;
	time_experts(compute);
	for (uint32_t i = 0; i < PASSES; i++)
		seconds[i] = time_experts(compute);
	*ret_seconds = figures_median(seconds, PASSES);
	return 0;
}

int
bench_experts_rate(const struct arena *arena, const struct model *model, uint32_t threads,
		   double *ret_gb_s, struct error *err)
{
	uint64_t trunk = arena->slices[0].offset;
	struct compute_config config = { .model = model,
					 .arena = arena->base,
					 .trunk = arena->base + trunk,
					 .trunk_offset = trunk,
					 .context = CONTEXT,
					 .threads = threads };
	struct compute *compute = NULL;
	double seconds;
	int rc;

	config.kv = malloc(compute_cpu.kv_bytes(model, CONTEXT));
	config.places = find_experts(arena, model);
	if (!config.kv || !config.places)
		rc = error_sys(err, -ENOMEM, "timing the experts");
	else
		rc = compute_cpu.open(&compute, &config, err);
	if (rc == 0)
		rc = time_passes(compute, &seconds, err);
	if (rc == 0)
		*ret_gb_s = bench_expert_bytes(model) / seconds / 1e9;
	if (compute)
		compute_cpu.close(compute);
	free(config.places);
	free(config.kv);
	return rc;
}
