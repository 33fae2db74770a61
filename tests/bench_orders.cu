#include "tests/bench_orders.cuh"

#include "tests/bench_clock.h"
#include "tests/bench_marks.cuh"
#include "worker/share_probe.h"

#ifdef CUDA_PROBE

#include <stdio.h>
#include <string.h>

#include "worker/share_record.h"

#define ROUTER "route_kernel" /* and the two behind it are the experts' */

enum moment {
	ORDER_STORED,
	ORDER_SENT,
	ROUTER_ENDED,
	CPU_SAW,
	CPU_ACTS,
	CPU_ANSWERED,
	IN_WAITED,
	IN_ENDED,
	OUT_LOADED,
	OUT_MULTIPLIED,
	ANSWER_LOOKED_FOR,
	ANSWER_SEEN,
	ANSWER_SEEN_BY_ALL,
	OUT_ENDED,
	MOMENTS
};

static const char *const names[MOMENTS] = {
	"order stored",
	"order stored, and the fence behind it",
	"router: last block ended",
	"CPU: a thread took the order",
	"CPU: gate and up done",
	"CPU: answer stored",
	"gate and up: first block waited for the router",
	"gate and up: last block ended",
	"down: last block's rows and vectors there",
	"down: last block multiplied",
	"down: first block looks for the answer",
	"down: first block has seen it",
	"down: last block has seen it",
	"down: last block ended",
};

struct sums {
	double sum[MOMENTS], least[MOMENTS], most[MOMENTS];
	uint32_t n;
};

static struct marks
launch_marks(const uint64_t *all, uint32_t launch, uint64_t origin)
{
	uint32_t at = launch % PROBE_LAUNCHES;

	return marks_of(all + at * ONE, cuda_probe_log.launch[at].blocks, origin);
}

/* Of the layer whose router is launch `router`; false: it ordered nothing.  All ns since the order.
 */
static bool
moments_of(const uint64_t *all, uint32_t router, const struct share_probe *cpu, int64_t offset,
	   double *ret)
{
	uint64_t origin = all[router % PROBE_LAUNCHES * ONE];
	struct marks route = launch_marks(all, router, origin);
	struct marks in = launch_marks(all, router + 1, origin);
	struct marks out = launch_marks(all, router + 2, origin);
	const uint64_t of_cpu[] = { cpu->seen, cpu->acts, cpu->answered };

	if (route.blocks[PROBE_HANDING] == 0)
		return false;
	ret[ORDER_STORED] = route.last[PROBE_STORED];
	ret[ORDER_SENT] = route.last[PROBE_HANDED];
	ret[ROUTER_ENDED] = route.last[PROBE_ENDED];
	for (uint32_t i = 0; i < 3; i++)
		ret[CPU_SAW + i] = (double)(int64_t)(of_cpu[i] + (uint64_t)offset - origin);
	ret[IN_WAITED] = in.first[PROBE_WAITED];
	ret[IN_ENDED] = in.last[PROBE_ENDED];
	ret[OUT_LOADED] = out.last[PROBE_LOADED];
	ret[OUT_MULTIPLIED] = out.last[PROBE_MULTIPLIED];
	ret[ANSWER_LOOKED_FOR] = out.first[PROBE_HANDING];
	ret[ANSWER_SEEN] = out.first[PROBE_HANDED];
	ret[ANSWER_SEEN_BY_ALL] = out.last[PROBE_HANDED];
	ret[OUT_ENDED] = out.last[PROBE_ENDED];
	for (uint32_t i = 0; i < MOMENTS; i++)
		ret[i] -= route.last[PROBE_HANDING];
	return true;
}

static void
add(struct sums *to, const double *moments)
{
	for (uint32_t i = 0; i < MOMENTS; i++) {
		to->sum[i] += moments[i];
		if (to->n == 0 || moments[i] < to->least[i])
			to->least[i] = moments[i];
		if (to->n == 0 || moments[i] > to->most[i])
			to->most[i] = moments[i];
	}
	to->n++;
}

static void
print_sums(const struct sums *all, const struct sums *by_experts)
{
	printf("%-48s %8s %8s %8s", "us since the order was about to be stored", "mean", "least",
	       "most");
	for (uint32_t n = 1; n <= SHARE_MAX; n++)
		if (by_experts[n].n > 0)
			printf("   %2u (%2u)", n, by_experts[n].n);
	printf("  experts (layers)\n");
	for (uint32_t i = 0; i < MOMENTS; i++) {
		printf("%-48s %8.2f %8.2f %8.2f", names[i], all->sum[i] / all->n / 1e3,
		       all->least[i] / 1e3, all->most[i] / 1e3);
		for (uint32_t n = 1; n <= SHARE_MAX; n++)
			if (by_experts[n].n > 0)
				printf(" %9.2f", by_experts[n].sum[i] / by_experts[n].n / 1e3);
		printf("\n");
	}
}

void
bench_orders_print(const uint64_t *all, uint32_t begin)
{
	const struct cuda_probe_log *log = &cuda_probe_log;
	struct sums sums = {}, by_experts[SHARE_MAX + 1] = {};
	double moments[MOMENTS];
	uint64_t within = 0;
	int64_t offset = 0;
	uint32_t layer = 0;
	struct error err;

	/* At once: the clocks drift. */
	if (bench_clock_offset(&offset, &within, &err)) {
		printf("orders to the CPU: %s\n", err.text);
		return;
	}
	for (uint32_t i = begin; i + 2 < log->n; i++) {
		const struct share_probe *cpu = &share_probes[layer % SHARE_PROBES];

		if (strcmp(log->launch[i % PROBE_LAUNCHES].name, ROUTER) != 0)
			continue;
		layer++;
		if (!moments_of(all, i, cpu, offset, moments))
			continue;
		add(&sums, moments);
		add(&by_experts[cpu->experts % (SHARE_MAX + 1)], moments);
	}
	if (sums.n == 0)
		return;
	printf("orders to the CPU, %u of %u layers; the CPU's clock is known within %.2f us\n",
	       sums.n, layer, (double)within / 1e3);
	print_sums(&sums, by_experts);
}

#endif
