#include "tests/bench_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/plot.h"

#define GIB (double)(1ull << 30)
#define CURVE_POINTS 96
#define SKEWED_COLOUR "#b03060"

double
bench_curve_at(const struct bench_curve *curve, double bytes)
{
	uint64_t kv = curve->position_bytes * curve->context;
	struct bench_traffic traffic;

	bench_traffic_of(&traffic, curve->model,
			 bench_slots_part(curve->model, (uint64_t)bytes, kv),
			 (double)curve->position_bytes, curve->context);
	return 1 / bench_traffic_seconds(&traffic, curve->rates);
}

void
bench_rows_head(void)
{
	printf("%-4s %-6s %7s %7s %6s %6s | %8s %8s %8s %6s %6s | %s\n", "", "router", "MiB",
	       "context", "slots", "hits", "tok/s", "ask", "limit", "ratio", "ask/w",
	       "MB a token: trunk slots arena kv");
}

void
bench_rows_add(struct bench_rows *rows, const struct bench_row *row)
{
	const double *bytes = row->traffic.bytes;
	char cap[24] = "all";

	if (rows->n < BENCH_MAX_ROWS)
		rows->row[rows->n++] = *row;
	if (row->vram_mib)
		snprintf(cap, sizeof(cap), "%llu", (unsigned long long)row->vram_mib);
	printf("%-4s %-6s %7s %7u %6u %6.3f | %8.1f %8.1f %8.1f %6.3f %6.3f | %.0f %.0f %.0f %.0f"
	       "  (%u of %u tokens differ)\n",
	       row->device, row->router, cap, row->context, row->slots, row->hits, row->worker,
	       row->ask, row->limit, row->worker / row->limit, row->ask / row->worker,
	       bytes[BENCH_TRUNK] / 1e6, bytes[BENCH_SLOTS] / 1e6, bytes[BENCH_ARENA] / 1e6,
	       bytes[BENCH_KV] / 1e6, row->distinct, row->tokens);
	fflush(stdout);
}

static json_t *
json_of_row(const struct bench_row *row)
{
	json_t *bytes = json_object();

	for (enum bench_place place = 0; place < N_BENCH_PLACES; place++)
		json_object_set_new(bytes, bench_place_names[place],
				    json_real(row->traffic.bytes[place]));
	return json_pack("{s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:I, s:f, s:o, s:f, s:f, s:f, s:f}",
			 "device", row->device, "router", row->router, "vram_mib",
			 (json_int_t)row->vram_mib, "context", (int)row->context, "tokens",
			 (int)row->tokens, "distinct_tokens", (int)row->distinct, "slots",
			 (int)row->slots, "device_bytes", (json_int_t)row->lent, "hits", row->hits,
			 "bytes_a_token", bytes, "limit_tokens_per_second", row->limit,
			 "worker_tokens_per_second", row->worker, "ask_tokens_per_second", row->ask,
			 "ratio", row->worker / row->limit);
}

json_t *
bench_rows_json(const struct bench_rows *rows)
{
	json_t *list = json_array();

	for (uint32_t i = 0; i < rows->n; i++)
		json_array_append_new(list, json_of_row(&rows->row[i]));
	return list;
}

static const char *
colour_of(uint32_t curve)
{
	static const char *const colours[] = { "#2f6fb5", "#3a8f4d", "#b5652f", "#7a4fa3" };

	return colours[curve % 4];
}

static void
plot_curve(struct plot *plot, const struct bench_curve *curve, const char *colour)
{
	struct plot_point points[CURVE_POINTS];
	char name[64];

	for (uint32_t i = 0; i < CURVE_POINTS; i++) {
		double x = plot->most_x * (i + 1) / CURVE_POINTS;

		points[i] = (struct plot_point){ x, bench_curve_at(curve, x * GIB) };
	}
	snprintf(name, sizeof(name), "context %u%s%s", curve->context, curve->with ? ", " : "",
		 curve->with ? curve->with : "");
	plot_line(plot, colour, name, false, points, CURVE_POINTS);
}

/* Of the device of the first row: the CPU's own are another picture. */
static void
plot_dots(struct plot *plot, const struct bench_rows *rows, const char *router, uint32_t context,
	  const char *colour)
{
	struct plot_point points[BENCH_MAX_ROWS];
	char name[32];
	uint32_t n = 0;

	for (uint32_t i = 0; i < rows->n; i++) {
		const struct bench_row *row = &rows->row[i];

		if (row->context == context && strcmp(row->router, router) == 0 &&
		    strcmp(row->device, rows->row[0].device) == 0)
			points[n++] = (struct plot_point){ (double)row->lent / GIB, row->worker };
	}
	snprintf(name, sizeof(name), "%s router", router);
	if (n > 0)
		plot_line(plot, colour, strcmp(router, "even") == 0 ? NULL : name, true, points, n);
}

bool
bench_rows_svg(const struct bench_rows *rows, const struct bench_curve *curves, uint32_t n,
	       const char *path)
{
	struct plot plot = { .most_x = 1, .most_y = 10, .least_y = 1e9 };

	for (uint32_t i = 0; i < rows->n; i++) {
		plot.most_x = fmax(plot.most_x, ceil((double)rows->row[i].lent / GIB));
		plot.least_y = fmin(plot.least_y, rows->row[i].worker);
		plot.most_y = fmax(plot.most_y, rows->row[i].limit);
	}
	for (uint32_t i = 0; i < n; i++)
		plot.most_y = fmax(plot.most_y, bench_curve_at(&curves[i], plot.most_x * GIB));
	plot.least_y = fmin(fmax(plot.least_y / 2, 0.1), plot.most_y / 10);
	if (!plot_open(&plot, path,
		       "tokens/s inside the worker (dots) and what the bytes allow (lines), over "
		       "device memory",
		       "GiB"))
		return false;
	for (uint32_t i = 0; i < n; i++) {
		plot_curve(&plot, &curves[i], colour_of(i));
		if (!curves[i].with)
			plot_dots(&plot, rows, "even", curves[i].context, colour_of(i));
	}
	plot_dots(&plot, rows, "skewed", curves[0].context, SKEWED_COLOUR);
	return plot_close(&plot);
}
