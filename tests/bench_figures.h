/* What a bench has measured: a table on stdout as it goes, and the same as JSON in the end. */
#ifndef HEARTH_TESTS_BENCH_FIGURES_H
#define HEARTH_TESTS_BENCH_FIGURES_H

#include <jansson.h>
#include <stdint.h>

enum figure_target { FIGURE_FREE, FIGURE_AT_MOST, FIGURE_AT_LEAST };

struct figures {
	json_t *list;
};

void figures_open(struct figures *figures);
void figures_add(struct figures *figures, const char *name, double value, const char *unit,
		 enum figure_target target, double limit);
/* {"model", "device", "processors", "figures"} to a file; says where.  Drops the list. */
void figures_write(struct figures *figures, const char *model, const char *device,
		   const char *path);

/* Sorts the values. */
double figures_median(double *values, uint32_t n);

#endif
