/* Which blocks read the experts' rows whole: those of which two have room on an SM. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>

#include "common/types.h"
}

#include "tests/cuda_cpu/cuda_cpu.h"
#include "worker/cuda_experts.cuh"
#include "worker/cuda_launch.cuh"

#define HIDDEN 2048u
#define WIDTH 768u

typedef int launcher(void *stream, const struct cuda_moe *moe, bool *ret_done, struct error *err);

static void
check(int r, const struct error *err)
{
	if (r)
		fail_msg("%s", err->text);
}

/* Of blocks that may have `shared`: whether it launches, and how much of it a block takes. */
static bool
launches(launcher *launch, const struct cuda_moe *moe, uint32_t shared, uint64_t *ret_bytes)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	struct error err;
	bool done;

	cuda_cpu_shared(shared);
	check(cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "", &err),
	      &err);
	/* Captured, and so never run. */
	check(cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "", &err),
	      &err);
	check(launch(stream, moe, &done, &err), &err);
	*ret_bytes = cuda_cpu_counts().shared;
	check(cuda_check(cudaStreamEndCapture(stream, &graph), "", &err), &err);
	cudaGraphDestroy(graph);
	cudaStreamDestroy(stream);
	return done;
}

static void
two_blocks_fit_with_what_the_system_takes_of_each(launcher *launch, const struct cuda_moe *moe)
{
	uint32_t shared = 32u << 10;
	uint64_t bytes = 0, none;

	while (!launches(launch, moe, shared, &bytes)) {
		assert_true(shared < 227u << 10);
		shared++;
	}
	assert_true(bytes > 16u << 10);
	assert_true(2 * (bytes + CUDA_CPU_RESERVED) <= shared + CUDA_CPU_RESERVED);
	assert_true(2 * (bytes + CUDA_CPU_RESERVED) > shared - 2 + CUDA_CPU_RESERVED);
	assert_false(launches(launch, moe, shared - 1, &none));
}

static void
rows_are_read_whole_where_two_blocks_fit(void **)
{
	struct cuda_moe moe = {};

	for (uint32_t role = 0; role < N_ROLES; role++) {
		moe.type[role] = TYPE_Q4_K;
		moe.row_bytes[role] = (role == ROLE_DOWN ? WIDTH : HIDDEN) / 256 * 144;
	}
	moe.hidden = HIDDEN;
	moe.width = WIDTH;
	moe.experts = 128;
	moe.top_k = 8;
	moe.x.fixed.stride = CUDA_FIXED_BYTES(HIDDEN);
	moe.act.fixed.stride = CUDA_FIXED_BYTES(WIDTH);
	two_blocks_fit_with_what_the_system_takes_of_each(cuda_landed_in, &moe);
	two_blocks_fit_with_what_the_system_takes_of_each(cuda_landed_out, &moe);
	cuda_cpu_shared(227u << 10);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_read_whole_where_two_blocks_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
