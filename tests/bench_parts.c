#include "tests/bench_parts.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "tests/bench_experts.h"
#include "tests/bench_stack.h"
#include "tests/stack_run.h"

#define NAME "gpu" /* of the stack */
#define DEATH_CONTEXT 4096u
#define SKEWED_WARM_UPS 4u
#define WHOLE_LAYERS 48u /* the shape that the floors are of */

void
bench_parts_save(const struct bench_parts *bench)
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
save_picture(struct bench_parts *bench, const struct bench_decode *decode,
	     const struct bench_row *row)
{
	double position = row->traffic.bytes[BENCH_KV] / (row->context + row->tokens / 2.0);
	uint32_t n = bench->n_contexts;
	char path[640];

	for (uint32_t i = 0; i < n; i++)
		bench->curves[i] = (struct bench_curve){ .model = &decode->shape,
							 .rates = decode->rates,
							 .position_bytes = (uint64_t)position,
							 .context = bench->contexts[i] };
	if (bench->machine.gpu) {
		bench->curves[n] = bench->curves[0];
		bench->curves[n].rates = &bench->machine.shared;
		bench->curves[n++].with = "the CPU reads too";
	}
	snprintf(path, sizeof(path), "%s/bench-gpu.svg", stack_build);
	if (!bench_rows_svg(&bench->rows, bench->curves, n, path))
		log_warn("%s: cannot be written", path);
}

/* A floor holds for the whole model, and but for the CPU's own on a GPU; of a smaller one the
 * figure is told alone. */
static void
figure(struct bench_parts *bench, const char *name, double value, const char *unit, double floor,
       double aim)
{
	if (bench->whole)
		figures_add_aim(&bench->figures, name, value, unit, floor, aim);
	else
		figures_add(&bench->figures, name, value, unit, FIGURE_FREE, 0);
}

static struct bench_decode
decode_of(const struct bench_parts *bench, bool skewed)
{
	return (struct bench_decode){ .name = NAME,
				      .model = skewed ? bench->skewed : bench->model,
				      .router = skewed ? "skewed" : "even",
				      .device = bench->device,
				      .more = bench->more,
				      .opened = bench->opened,
				      .tokens = (uint32_t)bench->tokens,
				      .runs = (uint32_t)bench->runs,
				      .warm_ups = skewed ? SKEWED_WARM_UPS : 1,
				      .rates = &bench->machine.rates };
}

/* Starts the stack for it, and leaves it up.  False: the budget has no room for that context. */
static bool
measure_and_stay(struct bench_parts *bench, struct bench_decode *decode, uint32_t mib,
		 uint32_t context, struct bench_row *ret)
{
	char why[256];

	if (!bench_decode_up(decode, mib, context, why)) {
		printf("%u MiB (0: no cap), context %u: not measured: %s\n", mib, context, why);
		return false;
	}
	bench->whole = decode->shape.n_layers == WHOLE_LAYERS && bench->machine.gpu;
	bench_decode_row(decode, mib, context, ret);
	bench_rows_add(&bench->rows, ret);
	save_picture(bench, decode, ret);
	bench_parts_save(bench);
	return true;
}

static bool
measure(struct bench_parts *bench, struct bench_decode *decode, uint32_t mib, uint32_t context,
	struct bench_row *ret)
{
	if (!measure_and_stay(bench, decode, mib, context, ret))
		return false;
	bench_decode_down(decode);
	return true;
}

void
bench_parts_resident(struct bench_parts *bench, uint32_t context, double floor, double aim)
{
	struct bench_decode decode = decode_of(bench, false);
	struct bench_row row;
	char name[64];

	decode.tokens *= 2; /* the fastest: a request's own time is spread over more */
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

void
bench_parts_budget(struct bench_parts *bench, uint32_t mib, uint32_t context)
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
	if (bench->machine.gpu)
		figures_add(&bench->figures, "  what the bytes allow with the CPU reading too",
			    1 / bench_traffic_seconds(&row.traffic, &bench->machine.shared),
			    "tokens/s", FIGURE_FREE, 0);
	missed = row.traffic.bytes[BENCH_ARENA] / (bench->machine.rates.gb_s[BENCH_ARENA] * 1e9);
	snprintf(name, sizeof(name), "%u MiB, context %u: missed bytes / bandwidth", mib, context);
	if (context == bench->contexts[0] && row.hits < 0.5)
		figure(bench, name, missed * row.worker, "", 0.85, 0.95);
}

void
bench_parts_skewed(struct bench_parts *bench)
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

void
bench_parts_death(struct bench_parts *bench)
{
	struct bench_decode decode = decode_of(bench, false);
	double parts[4][BENCH_MAX_DEATHS];
	uint32_t ids[DEATH_CONTEXT], n = (uint32_t)bench->deaths;
	char tokens[16], why[256], *prompt;

	decode.tokens *= 4; /* it must not be through before it is killed */
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
	bench_parts_save(bench);
}

static void
figure_cpu(struct bench_parts *bench, const struct bench_decode *decode,
	   const struct bench_row *row)
{
	struct error err;
	double experts;

	bench->whole = decode->shape.n_layers == WHOLE_LAYERS;
	figures_add(&bench->figures, "CPU device alone", row->worker, "tokens/s", FIGURE_FREE, 0);
	figures_add(&bench->figures, "  a token's bytes / RAM read bandwidth",
		    row->worker / row->limit, "", FIGURE_FREE, 0);
	if (bench_experts_rate(&decode->arena, &decode->shape, bench->machine.threads, &experts,
			       &err) < 0)
		log_warn("%s", err.text);
	else
		figure(bench, "  its experts alone / RAM read bandwidth",
		       experts / bench->machine.ram, "", 0.5, 0.8);
}

void
bench_parts_cpu(struct bench_parts *bench)
{
	struct bench_decode decode = decode_of(bench, false);
	struct bench_rates rates;
	struct bench_row row;
	struct error err;

	for (uint32_t i = 0; i < N_BENCH_PLACES; i++)
		rates.gb_s[i] = bench->machine.ram;
	decode.device = "cpu";
	decode.rates = &rates;
	decode.tokens /= 2; /* the slowest of all rows */
	if (device_open(&decode.opened, "cpu", &err) < 0) {
		log_warn("%s", err.text);
		return;
	}
	if (measure_and_stay(bench, &decode, 0, bench->contexts[0], &row)) {
		figure_cpu(bench, &decode, &row);
		bench_decode_down(&decode);
	}
	device_close(decode.opened);
	bench_parts_save(bench);
}
