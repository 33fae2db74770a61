/* The limits of the machine, measured in the run whose figures are held against them. */
#ifndef HEARTH_TESTS_BENCH_MACHINE_H
#define HEARTH_TESTS_BENCH_MACHINE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/device.h"
#include "tests/bench_figures.h"
#include "tests/bench_traffic.h"

struct bench_machine {
	uint32_t threads; /* as many as there are processors */
	double ram;       /* GB/s, as all of these */
	bool gpu;         /* the others were measured */
	char name[128];
	double copy, read; /* device memory */
	double to_device;
	double in_place, in_place_4k; /* huge pages, pages of 4 KiB */
	double together_gpu, together_cpu;
	struct bench_rates rates;  /* of each place, for the device measured */
	struct bench_rates shared; /* the same where the CPU reads a part of the arena itself */
};

/* `device` NULL or a CPU device: RAM alone, and all places are there.  Ends the bench on failure.
 */
void bench_machine_measure(struct bench_machine *ret, const struct device *device,
			   struct figures *figures);
json_t *bench_machine_json(const struct bench_machine *machine);

#endif
