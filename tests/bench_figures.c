#include "tests/bench_figures.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void
figures_open(struct figures *figures)
{
	figures->list = json_array();
}

static void
figures_tell(struct figures *figures, const char *name, double value, const char *unit,
	     const char *text)
{
	printf("%-58s %10.3f %-8s %s\n", name, value, unit, text);
	fflush(stdout);
	json_array_append_new(figures->list,
			      json_pack("{s:s, s:f, s:s, s:s}", "name", name, "value", value,
					"unit", unit, "target", text));
}

void
figures_add(struct figures *figures, const char *name, double value, const char *unit,
	    enum figure_target target, double limit)
{
	bool met = target == FIGURE_AT_LEAST ? value >= limit : value <= limit;
	const char *sign = target == FIGURE_AT_LEAST ? ">=" : "<=";
	char text[48] = "";

	if (target != FIGURE_FREE)
		snprintf(text, sizeof(text), "%s %g%s", sign, limit, met ? "" : "  MISSED");
	figures_tell(figures, name, value, unit, text);
}

void
figures_add_aim(struct figures *figures, const char *name, double value, const char *unit,
		double floor, double aim)
{
	bool more = aim >= floor;
	bool floor_met = more ? value >= floor : value <= floor;
	bool aim_met = more ? value >= aim : value <= aim;
	char text[80];

	snprintf(text, sizeof(text), "%s %g, aim %g%s", more ? ">=" : "<=", floor, aim,
		 aim_met     ? "  aim met"
		 : floor_met ? ""
			     : "  MISSED");
	figures_tell(figures, name, value, unit, text);
}

json_t *
figures_json(const struct figures *figures, const char *model, const char *device)
{
	return json_pack("{s:s, s:s, s:i, s:O}", "model", model, "device", device, "processors",
			 (int)sysconf(_SC_NPROCESSORS_ONLN), "figures", figures->list);
}

void
figures_write(struct figures *figures, const char *model, const char *device, const char *path)
{
	json_t *all = figures_json(figures, model, device);

	if (json_dump_file(all, path, JSON_INDENT(1)) == 0)
		printf("\nas JSON: %s\n", path);
	json_decref(all);
	json_decref(figures->list);
	figures->list = NULL;
}

static int
compare_doubles(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double
figures_median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), compare_doubles);
	return values[n / 2];
}
