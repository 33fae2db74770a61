#include "tests/bench_machine.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/bench_limits.h"
#include "tests/bench_ram.h"

static void
must(int rc, const struct error *err)
{
	if (rc == 0)
		return;
	log_error("%s", err->text);
	exit(EXIT_SYSTEM);
}

static void
must_have(const void *at)
{
	struct error err = { "no memory to measure with" };

	must(at ? 0 : -1, &err);
}

static void
tell(struct figures *figures, const char *name, double gb_s)
{
	figures_add(figures, name, gb_s, "GB/s", FIGURE_FREE, 0);
}

static void
measure_host(struct bench_machine *machine)
{
	void *huge = bench_ram_map(BENCH_RAM_BYTES), *small;
	struct error err = { "" };

	must_have(huge);
	must(bench_limits_to_device(huge, BENCH_RAM_BYTES, &machine->to_device, &err), &err);
	must(bench_limits_in_place(huge, BENCH_RAM_BYTES, &machine->in_place, &err), &err);
	must(bench_limits_together(huge, BENCH_RAM_BYTES, machine->threads, &machine->together_gpu,
				   &machine->together_cpu, &err),
	     &err);
	bench_ram_unmap(huge, BENCH_RAM_BYTES);
	small = bench_ram_map_small(BENCH_RAM_BYTES);
	must_have(small);
	must(bench_limits_in_place(small, BENCH_RAM_BYTES, &machine->in_place_4k, &err), &err);
	bench_ram_unmap(small, BENCH_RAM_BYTES);
}

static void
measure_gpu(struct bench_machine *machine, const struct device *device, struct figures *figures)
{
	struct error err = { "" };

	must(bench_limits_open(device_describe(device)->ordinal, machine->name, &err), &err);
	must(bench_limits_copy(&machine->copy, &err), &err);
	must(bench_limits_read(&machine->read, &err), &err);
	measure_host(machine);
	machine->gpu = true;
	printf("%s\n", machine->name);
	tell(figures, "device memory, copied: read and written", machine->copy);
	tell(figures, "device memory, read by a kernel", machine->read);
	tell(figures, "host to device, by the copy engine", machine->to_device);
	tell(figures, "host memory read in place, huge pages", machine->in_place);
	tell(figures, "  the same, pages of 4 KiB", machine->in_place_4k);
	tell(figures, "in place while the CPU reads: the GPU", machine->together_gpu);
	tell(figures, "  the CPU", machine->together_cpu);
}

void
bench_machine_measure(struct bench_machine *ret, const struct device *device,
		      struct figures *figures)
{
	*ret = (struct bench_machine){ .threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN) };
	ret->ram = bench_ram_limit(ret->threads);
	tell(figures, "RAM, read by one thread a processor", ret->ram);
	if (device && device_describe(device)->cuda)
		measure_gpu(ret, device, figures);
	for (uint32_t i = 0; i < N_BENCH_PLACES; i++)
		ret->rates.gb_s[i] = ret->gpu ? ret->copy : ret->ram;
	if (ret->gpu)
		ret->rates.gb_s[BENCH_ARENA] = ret->in_place;
	ret->shared = ret->rates;
	if (ret->gpu)
		ret->shared.gb_s[BENCH_ARENA] = ret->together_gpu + ret->together_cpu;
}

json_t *
bench_machine_json(const struct bench_machine *machine)
{
	json_t *json =
	    json_pack("{s:f, s:i}", "ram_gb_s", machine->ram, "threads", (int)machine->threads);

	if (machine->gpu)
		json_object_update_new(
		    json,
		    json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "gpu", machine->name,
			      "device_copy_gb_s", machine->copy, "device_read_gb_s", machine->read,
			      "to_device_gb_s", machine->to_device, "in_place_gb_s",
			      machine->in_place, "in_place_4k_gb_s", machine->in_place_4k,
			      "together_gpu_gb_s", machine->together_gpu, "together_cpu_gb_s",
			      machine->together_cpu));
	return json;
}
