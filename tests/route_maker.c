/* Made-up routers of route_trace.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/route_trace.h"

#define MAX_CHOICES 1024u

/* 0 < x < 1 */
static double
random_unit(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return ((double)(*seed >> 11) + 0.5) / 9007199254740992.0;
}

static uint32_t
random_below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(random_unit(seed) * n);
}

static void
shuffle(uint16_t *ranks, uint32_t n, uint64_t *seed)
{
	for (uint32_t i = 0; i < n; i++)
		ranks[i] = (uint16_t)i;
	for (uint32_t i = n; i > 1; i--) {
		uint32_t j = random_below(seed, i);
		uint16_t rank = ranks[i - 1];

		ranks[i - 1] = ranks[j];
		ranks[j] = rank;
	}
}

/* top_k different ones, an expert's chance by its rank's weight: the largest of log(weight) +
 * Gumbel noise are such a draw.  Those of `before` may be kept first. */
static void
choose(const struct route_trace *trace, const struct route_maker *maker, const uint16_t *ranks,
       const uint16_t *before, uint16_t *ret, uint64_t *seed)
{
	double keys[MAX_CHOICES];
	uint32_t n = 0;

	for (uint32_t i = 0; i < trace->experts; i++)
		keys[i] = -maker->skew * log(1.0 + ranks[i]) - log(-log(random_unit(seed)));
	for (uint32_t i = 0; before && i < trace->top_k; i++) {
		if (random_unit(seed) < maker->stays) {
			ret[n++] = before[i];
			keys[before[i]] = -INFINITY;
		}
	}
	while (n < trace->top_k) {
		uint32_t best = 0;

		for (uint32_t i = 1; i < trace->experts; i++)
			best = keys[i] > keys[best] ? i : best;
		keys[best] = -INFINITY;
		ret[n++] = (uint16_t)best;
	}
}

/* So many exchanges of ranks a token that each has changed within maker->drift of them. */
static void
drift(uint16_t *ranks, uint32_t experts, const struct route_maker *maker, uint64_t *seed)
{
	double exchanges = maker->drift ? (double)experts / 2 / maker->drift : 0;

	for (uint32_t n = 0; n < exchanges; n++) {
		uint32_t i = random_below(seed, experts), j = random_below(seed, experts);
		uint16_t rank = ranks[i];

		if (random_unit(seed) > exchanges - n)
			return;
		ranks[i] = ranks[j];
		ranks[j] = rank;
	}
}

void
route_trace_make(struct route_trace *trace, const struct route_maker *maker)
{
	uint32_t topics = maker->topics ? maker->topics : 1;
	uint32_t experts = trace->experts;
	uint64_t seed = maker->seed;
	uint16_t *ranks = calloc((size_t)topics * trace->layers * experts, sizeof(*ranks));

	if (!ranks || experts > MAX_CHOICES)
		abort();
	for (uint32_t i = 0; i < topics * trace->layers; i++)
		shuffle(ranks + (size_t)i * experts, experts, &seed);
	for (uint32_t token = 0; token < trace->tokens; token++) {
		uint32_t topic = maker->topic_tokens ? token / maker->topic_tokens % topics : 0;

		for (uint32_t layer = 0; layer < trace->layers; layer++) {
			uint16_t *own = ranks + (size_t)(topic * trace->layers + layer) * experts;

			choose(trace, maker, own,
			       token && maker->stays > 0 ? route_trace_at(trace, token - 1, layer)
							 : NULL,
			       route_trace_at(trace, token, layer), &seed);
			drift(own, experts, maker, &seed);
		}
	}
	free(ranks);
}
