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
/* A figure with a floor, and an aim beyond it: at least, or at most where the aim is below. */
void figures_add_aim(struct figures *figures, const char *name, double value, const char *unit,
		     double floor, double aim);
/* What is there so far, as figures_write writes it; the caller drops it. */
json_t *figures_json(const struct figures *figures, const char *model, const char *device);
/* {"model", "device", "processors", "figures"} to a file; says where.  Drops the list. */
void figures_write(struct figures *figures, const char *model, const char *device,
		   const char *path);

/* Sorts the values. */
double figures_median(double *values, uint32_t n);

#endif
