#include "tests/bench_probe.h"

#include "tests/bench_marks.cuh"
#include "tests/bench_orders.cuh"

#ifdef CUDA_PROBE

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_BEGINS "embed_kernel"
#define KERNELS 6u /* of a layer */

static void
add(struct marks *sum, const struct marks *one, double before)
{
	for (uint32_t mark = 0; mark < PROBE_MARKS; mark++) {
		sum->first[mark] += one->first[mark] - before;
		sum->mean[mark] += one->mean[mark] - before;
		sum->last[mark] += one->last[mark] - before;
		sum->blocks[mark] += one->blocks[mark];
	}
}

static void
print_line(const char *name, uint32_t blocks, const struct marks *sum, uint32_t n)
{
	printf("%-20.20s %5u", name, blocks);
	for (uint32_t mark = 0; mark <= PROBE_ENDED; mark++) {
		if (sum->blocks[mark] == 0)
			printf("  %20s", "-");
		else
			printf("  %6.2f %6.2f %6.2f", sum->first[mark] / n / 1e3,
			       sum->mean[mark] / n / 1e3, sum->last[mark] / n / 1e3);
	}
	printf("\n");
}

/* The launches first.. that are `step` apart, up to `end`. */
static void
print_kernel(const uint64_t *all, uint32_t first, uint32_t step, uint32_t end, uint64_t origin)
{
	const struct cuda_probe_log *log = &cuda_probe_log;
	uint32_t place = first % PROBE_LAUNCHES, n = 0;
	struct marks sum = {};

	for (uint32_t i = first; i < end; i += step, n++) {
		uint32_t at = i % PROBE_LAUNCHES, at_before = (i - 1) % PROBE_LAUNCHES;
		struct marks one = marks_of(all + at * ONE, log->launch[at].blocks, origin);
		struct marks before =
		    marks_of(all + at_before * ONE, log->launch[at_before].blocks, origin);

		add(&sum, &one, before.last[PROBE_ENDED]);
	}
	if (n > 0)
		print_line(log->launch[place].name, log->launch[place].blocks, &sum, n);
}

extern "C" void
bench_probe_print(void)
{
	const struct cuda_probe_log *log = &cuda_probe_log;
	uint64_t bytes = PROBE_LAUNCHES * ONE * sizeof(uint64_t), *all = (uint64_t *)malloc(bytes);
	uint32_t begin = log->n, layers_end;

	/* A token may have been begun ahead. */
	if (!all || !log->at || cudaDeviceSynchronize() ||
	    cudaMemcpy(all, log->at, bytes, cudaMemcpyDeviceToHost))
		abort();
	while (begin > 0 && strcmp(log->launch[--begin % PROBE_LAUNCHES].name, TOKEN_BEGINS) != 0)
		;
	layers_end = begin + 1 + (log->n - begin - 1) / KERNELS * KERNELS;
	uint64_t origin = all[begin % PROBE_LAUNCHES * ONE];

	printf("us since the kernel before ended; of all blocks first, mean and last\n"
	       "%-20s %5s  %-20s  %-20s  %-20s  %-20s  %-20s  %-20s\n",
	       "kernel", "blocks", "begun", "waited", "loaded", "multiplied", "arrived", "ended");
	for (uint32_t i = 0; i < KERNELS; i++)
		print_kernel(all, begin + 1 + KERNELS + i, KERNELS, layers_end, origin);
	for (uint32_t i = layers_end; i < log->n; i++)
		print_kernel(all, i, 1, i + 1, origin);
	bench_orders_print(all, begin);
	free(all);
}

#else

extern "C" void
bench_probe_print(void)
{
}

#endif
