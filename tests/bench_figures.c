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

void
figures_add(struct figures *figures, const char *name, double value, const char *unit,
	    enum figure_target target, double limit)
{
	bool met = target == FIGURE_AT_LEAST ? value >= limit : value <= limit;
	const char *sign = target == FIGURE_AT_LEAST ? ">=" : "<=";
	char text[48] = "";

	if (target != FIGURE_FREE)
		snprintf(text, sizeof(text), "%s %g%s", sign, limit, met ? "" : "  MISSED");
	printf("%-58s %10.3f %-5s %s\n", name, value, unit, text);
	fflush(stdout);
	json_array_append_new(figures->list,
			      json_pack("{s:s, s:f, s:s, s:s}", "name", name, "value", value,
					"unit", unit, "target", text));
}

void
figures_write(struct figures *figures, const char *model, const char *device, const char *path)
{
	json_t *all =
	    json_pack("{s:s, s:s, s:i, s:o}", "model", model, "device", device, "processors",
		      (int)sysconf(_SC_NPROCESSORS_ONLN), "figures", figures->list);

	if (json_dump_file(all, path, JSON_INDENT(1)) == 0)
		printf("\nas JSON: %s\n", path);
	json_decref(all);
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
