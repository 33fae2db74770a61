/* Time of a decode step and of a prompt on a GPU, for the shape of Qwen3-30B-A3B with random
 * weights (Q4_K and Q6_K as Q4_K_M files mix them).  Nothing is loaded: what is timed is the
 * worker's arithmetic and the memory it reads, beside what the bytes allow at the bandwidths
 * measured in the same run.  A context is random keys and values.
 *
 *   gpu_decode [--contexts 100,8000] [--layers N] [--steps N] [--percent N] [--cpu-share auto|0..1]
 *              [--threads N] slots|place
 *
 * slots: every expert in device memory (17 GiB); place: in registered host memory, read in place,
 * but for N percent of them.  The CPU's share of these changes no bit: the checksum of the logits
 * says so.  The time of a step is the median: of a share that follows, the first steps do not show.
 * Greedy tokens are timed twice: computed when they are asked for, and begun behind the one before.
 * Few kernels for a profiler: --steps 1 --contexts 100 --layers 4. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/clock.h"
#include "common/options.h"
#include "tests/bench_figures.h"
#include "tests/bench_kv.h"
#include "tests/bench_limits.h"
#include "tests/bench_model.h"
#include "tests/bench_probe.h"
#include "tests/bench_ram.h"
#include "tests/bench_traffic.h"
#include "tests/bench_words.h"
#include "tests/gpu.h"
#include "worker/share_control.h"

#define STEPS_MAX 1000u
#define MAX_CONTEXTS 8u
#define GREEDY_MAX (COMPUTE_BATCH - 2) /* the model has room for a batch behind the longest */

struct words {
	const char *where;
	bool slots;
	uint32_t contexts[MAX_CONTEXTS], n_contexts, longest;
	uint64_t layers, steps, percent, threads;
	float share;
};

static struct device *device;
static struct error err;
static uint64_t seed = 3;

static void
must(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%s\n", err.text);
	exit(EXIT_SYSTEM);
}

/* Median over `steps` forwards of n tokens from pos on, in ms. */
static double
time_forward(struct compute *compute, const struct model *m, uint32_t n, uint32_t pos,
	     uint32_t steps, const struct compute_want *want, struct compute_result *ret)
{
	static double ms[STEPS_MAX];
	uint32_t ids[COMPUTE_BATCH];
	uint64_t begin;

	for (uint32_t s = 0; s < steps; s++) {
		for (uint32_t i = 0; i < n; i++)
			ids[i] =
			    (uint32_t)((gpu_random(&seed) + 1) * 0.499f * (float)m->vocabulary);
		begin = clock_ns();
		must(compute_cuda.forward(compute, ids, n, pos, want, ret, &err));
		ms[s] = (double)(clock_ns() - begin) / 1e6;
	}
	return figures_median(ms, steps);
}

/* Of greedy tokens from pos on, but for the first: a token's time in ms, on an average.  *ahead:
 * whether the next one may begin early, and whether any did. */
static double
time_greedy(struct compute *compute, uint32_t n, uint32_t pos, bool *ahead)
{
	const struct compute_want want = { .ahead = *ahead };
	struct compute_result result = { .greatest = 1 };
	uint64_t begin = 0;

	*ahead = false;

	for (uint32_t i = 0; i <= n; i++) {
		uint32_t id = result.greatest;

		if (i == 1)
			begin = clock_ns();
		must(compute_cuda.forward(compute, &id, 1, pos + i, &want, &result, &err));
		*ahead = *ahead || result.ahead;
	}
	return (double)(clock_ns() - begin) / 1e6 / n;
}

static void
tell_greedy(struct compute *compute, uint32_t steps, uint32_t pos)
{
	uint32_t n = steps < GREEDY_MAX ? steps : GREEDY_MAX;
	bool early = true, none = false;
	double ahead = time_greedy(compute, n, pos, &early);

	printf("greedy tokens at %-6u %8.3f ms each when asked for", pos,
	       time_greedy(compute, n, pos, &none));
	if (early)
		printf(", %8.3f ms each begun ahead", ahead);
	printf("\n");
}

static int
read_words(int argc, char **argv, struct words *ret)
{
	static const char *const wheres[] = { "slots", "place", NULL };
	const char *contexts = "100,8000", *share = "0";
	const struct option_def defs[] = {
		{ .name = "--contexts", .kind = OPTION_TEXT, .to = &contexts },
		{ .name = "--layers", .kind = OPTION_U64, .to = &ret->layers, .min = 1, .max = 48 },
		{ .name = "--steps",
		  .kind = OPTION_U64,
		  .to = &ret->steps,
		  .min = 1,
		  .max = STEPS_MAX },
		{ .name = "--percent", .kind = OPTION_U64, .to = &ret->percent, .max = 99 },
		{ .name = "--cpu-share", .kind = OPTION_TEXT, .to = &share },
		{ .name = "--threads",
		  .kind = OPTION_U64,
		  .to = &ret->threads,
		  .min = 1,
		  .max = MAX_THREADS },
	};
	uint32_t n, bits = 0;
	int rc = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), &ret->where, 1, &n,
			       &err);

	if (rc == 0)
		rc = share_control_parse(share, &ret->share, &err);
	if (rc == 0)
		rc = bench_words_bits("where", n == 1 ? ret->where : "", wheres, &bits, &err);
	if (rc == 0)
		rc = bench_words_numbers("--contexts", contexts, ret->contexts, MAX_CONTEXTS,
					 &ret->n_contexts, &err);
	if (rc < 0)
		return rc;
	ret->slots = bits & 1;
	for (uint32_t i = 0; i < ret->n_contexts; i++)
		if (ret->contexts[i] > ret->longest)
			ret->longest = ret->contexts[i];
	return 0;
}

static void
place_experts(const struct model *m, const struct words *words, struct compute_config *config)
{
	if (words->slots) {
		bench_model_in_slots(device, m, config->places);
		return;
	}
	config->arena = bench_model_in_host(device, m, (uint32_t)words->percent, config->places);
	config->arena_bytes = BENCH_MODEL_HOST_BYTES;
}

static void
measure_limits(struct bench_rates *ret)
{
	void *host = bench_ram_map(BENCH_RAM_BYTES);
	double copy, place;
	char name[128];

	if (!host)
		abort();
	must(bench_limits_open(device_describe(device)->ordinal, name, &err));
	must(bench_limits_copy(&copy, &err));
	must(bench_limits_in_place(host, BENCH_RAM_BYTES, &place, &err));
	bench_ram_unmap(host, BENCH_RAM_BYTES);
	printf("%s: device memory copied %.0f GB/s, host memory read in place %.1f GB/s\n", name,
	       copy, place);
	*ret = (struct bench_rates){ { copy, copy, place, copy } };
}

static void
tell_share(const struct compute *compute)
{
	struct compute_share share;

	compute_cuda.share(compute, &share);
	if (share.threads > 0)
		printf("CPU share %.3f, %" PRIu64 " experts by %" PRIu32 " threads\n",
		       (double)share.now, share.experts, share.threads);
}

static void
tell_logits(const struct compute_result *result, const struct model *m)
{
	if (!result->logits)
		abort();
	printf("first logits %g %g, checksum of all %016" PRIx64 "\n", result->logits[0],
	       result->logits[1],
	       (uint64_t)XXH3_64bits(result->logits, m->vocabulary * sizeof(float)));
}

static void
time_contexts(struct compute *compute, const struct model *m, const struct words *words,
	      const struct bench_rates *rates)
{
	double position = (double)compute_cuda.kv_bytes(m, m->context) / m->context;
	const struct compute_want all = { .logits = true };
	struct compute_result result = { .logits = NULL };

	for (uint32_t i = 0; i < words->n_contexts; i++) {
		uint32_t context = words->contexts[i];
		double ms =
		    time_forward(compute, m, 1, context, (uint32_t)words->steps, &all, &result);
		struct bench_traffic traffic;
		double least;

		bench_traffic_of(&traffic, m, words->slots ? 1 : (double)words->percent / 100,
				 position, context);
		least = bench_traffic_seconds(&traffic, rates) * 1e3;
		printf(
		    "one token, graph, at %-6u %8.3f ms  %7.1f tokens/s; %.0f MB take %.3f ms at "
		    "least: ratio %.3f\n",
		    context, ms, 1e3 / ms, bench_traffic_bytes(&traffic) / 1e6, least, least / ms);
		tell_logits(&result, m);
		tell_greedy(compute, (uint32_t)words->steps, context);
		tell_share(compute);
		bench_probe_print();
	}
}

static void
time_all(struct compute *compute, const struct model *m, const struct words *words,
	 const struct bench_rates *rates)
{
	uint32_t steps = (uint32_t)words->steps;

	printf("one token, launches, at %-6u %8.3f ms\n", words->contexts[0],
	       time_forward(compute, m, 1, words->contexts[0], steps, NULL, NULL));
	time_contexts(compute, m, words, rates);
	printf("64 tokens at %-6u %8.3f ms\n", words->longest,
	       time_forward(compute, m, COMPUTE_BATCH, words->longest, steps < 5 ? steps : 5, NULL,
			    NULL));
}

int
main(int argc, char **argv)
{
	struct words words = { .layers = 48, .steps = 50, .threads = 16 };
	struct compute_config config = { 0 };
	struct device_memory trunk, kv;
	struct bench_rates rates;
	struct compute *compute;
	uint64_t begin, bytes;
	struct model m;

	if (read_words(argc, argv, &words) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return EXIT_INPUT;
	}
	device = gpu_open();
	if (!device)
		return 77;
	bytes = bench_model_make(&m, (uint32_t)words.layers, words.longest + COMPUTE_BATCH);
	must(device_alloc(device, bytes, &trunk, &err));
	must(device_alloc(device, compute_cuda.kv_bytes(&m, m.context), &kv, &err));
	must(bench_kv_random(device, &kv, &err));
	config.model = &m;
	config.device = device;
	config.trunk = trunk.at;
	config.kv = kv.at;
	config.context = m.context;
	config.places = calloc((size_t)m.n_layers * m.n_experts, sizeof(*config.places));
	measure_limits(&rates);
	bench_model_fill_trunk(device, &m, trunk.at);
	place_experts(&m, &words, &config);
	config.threads = (uint32_t)words.threads;
	config.cpu_share = words.share;
	begin = clock_ns();
	must(compute_cuda.open(&compute, &config, &err));
	printf("experts: %s; compute open %.1f ms\n", words.where,
	       (double)(clock_ns() - begin) / 1e6);
	time_all(compute, &m, &words, &rates);
	compute_cuda.close(compute);
	device_close(device);
	return 0;
}
