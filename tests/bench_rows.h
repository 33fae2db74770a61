/* What decoding came to at each budget and context: lines of a table, JSON, a picture. */
#ifndef HEARTH_TESTS_BENCH_ROWS_H
#define HEARTH_TESTS_BENCH_ROWS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/bench_traffic.h"

#define BENCH_ROUTER_BYTES 16
#define BENCH_MAX_ROWS 64

struct bench_row {
	char device[8];                  /* "cuda", "cpu" */
	char router[BENCH_ROUTER_BYTES]; /* "even", "skewed" */
	uint64_t vram_mib;               /* the cap; 0: none */
	uint32_t context;                /* positions before the first measured token */
	uint32_t tokens, distinct;       /* of a run: generated; different ones */
	uint32_t slots;
	uint64_t lent;                /* bytes of device memory */
	double hits;                  /* of the experts used, the part in slots */
	struct bench_traffic traffic; /* of a token */
	double limit;                 /* tokens/s that the traffic allows */
	double worker, ask;           /* tokens/s, inside the worker and as the client sees it */
};

struct bench_rows {
	uint32_t n;
	struct bench_row row[BENCH_MAX_ROWS];
};

/* The limit's curve of one context, tokens/s by bytes of device memory, with even routing. */
struct bench_curve {
	const struct model *model;
	const struct bench_rates *rates;
	uint64_t position_bytes; /* of the KV cache */
	uint32_t context;
	const char *with; /* what its rates suppose beside the device; NULL: nothing */
};

double bench_curve_at(const struct bench_curve *curve, double bytes);

void bench_rows_head(void); /* of the table, on stdout */
void bench_rows_add(struct bench_rows *rows, const struct bench_row *row); /* and its line */
json_t *bench_rows_json(const struct bench_rows *rows);
/* Dots: what was measured inside the worker; lines: the limits of n >= 1 contexts.  False: it
 * cannot be written. */
bool bench_rows_svg(const struct bench_rows *rows, const struct bench_curve *curves, uint32_t n,
		    const char *path);

#endif
