/* The parts of bench-gpu: each measures some rows, tells them with their floors and writes down
 * what there is so far.  They end the bench when a stack fails that should not. */
#ifndef HEARTH_TESTS_BENCH_PARTS_H
#define HEARTH_TESTS_BENCH_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench_decode.h"
#include "tests/bench_figures.h"
#include "tests/bench_machine.h"
#include "tests/bench_rows.h"

#define BENCH_MAX_LIST 8u
#define BENCH_MAX_DEATHS 64u

struct bench_parts {
	const char *model, *skewed, *device; /* skewed: NULL: there is none */
	const char *more;                    /* one more word for `up`, or NULL */
	uint32_t parts;                      /* bits of those wanted */
	uint32_t budgets[BENCH_MAX_LIST], n_budgets;
	uint32_t contexts[BENCH_MAX_LIST], n_contexts; /* the first one is the short one */
	uint64_t tokens, runs, deaths;
	struct device *opened; /* NULL: no part wants it */
	struct bench_machine machine;
	struct figures figures;
	struct bench_rows rows;
	struct bench_curve curves[BENCH_MAX_LIST + 1];
	bool whole; /* the last stack had the model and the device that the floors are of */
};

/* floor 0: none. */
void bench_parts_resident(struct bench_parts *bench, uint32_t context, double floor, double aim);
void bench_parts_budget(struct bench_parts *bench, uint32_t mib, uint32_t context);
void bench_parts_skewed(struct bench_parts *bench); /* every budget, the short context */
void bench_parts_death(struct bench_parts *bench);
void bench_parts_cpu(struct bench_parts *bench); /* the CPU device alone */

/* BUILD/bench-gpu.json. */
void bench_parts_save(const struct bench_parts *bench);

#endif
