/* gpu: decoding beside the machine's limits, all measured in one run: tokens/s at each budget of
 * device memory and each context, the bytes a token touches by place and the time they take at
 * least, a worker's death, the CPU device alone.
 *
 *   gpu --model FILE [--skewed FILE] [--only decode,long,budgets,skewed,death,cpu]
 *       [--budgets 16384,8192,4096] [--contexts 128,4096,32768] [--tokens N] [--runs N]
 *       [--deaths N] [--device cuda[:N]|cpu]
 *
 * A table as it goes; BUILD/bench-gpu.json and .svg are written again after each row, so that a run
 * that is cut off keeps what it has.  The models are make_model's: random weights, and a context is
 * made by bench_kv.h, so that it need not be computed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/options.h"
#include "proto/limits.h"
#include "tests/bench_decode.h"
#include "tests/bench_figures.h"
#include "tests/bench_machine.h"
#include "tests/bench_stack.h"
#include "tests/bench_words.h"
#include "tests/stack_run.h"

#define NAME "gpu"
#define MAX_LIST 8u
#define MAX_DEATHS 64u
#define DEATH_CONTEXT 4096u
#define SKEWED_WARM_UPS 4u
#define WHOLE_LAYERS 48u /* the shape that the floors are of */

enum part { DECODE, LONG, BUDGETS, SKEWED, DEATH, CPU };
static const char *const part_names[] = { "decode", "long", "budgets", "skewed",
					  "death",  "cpu",  NULL };

struct bench {
	const char *model, *skewed, *device;
	uint32_t parts; /* bits */
	uint32_t budgets[MAX_LIST], n_budgets;
	uint32_t contexts[MAX_LIST], n_contexts; /* the first one is the short one */
	uint64_t tokens, runs, deaths;
	struct device *opened; /* NULL: no part wants it */
	struct bench_machine machine;
	struct figures figures;
	struct bench_rows rows;
	struct bench_curve curves[MAX_LIST];
	bool whole;
};

static bool
wants(const struct bench *bench, enum part part)
{
	return bench->parts & 1u << part;
}

static void
save(const struct bench *bench)
{
	json_t *all = figures_json(&bench->figures, bench->model, bench->device);
	char path[640];

	json_object_set_new(all, "limits", bench_machine_json(&bench->machine));
	json_object_set_new(all, "rows", bench_rows_json(&bench->rows));
	json_object_set_new(all, "context",
			    json_string("keys and values are random numbers, not computed; "
					"weights are random"));
	snprintf(path, sizeof(path), "%s/bench-gpu.json", stack_build);
	if (json_dump_file(all, path, JSON_INDENT(1)) < 0)
		log_warn("%s: cannot be written", path);
	json_decref(all);
}

/* While the stack is up: the curves are of its model. */
static void
save_picture(struct bench *bench, const struct bench_decode *decode, const struct bench_row *row)
{
	double position = row->traffic.bytes[BENCH_KV] / (row->context + row->tokens / 2.0);
	char path[640];

	for (uint32_t i = 0; i < bench->n_contexts; i++)
		bench->curves[i] = (struct bench_curve){ .model = &decode->shape,
							 .rates = decode->rates,
							 .position_bytes = (uint64_t)position,
							 .context = bench->contexts[i] };
	snprintf(path, sizeof(path), "%s/bench-gpu.svg", stack_build);
	if (!bench_rows_svg(&bench->rows, bench->curves, bench->n_contexts, path))
		log_warn("%s: cannot be written", path);
}

/* A floor holds for the whole model on a GPU; of a smaller one the figure is told alone. */
static void
figure(struct bench *bench, const char *name, double value, const char *unit, double floor,
       double aim)
{
	if (bench->whole)
		figures_add_aim(&bench->figures, name, value, unit, floor, aim);
	else
		figures_add(&bench->figures, name, value, unit, FIGURE_FREE, 0);
}

static struct bench_decode
decode_of(const struct bench *bench, bool skewed)
{
	return (struct bench_decode){ .name = NAME,
				      .model = skewed ? bench->skewed : bench->model,
				      .router = skewed ? "skewed" : "even",
				      .device = bench->device,
				      .opened = bench->opened,
				      .tokens = (uint32_t)bench->tokens,
				      .runs = (uint32_t)bench->runs,
				      .warm_ups = skewed ? SKEWED_WARM_UPS : 1,
				      .rates = &bench->machine.rates };
}

/* False: the budget has no room for that context. */
static bool
measure(struct bench *bench, struct bench_decode *decode, uint32_t mib, uint32_t context,
	struct bench_row *ret)
{
	char why[256];

	if (!bench_decode_up(decode, mib, context, why)) {
		printf("%u MiB, context %u: not measured: %s\n", mib, context, why);
		return false;
	}
	bench->whole = decode->shape.n_layers == WHOLE_LAYERS && bench->machine.gpu;
	bench_decode_row(decode, mib, context, ret);
	bench_rows_add(&bench->rows, ret);
	save_picture(bench, decode, ret);
	bench_decode_down(decode);
	save(bench);
	return true;
}

/* -- parts -- */

static void
bench_resident(struct bench *bench, uint32_t context, double floor, double aim)
{
	struct bench_decode decode = decode_of(bench, false);
	struct bench_row row;
	char name[64];

	if (!measure(bench, &decode, 0, context, &row))
		return;
	snprintf(name, sizeof(name), "all resident, context %u", context);
	if (floor > 0)
		figure(bench, name, row.worker, "tokens/s", floor, aim);
	else
		figures_add(&bench->figures, name, row.worker, "tokens/s", FIGURE_FREE, 0);
	figures_add(&bench->figures, "  ratio to what the bytes allow", row.worker / row.limit, "",
		    FIGURE_FREE, 0);
	figure(bench, "  through ask / inside the worker", row.ask / row.worker, "", 0.97, 0.99);
}

static void
bench_budget(struct bench *bench, uint32_t mib, uint32_t context)
{
	struct bench_decode decode = decode_of(bench, false);
	struct bench_row row;
	double missed;
	char name[64];

	if (!measure(bench, &decode, mib, context, &row))
		return;
	snprintf(name, sizeof(name), "%u MiB, context %u", mib, context);
	if (context == bench->contexts[0] && (mib == 8192 || mib == 4096))
		figure(bench, name, row.worker, "tokens/s", mib == 8192 ? 100 : 70,
		       mib == 8192 ? 160 : 110);
	missed = row.traffic.bytes[BENCH_ARENA] / (bench->machine.rates.gb_s[BENCH_ARENA] * 1e9);
	snprintf(name, sizeof(name), "%u MiB, context %u: missed bytes / bandwidth", mib, context);
	if (context == bench->contexts[0] && row.hits < 0.5)
		figure(bench, name, missed * row.worker, "", 0.85, 0.95);
	/* A row with a share of the CPU would be measured here, and its ratio told as free. */
}

static void
bench_skewed(struct bench *bench)
{
	struct bench_decode decode = decode_of(bench, true);
	struct bench_row row;

	if (!bench->skewed) {
		printf("skewed: not measured, there is no --skewed FILE\n");
		return;
	}
	for (uint32_t i = 0; i < bench->n_budgets; i++)
		measure(bench, &decode, bench->budgets[i], bench->contexts[0], &row);
}

static void
bench_death(struct bench *bench)
{
	struct bench_decode decode = decode_of(bench, false);
	double parts[4][MAX_DEATHS];
	uint32_t ids[DEATH_CONTEXT], n = (uint32_t)bench->deaths;
	char tokens[16], why[256], *prompt;

	if (!bench_decode_up(&decode, 0, DEATH_CONTEXT, why)) {
		printf("death: not measured: %s\n", why);
		return;
	}
	bench->whole = decode.shape.n_layers == WHOLE_LAYERS && bench->machine.gpu;
	prompt = bench_decode_prompt(DEATH_CONTEXT, 0, decode.shape.vocabulary, ids);
	bench_decode_keep(&decode, ids, DEATH_CONTEXT);
	snprintf(tokens, sizeof(tokens), "%u", decode.tokens);
	for (uint32_t i = 0; i < n; i++) {
		struct bench_death death = bench_die(decode.dir, NAME, prompt, tokens, 20);

		parts[0][i] = death.seconds;
		parts[1][i] = death.started;
		parts[2][i] = death.attached - death.attaching;
		parts[3][i] = death.seconds - death.attached;
	}
	free(prompt);
	bench_decode_down(&decode);
	figure(bench, "SIGKILL of the worker to its next token, context 4096, median",
	       figures_median(parts[0], n), "s", 0.5, 0.25);
	figures_add(&bench->figures, "  longest", parts[0][n - 1], "s", FIGURE_FREE, 0);
	figures_add(&bench->figures, "  until it is started again", figures_median(parts[1], n),
		    "s", FIGURE_FREE, 0);
	figures_add(&bench->figures, "  attaching: the device's context, what is lent",
		    figures_median(parts[2], n), "s", FIGURE_FREE, 0);
	figures_add(&bench->figures, "  attached to the first token", figures_median(parts[3], n),
		    "s", FIGURE_FREE, 0);
	save(bench);
}

static void
bench_cpu(struct bench *bench)
{
	struct bench_decode decode = decode_of(bench, false);
	struct bench_rates rates;
	struct bench_row row;
	struct error err;

	for (uint32_t i = 0; i < N_BENCH_PLACES; i++)
		rates.gb_s[i] = bench->machine.ram;
	decode.device = "cpu";
	decode.rates = &rates;
	if (device_open(&decode.opened, "cpu", &err) < 0) {
		log_warn("%s", err.text);
		return;
	}
	if (measure(bench, &decode, 0, bench->contexts[0], &row)) {
		figures_add(&bench->figures, "CPU device alone", row.worker, "tokens/s",
			    FIGURE_FREE, 0);
		figures_add_aim(&bench->figures, "  a token's bytes / RAM read bandwidth",
				row.worker / row.limit, "", 0.5, 0.8);
	}
	device_close(decode.opened);
	save(bench);
}

static void
bench_all(struct bench *bench)
{
	bench_machine_measure(&bench->machine, bench->opened, &bench->figures);
	save(bench);
	bench_rows_head();
	if (wants(bench, DECODE))
		bench_resident(bench, bench->contexts[0], 450, 1000);
	for (uint32_t i = 1; i < bench->n_contexts && wants(bench, LONG); i++)
		bench_resident(bench, bench->contexts[i], bench->contexts[i] == 32768 ? 350 : 0,
			       800);
	for (uint32_t i = 0; i < bench->n_budgets && wants(bench, BUDGETS); i++)
		for (uint32_t k = 0; k < bench->n_contexts; k++)
			bench_budget(bench, bench->budgets[i], bench->contexts[k]);
	if (wants(bench, SKEWED))
		bench_skewed(bench);
	if (wants(bench, DEATH))
		bench_death(bench);
	if (wants(bench, CPU))
		bench_cpu(bench);
	printf("\nas JSON: %s/bench-gpu.json, the picture: bench-gpu.svg beside it\n", stack_build);
}

/* -- the command line -- */

static int
read_options(int argc, char **argv, struct bench *bench, struct error *err)
{
	const char *only = "decode,long,budgets,skewed,death,cpu";
	const char *budgets = "16384,8192,4096", *contexts = "128,4096,32768";
	const struct option_def defs[] = {
		{ .name = "--model", .kind = OPTION_TEXT, .to = &bench->model },
		{ .name = "--skewed", .kind = OPTION_TEXT, .to = &bench->skewed },
		{ .name = "--device", .kind = OPTION_TEXT, .to = &bench->device },
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
		  .max = MAX_DEATHS },
	};
	uint32_t n_words;
	int rc =
	    options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), NULL, 0, &n_words, err);

	if (rc == 0 && !bench->model)
		rc = error_set(err, -EINVAL, "--model: want a GGUF file of make_model");
	if (rc == 0)
		rc = bench_words_bits("--only", only, part_names, &bench->parts, err);
	if (rc == 0)
		rc = bench_words_numbers("--budgets", budgets, bench->budgets, MAX_LIST,
					 &bench->n_budgets, err);
	if (rc == 0)
		rc = bench_words_numbers("--contexts", contexts, bench->contexts, MAX_LIST,
					 &bench->n_contexts, err);
	return rc;
}

/* Before anything is started.  The part `cpu` alone does without. */
static int
open_device(struct bench *bench, struct error *err)
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
	static struct bench bench = { .device = "cuda", .tokens = 256, .runs = 3, .deaths = 20 };
	struct error err;
	int rc;

	log_open("gpu");
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
