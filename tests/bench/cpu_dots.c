/* GB/s of weights through each kernel set and type on one core: rows of 2048 elements, from the
 * cache (1 MiB, its own limit) and from RAM (512 MiB), for one column, and the products of a batch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/types.h"
#include "worker/cpu_kernels.h"

#define ELEMENTS 2048
#define COLUMNS 64
#define BYTES (512u << 20)
#define CACHED (1u << 20)

static _Alignas(64) float columns[COLUMNS][ELEMENTS], results[COLUMNS][64],
    scratch[CPU_SCRATCH_ROWS * ELEMENTS];

/* Seconds for `bytes` of rows, `again` times. */
static double
time_rows(cpu_dot_fn *fn, const uint8_t *rows, uint64_t row_bytes, uint64_t bytes, uint32_t n,
	  uint32_t again)
{
	const float *x[COLUMNS];
	float *y[COLUMNS];
	uint64_t start;

	for (uint32_t c = 0; c < n; c++) {
		x[c] = columns[c];
		y[c] = results[c];
	}
	start = clock_ns();
	for (uint32_t i = 0; i < again; i++)
		for (uint64_t at = 0; at + 32 * row_bytes <= bytes; at += 32 * row_bytes) {
			struct cpu_dot dot = {
				rows + at, row_bytes, 32, ELEMENTS, n, x, y, scratch
			};

			fn(&dot);
		}
	return (double)(clock_ns() - start) / NS_PER_SECOND;
}

static void
bench(const struct cpu_kernels *set, const struct type_info *info, const uint8_t *rows)
{
	cpu_dot_fn *fn = cpu_kernels_dot(set, info->type);
	uint64_t row_bytes = 0;
	double cached, ram, batch;

	type_row_bytes(info, ELEMENTS, &row_bytes);
	time_rows(fn, rows, row_bytes, CACHED, 1, 1);
	cached = time_rows(fn, rows, row_bytes, CACHED, 1, 200) / 200;
	ram = time_rows(fn, rows, row_bytes, BYTES, 1, 1);
	batch = time_rows(fn, rows, row_bytes, CACHED, COLUMNS, 2) / 2;
	printf("%-7s %-5s  %6.1f GB/s cached  %6.1f GB/s RAM  %7.1f G products/s in batches\n",
	       set->name, info->name, CACHED / cached / 1e9, BYTES / ram / 1e9,
	       (double)CACHED / (double)row_bytes * ELEMENTS * COLUMNS / batch / 1e9);
}

int
main(void)
{
	static const char *const names[] = { "avx512", "avx2", "c" };
	uint8_t *rows = aligned_alloc(4096, BYTES);

	if (!rows)
		return 111;
	memset(rows, 0x11, BYTES); /* small numbers in every type */
	for (uint32_t c = 0; c < COLUMNS; c++)
		for (uint32_t i = 0; i < ELEMENTS; i++)
			columns[c][i] = (float)(i % 7) - 3;
	for (int s = 0; s < 3; s++)
		for (uint32_t type = 0; type < 31; type++)
			if (cpu_kernels_find(names[s]) && type_find(type))
				bench(cpu_kernels_find(names[s]), type_find(type), rows);
	free(rows);
	return 0;
}
