/* One warp chooses as a block does, to the bit, whatever the logits are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#include "tests/cuda_cpu/cuda_cpu.h"
#include "worker/cuda_choice.cuh"
#include "worker/cuda_launch.cuh"

#define ROUNDS 400u

struct choice {
	uint32_t chosen[FEW_CHOSEN];
	float weights[FEW_CHOSEN];
	unsigned long long used[FEW_EXPERTS];
};

/* Device memory.  Not in .bss, where it would be __shared__. */
static float logits[FEW_EXPERTS] __attribute__((section(".data")));
static struct choice of_warp __attribute__((section(".data")));
static struct choice of_block __attribute__((section(".data")));

static __global__ void
by_warp(struct cuda_moe moe PROBE_PARAM)
{
	CUDA_SHARED(struct few_room, few_memory);

	previous_done();
	if (threadIdx.x < 32)
		choose_of_few(moe, 0, few_memory);
}

static __global__ void
by_block(struct cuda_moe moe PROBE_PARAM)
{
	CUDA_SHARED(float, many_memory);

	previous_done();
	choose_of_many(moe, 0, many_memory);
}

static uint32_t
drawn(uint32_t below)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((state >> 33) * below >> 31);
}

/* From -1 to 1. */
static float
drawn_float(void)
{
	return (float)drawn(1u << 24) / (1u << 23) - 1;
}

static float
logit_of(uint32_t kind)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY, 0, -0.0f, 1, 3e38f, -3e38f };

	switch (kind) {
	case 0:
		return 8 * drawn_float();
	case 1: /* many equal ones */
		return (float)drawn(4);
	case 2: /* all */
		return -1.5f;
	case 3: /* far from each other: shares that are hardly there, or not at all */
		return 120 * drawn_float();
	case 4: /* next to each other: equal shares of different ones */
		return 1 + (float)drawn(32) / (1u << 23);
	case 5:
		return drawn(8) ? 2 * drawn_float() : odd[drawn(8)];
	case 6:
		return odd[drawn(8)];
	case 7:
		return NAN;
	case 8: /* one that has nearly all: shares of the others are hardly there */
		return drawn(64) ? -70 + 6 * drawn_float() : 24 + drawn_float();
	default:
		return drawn(20) ? -INFINITY : drawn_float();
	}
}

static void
check(uint32_t experts, uint32_t top_k)
{
	struct cuda_moe moe = {};
	uint32_t most = choice_bytes(FEW_EXPERTS + 1, top_k);
	struct error err;

	memset(&of_warp, 0, sizeof(of_warp));
	memset(&of_block, 0, sizeof(of_block));
	moe.experts = experts;
	moe.top_k = top_k;
	moe.logits.at = logits;
	moe.chosen = of_warp.chosen;
	moe.weights = of_warp.weights;
	moe.used = of_warp.used;
	assert_int_equal(cuda_launch("by_warp", by_warp, 1, CHOICE_THREADS,
				     choice_bytes(experts, top_k), NULL, &err, moe),
			 0);
	moe.chosen = of_block.chosen;
	moe.weights = of_block.weights;
	moe.used = of_block.used;
	assert_int_equal(
	    cuda_launch("by_block", by_block, 1, CHOICE_THREADS, most, NULL, &err, moe), 0);
	assert_int_equal(cuda_check(cudaStreamSynchronize(NULL), "choice", &err), 0);
	assert_memory_equal(&of_warp, &of_block, sizeof(of_warp));
}

static void
a_warp_chooses_as_a_block(void **)
{
	static const uint32_t experts[] = { 128, 60, 8, 1, 127, 97, 32, 33 };

	for (uint32_t round = 0; round < ROUNDS; round++) {
		uint32_t n = round % 2 ? experts[drawn(8)] : 1 + drawn(FEW_EXPERTS);
		uint32_t most = n < FEW_CHOSEN ? n : FEW_CHOSEN;

		cuda_cpu_order(round, 1);
		for (uint32_t e = 0; e < FEW_EXPERTS; e++)
			logits[e] = logit_of(round % 10);
		check(n, round % 3 ? most : 1 + drawn(most));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_warp_chooses_as_a_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
