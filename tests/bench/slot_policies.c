/* Which policy keeps the right experts in slots: slot_policies [TOKENS].  Replays what the demo
 * model's router chose, and made-up routers of 48 layers, 128 experts and top-8, against slots for
 * a part of the experts.  The link carries what is read in place and what is moved: its experts a
 * token, as a share of all that a token uses, is what a policy is judged by. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/golden.h"
#include "tests/slot_sim.h"

#define MODEL "tests/data/kjv-16x1m"
#define BUDGETS 4u
/* Of a model of this shape in Q4_K and Q6_K, and what the link does. */
#define EXPERT_MB 2.87
#define LINK_MB_PER_MS 51.0

static const double budgets[BUDGETS] = { 0.10, 0.25, 0.50, 0.75 };

static const struct route_maker makers[] = {
	{ .name = "uniform", .seed = 1 },
	{ .name = "zipf 0.5", .skew = 0.5, .seed = 2 },
	{ .name = "zipf 1.0", .skew = 1.0, .seed = 3 },
	{ .name = "zipf 1.5", .skew = 1.5, .seed = 4 },
	{ .name = "zipf 0.7, a third stays", .skew = 0.7, .stays = 0.33, .seed = 5 },
	{ .name = "zipf 1.0, drifts in 1000", .skew = 1.0, .drift = 1000, .seed = 6 },
	{ .name = "zipf 1.0, drifts in 8000", .skew = 1.0, .drift = 8000, .seed = 7 },
	{ .name = "zipf 1.0, 4 topics of 200",
	  .skew = 1.0,
	  .topics = 4,
	  .topic_tokens = 200,
	  .seed = 8 },
	{ .name = "zipf 1.0, 8 topics of 50",
	  .skew = 1.0,
	  .topics = 8,
	  .topic_tokens = 50,
	  .seed = 9 },
};

#define LFU(half_life_, margin_) .kind = SIM_LFU, .half_life = (half_life_), .margin = (margin_)

static const struct sim_policy policies[] = {
	{ .name = "in order", .kind = SIM_IN_ORDER },
	{ .name = "by profile", .kind = SIM_STATIC },
	{ .name = "by profile, shares", .kind = SIM_STATIC, .shares = true },
	{ .name = "lru", .kind = SIM_LRU, .every = 1 },
	{ .name = "lru, cap 2", .kind = SIM_LRU, .every = 8, .cap = 2 },
	{ .name = "lfu 128", LFU(128, 0), .every = 8 },
	{ .name = "lfu 512", LFU(512, 0), .every = 8 },
	{ .name = "lfu 64 + 4", LFU(64, 4), .every = 8 },
	{ .name = "lfu 128 + 4", LFU(128, 4), .every = 8 },
	{ .name = "lfu 128 + 8", LFU(128, 8), .every = 8 },
	{ .name = "lfu 256 + 4", LFU(256, 4), .every = 8 },
	{ .name = "lfu 256 + 8", LFU(256, 8), .every = 8 },
	{ .name = "lfu 512 + 8", LFU(512, 8), .every = 8 },
	{ .name = "lfu 128 + 8, shares", LFU(128, 8), .every = 8, .shares = true },
	{ .name = "lfu 128 + 8, cap 4", LFU(128, 8), .every = 8, .cap = 4 },
	{ .name = "lfu 128 + 8, cap 2", LFU(128, 8), .every = 8, .cap = 2 },
	{ .name = "lfu 128 + 8, cap 4, /4", LFU(128, 8), .every = 4, .cap = 4 },
	{ .name = "lfu 128 + 8, cap 4, /16", LFU(128, 8), .every = 16, .cap = 4 },
	{ .name = "lru, no profile", .kind = SIM_LRU, .every = 1, .cold = true },
	{ .name = "lfu 128 + 4, no profile", LFU(128, 4), .every = 8, .cold = true },
	{ .name = "lfu 128 + 8, no profile", LFU(128, 8), .every = 8, .cold = true },
	{ .name = "lfu 256 + 8, no profile", LFU(256, 8), .every = 8, .cold = true },
};
#define POLICIES (sizeof(policies) / sizeof(*policies))
#define MAKERS (sizeof(makers) / sizeof(*makers))

/* Over all traces: the link's share. */
static double sums[POLICIES][BUDGETS];
static uint32_t replayed;

static void
replay(const struct route_trace *trace)
{
	uint32_t experts = trace->layers * trace->experts;

	printf("\n%s: %u tokens, %u of %u experts in %u layers\n", trace->name, trace->tokens,
	       trace->top_k, trace->experts, trace->layers);
	printf("%-26s", "hits/read/moved/link, %");
	for (uint32_t b = 0; b < BUDGETS; b++)
		printf("  | slots for %2.0f %%        ", 100 * budgets[b]);
	putchar('\n');
	for (uint32_t p = 0; p < POLICIES; p++) {
		printf("%-26s", policies[p].name);
		for (uint32_t b = 0; b < BUDGETS; b++) {
			struct sim_result r =
			    slot_sim(trace, &policies[p], (uint32_t)(budgets[b] * experts));
			double link = (r.misses + r.moves) / r.uses;

			sums[p][b] += link;
			printf("  | %5.1f %5.1f %4.1f %5.1f", 100 * r.hits, 100 * r.misses / r.uses,
			       100 * r.moves / r.uses, 100 * link);
		}
		putchar('\n');
	}
	fflush(stdout);
	replayed++;
}

static void
replay_recorded(uint32_t tokens)
{
	struct route_prompt prompts[16];
	struct golden_model model;
	struct golden golden;
	struct route_trace trace;
	uint32_t n;

	golden_model_open(&model, MODEL ".gguf");
	golden_open(&golden, MODEL ".golden.json", MODEL ".first-logits.f32",
		    model.model.vocabulary);
	golden_model_close(&model);
	n = golden.n_cases < 16 ? golden.n_cases : 16;
	for (uint32_t i = 0; i < n; i++)
		prompts[i] =
		    (struct route_prompt){ golden.cases[i].prompt, golden.cases[i].n_prompt };
	route_trace_record(&trace, MODEL ".gguf", prompts, n, tokens);
	golden_close(&golden);
	replay(&trace);
	route_trace_close(&trace);
}

static void
print_sums(void)
{
	printf("\n%-26s  the link over all of these, %%; ms a token at %.0f GB/s and %.2f MB an "
	       "expert, 384 of them\n",
	       "", LINK_MB_PER_MS, EXPERT_MB);
	for (uint32_t p = 0; p < POLICIES; p++) {
		printf("%-26s", policies[p].name);
		for (uint32_t b = 0; b < BUDGETS; b++) {
			double share = sums[p][b] / replayed;

			printf("  | %5.1f %5.1f ms", 100 * share,
			       share * 384 * EXPERT_MB / LINK_MB_PER_MS);
		}
		putchar('\n');
	}
}

int
main(int argc, char **argv)
{
	uint32_t tokens = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 4000;

	if (tokens < 64) {
		fprintf(stderr, "slot_policies: want 64 tokens at least\n");
		return EXIT_INPUT;
	}
	replay_recorded(tokens);
	for (uint32_t i = 0; i < MAKERS; i++) {
		struct route_trace trace;

		route_trace_open(&trace, makers[i].name, 48, 128, 8, tokens);
		route_trace_make(&trace, &makers[i]);
		replay(&trace);
		route_trace_close(&trace);
	}
	print_sums();
	return 0;
}
