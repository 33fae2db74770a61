/* gpu: decoding beside the machine's limits, all measured in one run: tokens/s at each budget of
 * device memory and each context, the bytes a token touches by place and the time they take at
 * least, a worker's death, the CPU device alone.
 *
 *   gpu --model FILE [--skewed FILE] [--only decode,long,budgets,skewed,death,cpu]
 *       [--budgets 16384,8192,4096] [--contexts 128,4096,32768] [--tokens N] [--runs N]
 *       [--deaths N] [--device cuda[:N]|cpu] [--up=--pages=thp]
 *
 * A table as it goes; BUILD/bench-gpu.json and .svg are written again after each row, so that a run
 * that is cut off keeps what it has.  The models are make_model's: random weights, and a context is
 * made by bench_kv.h, so that it need not be computed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/options.h"
#include "tests/bench_parts.h"
#include "tests/bench_words.h"
#include "tests/stack_run.h"

enum part { DECODE, LONG, BUDGETS, SKEWED, DEATH, CPU };
static const char *const part_names[] = { "decode", "long", "budgets", "skewed",
					  "death",  "cpu",  NULL };

static bool
wants(const struct bench_parts *bench, enum part part)
{
	return bench->parts & 1u << part;
}

/* What has floors comes first. */
static void
bench_all(struct bench_parts *bench)
{
	bench_machine_measure(&bench->machine, bench->opened, &bench->figures);
	bench_parts_save(bench);
	bench_rows_head();
	if (wants(bench, DECODE))
		bench_parts_resident(bench, bench->contexts[0], 450, 1000);
	for (uint32_t i = 1; i < bench->n_contexts && wants(bench, LONG); i++)
		bench_parts_resident(bench, bench->contexts[i],
				     bench->contexts[i] == 32768 ? 350 : 0, 800);
	if (wants(bench, DEATH))
		bench_parts_death(bench);
	for (uint32_t k = 0; k < bench->n_contexts && wants(bench, BUDGETS); k++)
		for (uint32_t i = 0; i < bench->n_budgets; i++)
			bench_parts_budget(bench, bench->budgets[i], bench->contexts[k]);
	if (wants(bench, CPU))
		bench_parts_cpu(bench);
	if (wants(bench, SKEWED))
		bench_parts_skewed(bench);
	printf("\nas JSON: %s/bench-gpu.json, the picture: bench-gpu.svg beside it\n", stack_build);
}

/* -- the command line -- */

static int
read_options(int argc, char **argv, struct bench_parts *bench, struct error *err)
{
	const char *only = "decode,long,budgets,skewed,death,cpu";
	const char *budgets = "16384,8192,4096", *contexts = "128,4096,32768";
	const struct option_def defs[] = {
		{ .name = "--model", .kind = OPTION_TEXT, .to = &bench->model },
		{ .name = "--skewed", .kind = OPTION_TEXT, .to = &bench->skewed },
		{ .name = "--device", .kind = OPTION_TEXT, .to = &bench->device },
		{ .name = "--up", .kind = OPTION_TEXT, .to = &bench->more },
		{ .name = "--only", .kind = OPTION_TEXT, .to = &only },
		{ .name = "--budgets", .kind = OPTION_TEXT, .to = &budgets },
		{ .name = "--contexts", .kind = OPTION_TEXT, .to = &contexts },
		{ .name = "--tokens",
		  .kind = OPTION_U64,
		  .to = &bench->tokens,
		  .min = 16,
		  .max = 4096 },
		{ .name = "--runs", .kind = OPTION_U64, .to = &bench->runs, .min = 1, .max = 16 },
		{ .name = "--deaths",
		  .kind = OPTION_U64,
		  .to = &bench->deaths,
		  .min = 1,
		  .max = BENCH_MAX_DEATHS },
	};
	uint32_t n_words;
	int rc =
	    options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), NULL, 0, &n_words, err);

	if (rc == 0 && !bench->model)
		rc = error_set(err, -EINVAL, "--model: want a GGUF file of make_model");
	if (rc == 0)
		rc = bench_words_bits("--only", only, part_names, &bench->parts, err);
	if (rc == 0)
		rc = bench_words_numbers("--budgets", budgets, bench->budgets, BENCH_MAX_LIST,
					 &bench->n_budgets, err);
	if (rc == 0)
		rc = bench_words_numbers("--contexts", contexts, bench->contexts, BENCH_MAX_LIST,
					 &bench->n_contexts, err);
	return rc;
}

/* Before anything is started.  The part `cpu` alone does without. */
static int
open_device(struct bench_parts *bench, struct error *err)
{
	struct error missing;
	int rc;

	if (bench->parts == 1u << CPU)
		return 0;
	rc = device_open(&bench->opened, bench->device, &missing);
	if (rc == 0)
		return 0;
	return error_set(
	    err, rc, "%.300s; --only cpu measures the CPU device, --device cpu every part on it",
	    missing.text);
}

static void
leave(void)
{
	stack_teardown(NULL);
}

int
main(int argc, char **argv)
{
	static struct bench_parts bench = {
		.device = "cuda", .tokens = 128, .runs = 3, .deaths = 20
	};
	struct error err;
	int rc;

	log_open("gpu");
	setvbuf(stdout, NULL, _IOLBF, 0); /* a run that is cut off has told what it had */
	rc = read_options(argc, argv, &bench, &err);
	if (rc < 0) {
		log_error("%s", err.text);
		return EXIT_INPUT;
	}
	if (open_device(&bench, &err) < 0) {
		log_error("%s", err.text);
		return EXIT_SYSTEM;
	}
	if (stack_setup(NULL) != 0) {
		log_error("wants to be run in the source folder, from BUILD/bin");
		return EXIT_INPUT;
	}
	atexit(leave);
	figures_open(&bench.figures);
	bench_all(&bench);
	device_close(bench.opened);
	return 0;
}
