/* cpu_forward [--json FILE] MODEL [THREADS ...]: tokens a second of the CPU device, and for the
 * experts alone (random ones of each layer, as one token chooses them) the bytes a second beside
 * what as many threads read of the same memory, by turns.  The model should be larger than any
 * cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "tests/bench_figures.h"
#include "tests/bench_ram.h"
#include "tests/bench_traffic.h"
#include "tests/experts_alone.h"
#include "tests/golden.h"
#include "tests/random_rows.h"
#include "worker/cpu_kernels.h"

#define PROMPT 64u
#define DECODED 16u
#define CONTEXT (PROMPT + DECODED)
#define ROUNDS 5u
#define TOKENS 16u /* of a round */
#define MAX_RUNS 8u
#define RAM_RUNS 3 /* of bench_ram_rate */

struct bench {
	struct golden_model golden;
	struct figures figures;
	uint32_t threads;
};

static _Noreturn void
die(const struct error *err)
{
	log_error("%s", err->text);
	exit(EXIT_SYSTEM);
}

static void
tell(struct bench *bench, const char *what, double value, const char *unit)
{
	char name[64];

	snprintf(name, sizeof(name), "%u threads: %s", bench->threads, what);
	if (strcmp(unit, "of RAM") == 0)
		figures_add_aim(&bench->figures, name, value, unit, 0.5, 0.8);
	else
		figures_add(&bench->figures, name, value, unit, FIGURE_FREE, 0);
}

/* Seconds for positions from .. to - 1, `step` a call. */
static double
time_tokens(struct compute *compute, const uint32_t *ids, uint32_t from, uint32_t to, uint32_t step,
	    const struct compute_want *want)
{
	uint64_t start = clock_ns();
	struct compute_result result;
	struct error err;

	for (uint32_t at = from; at < to; at += step)
		if (compute_cpu.forward(compute, ids + at, step, at, want, &result, &err) < 0)
			die(&err);
	return (double)(clock_ns() - start) / NS_PER_SECOND;
}

static void
bench_tokens(struct bench *bench)
{
	const struct golden_model *golden = &bench->golden;
	struct compute_config config = { .model = &golden->model,
					 .arena = golden->bytes,
					 .trunk = golden->bytes,
					 .context = CONTEXT,
					 .threads = bench->threads,
					 .places = golden->places };
	const struct compute_want greatest = { .logits = false };
	uint32_t ids[CONTEXT];
	struct compute *compute;
	struct error err = { "no memory" };

	config.kv = malloc(compute_cpu.kv_bytes(config.model, CONTEXT));
	if (!config.kv || compute_cpu.open(&compute, &config, &err) < 0)
		die(&err);
	for (uint32_t i = 0; i < CONTEXT; i++)
		ids[i] = i * 7919 % golden->model.vocabulary;
	tell(bench, "a prompt", PROMPT / time_tokens(compute, ids, 0, PROMPT, PROMPT, NULL),
	     "tokens/s");
	tell(bench, "decode", DECODED / time_tokens(compute, ids, PROMPT, CONTEXT, 1, &greatest),
	     "tokens/s");
	compute_cpu.close(compute);
	free(config.kv);
}

/* Seconds that the process's threads ran. */
static double
seconds_run(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / NS_PER_SECOND;
}

/* Seconds of one token's experts: top_k different ones of each layer. */
static double
time_experts(const struct golden_model *golden, struct experts_alone *alone, const float *x,
	     float *out)
{
	const struct model *model = &golden->model;
	const struct expert_place *places[64];
	float weights[64];
	uint64_t ns = 0;

	for (uint32_t layer = 0; layer < model->n_layers; layer++) {
		uint32_t first = random_u32() % model->n_experts;
		uint64_t start;

		for (uint32_t i = 0; i < model->top_k; i++) {
			uint32_t expert = (first + i * 5) % model->n_experts;

			places[i] = golden->places + (size_t)layer * model->n_experts + expert;
			weights[i] = 1;
		}
		start = clock_ns();
		experts_alone_run(alone, layer, x, places, weights, model->top_k, out);
		ns += clock_ns() - start;
	}
	return (double)ns / NS_PER_SECOND;
}

static void
bench_experts(struct bench *bench)
{
	const struct golden_model *golden = &bench->golden;
	double bytes = bench_expert_bytes(&golden->model), scale = bench->threads / 1e9;
	double ram[ROUNDS], rates[ROUNDS * TOKENS], ram_run[ROUNDS], rates_run[ROUNDS];
	float *x = calloc(golden->model.hidden, sizeof(*x));
	float *out = calloc(golden->model.hidden, sizeof(*out));
	const uint8_t *whole_lines = golden->bytes + 64 - (uintptr_t)golden->bytes % 64;
	uint64_t n_bytes = (golden->n_bytes - 64) >> 20 << 20; /* as it is read */
	struct experts_alone *alone;
	struct error err = { "no memory" };

	if (!x || !out || experts_alone_open(&alone, &golden->model, bench->threads, &err) < 0)
		die(&err);
	for (uint32_t i = 0; i < golden->model.hidden; i++)
		x[i] = random_float();
	for (uint32_t i = 0; i < ROUNDS; i++) {
		double begin = seconds_run(), middle;

		ram[i] = bench_ram_rate(whole_lines, n_bytes, bench->threads);
		middle = seconds_run();
		for (uint32_t k = 0; k < TOKENS; k++)
			rates[i * TOKENS + k] = bytes / time_experts(golden, alone, x, out) / 1e9;
		ram_run[i] = scale * RAM_RUNS * (double)n_bytes / (middle - begin);
		rates_run[i] = scale * TOKENS * bytes / (seconds_run() - middle);
	}
	tell(bench, "experts alone", figures_median(rates, ROUNDS * TOKENS), "GB/s");
	tell(bench, "reads of RAM", figures_median(ram, ROUNDS), "GB/s");
	tell(bench, "experts alone / reads", rates[ROUNDS * TOKENS / 2] / ram[ROUNDS / 2],
	     "of RAM");
	tell(bench, "experts alone, while running", figures_median(rates_run, ROUNDS), "GB/s");
	tell(bench, "reads of RAM, while running", figures_median(ram_run, ROUNDS), "GB/s");
	tell(bench, "experts alone / reads, while running",
	     rates_run[ROUNDS / 2] / ram_run[ROUNDS / 2], "of RAM");
	experts_alone_close(alone);
	free(x);
	free(out);
}

int
main(int argc, char **argv)
{
	struct bench bench;
	const char *words[1 + MAX_RUNS], *json = NULL;
	const struct option_def defs[] = { { .name = "--json", .kind = OPTION_TEXT, .to = &json } };
	uint32_t n_words;
	struct error err;

	log_open("cpu_forward");
	if (options_parse(argc, argv, defs, 1, words, 1 + MAX_RUNS, &n_words, &err) < 0 ||
	    n_words < 1) {
		log_error("cpu_forward [--json FILE] MODEL [THREADS ...]");
		return EXIT_INPUT;
	}
	golden_model_open(&bench.golden, words[0]);
	figures_open(&bench.figures);
	for (uint32_t i = 1; i < n_words || i == 1; i++) {
		bench.threads = n_words > 1 ? (uint32_t)strtoul(words[i], NULL, 10) : 1;
		bench_experts(&bench);
		bench_tokens(&bench);
	}
	golden_model_close(&bench.golden);
	if (json)
		figures_write(&bench.figures, words[0], cpu_kernels_best()->name, json);
	return 0;
}
