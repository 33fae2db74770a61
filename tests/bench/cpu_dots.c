/* cpu_dots [TYPE ...]: GB/s of weights through each kernel set and type on one core, for one
 * column: from the cache (1 MiB: the set's own limit) and from RAM (2 GiB, in pieces of 64 MiB, by
 * turns with plain reads of the same pieces); and the products a second of a batch of 64 columns.
 * Each figure is the best of many, in the thread's own time: other work on the machine hides no
 * limit. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/types.h"
#include "tests/ram_read.h"
#include "worker/cpu_kernels.h"

#define ELEMENTS 2048
#define COLUMNS 64
#define ROWS 32 /* of a call */
#define BYTES (2048ull << 20)
#define PIECE (64u << 20)
#define CACHED (1u << 20)

static _Alignas(64) float columns[COLUMNS][ELEMENTS], results[COLUMNS][ROWS],
    scratch[CPU_SCRATCH_ROWS * ELEMENTS];
static _Alignas(64) struct fixed_block fixed[COLUMNS][ELEMENTS / FIXED_COLUMNS];

static double
thread_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / NS_PER_SECOND;
}

/* GB/s over `bytes` of rows against n columns. */
static double
rows_speed(cpu_dot_fn *fn, const uint8_t *rows, uint64_t row_bytes, uint64_t bytes, uint32_t n)
{
	const struct fixed_block *fixed_at[COLUMNS];
	const float *x[COLUMNS];
	float *y[COLUMNS];
	struct cpu_dot dot = { .row_bytes = row_bytes,
			       .n_rows = ROWS,
			       .n = ELEMENTS,
			       .n_columns = n,
			       .x = x,
			       .fixed = fixed_at,
			       .y = y,
			       .scratch = scratch };
	uint64_t at = 0;
	double start;

	for (uint32_t c = 0; c < n; c++) {
		x[c] = columns[c];
		y[c] = results[c];
		fixed_at[c] = fixed[c];
	}
	start = thread_seconds();
	for (; at + ROWS * row_bytes <= bytes; at += ROWS * row_bytes) {
		dot.rows = rows + at;
		fn(&dot);
	}
	return (double)at / (thread_seconds() - start) / 1e9;
}

static void
raise(double *best, double value)
{
	if (value > *best)
		*best = value;
}

static void
bench(const struct cpu_kernels *set, const struct type_info *info, const uint8_t *rows)
{
	cpu_dot_fn *fn = cpu_kernels_dot(set, info->type);
	double cached = 0, ram = 0, plain = 0, batch = 0;
	uint64_t row_bytes = 0;

	type_row_bytes(info, ELEMENTS, &row_bytes);
	for (int i = 0; i < 50; i++)
		raise(&cached, rows_speed(fn, rows, row_bytes, CACHED, 1));
	for (uint64_t at = 0; at < BYTES; at += 2 * PIECE) {
		double start;

		raise(&ram, rows_speed(fn, rows + at, row_bytes, PIECE, 1));
		start = thread_seconds();
		ram_read(rows + at + PIECE, PIECE);
		raise(&plain, PIECE / (thread_seconds() - start) / 1e9);
	}
	for (int i = 0; i < 3; i++)
		raise(&batch, rows_speed(fn, rows, row_bytes, CACHED / 8, COLUMNS));
	printf("%-10s %-5s  %6.1f GB/s cached  %6.1f GB/s RAM  %6.1f GB/s read  %5.2f  "
	       "%7.1f G products/s in batches\n",
	       set->name, info->name, cached, ram, plain, ram / plain,
	       batch * ELEMENTS * COLUMNS / (double)row_bytes);
}

static bool
wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return argc < 2;
}

int
main(int argc, char **argv)
{
	uint8_t *rows = aligned_alloc(2u << 20, BYTES);
	const struct cpu_kernels *set;

	if (!rows)
		return 111;
	memset(rows, 0x11, BYTES); /* small numbers in every type */
	for (uint32_t c = 0; c < COLUMNS; c++) {
		for (uint32_t i = 0; i < ELEMENTS; i++)
			columns[c][i] = (float)(i % 7) - 3;
		fixed_set(columns[c], 0, ELEMENTS, FIXED_TOP, fixed[c]);
	}
	for (uint32_t s = 0; (set = cpu_kernels_get(s)); s++)
		for (uint32_t type = 0; type < 31; type++)
			if (cpu_kernels_usable(set) && type_find(type) &&
			    wanted(type_find(type)->name, argc, argv))
				bench(set, type_find(type), rows);
	free(rows);
	return 0;
}
