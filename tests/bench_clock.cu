/* Asked by the host, a kernel says what time it is.  The question came between the host's two looks
 * at its own clock: the closer these are, the better the answer. */
#include "tests/bench_clock.h"

#include <errno.h>
#include <string.h>

#include "worker/cuda_launch.cuh"
#include "worker/cuda_ptx.cuh"

extern "C" {
#include "common/clock.h"
}

#define ROUNDS 400u
#define LIMIT_NS (1 * NS_PER_SECOND) /* of a wait */

/* In host memory, lines apart. */
struct questions {
	uint64_t asked; /* number of the question */
	uint64_t apart[15];
	uint64_t time; /* 0: no answer yet */
	uint64_t behind[15];
};

/* Has no probes: these are of the kernels that it is asked about. */
static __global__ void
clock_kernel(struct questions *questions)
{
	for (uint64_t round = 1; round <= ROUNDS; round++) {
		uint64_t begin = device_clock(), now = begin;

		while (load_of_host(&questions->asked) < round && now - begin < LIMIT_NS)
			now = device_clock();
		if (now - begin >= LIMIT_NS)
			return;
		store_for_host(&questions->time, device_clock());
		fence_for_host();
	}
}

/* 0: no answer came. */
static uint64_t
ask(struct questions *questions, uint64_t round, uint64_t *ret_before, uint64_t *ret_after)
{
	uint64_t time;

	__atomic_store_n(&questions->time, 0, __ATOMIC_RELAXED);
	*ret_before = clock_ns();
	__atomic_store_n(&questions->asked, round, __ATOMIC_RELEASE);
	do {
		time = __atomic_load_n(&questions->time, __ATOMIC_ACQUIRE);
		*ret_after = clock_ns();
	} while (time == 0 && *ret_after - *ret_before < 2 * LIMIT_NS);
	return time;
}

static int
ask_all(struct questions *questions, int64_t *ret_ns, uint64_t *ret_within_ns, struct error *err)
{
	uint64_t before, after, time, best = UINT64_MAX;

	for (uint64_t round = 1; round <= ROUNDS; round++) {
		time = ask(questions, round, &before, &after);
		if (time == 0)
			return error_set(err, -ETIMEDOUT,
					 "the GPU's clock: question %llu was not answered",
					 (unsigned long long)round);
		if (after - before >= best)
			continue;
		best = after - before;
		*ret_ns = (int64_t)(time - (before + best / 2));
		*ret_within_ns = (best + 1) / 2;
	}
	return 0;
}

extern "C" int
bench_clock_offset(int64_t *ret_ns, uint64_t *ret_within_ns, struct error *err)
{
	struct questions *questions = NULL;
	cudaLaunchConfig_t config = {};
	int finished, r;

	r = cuda_check(cudaHostAlloc(&questions, sizeof *questions, cudaHostAllocMapped),
		       "cudaHostAlloc", err);
	if (r)
		return r;
	memset(questions, 0, sizeof *questions);
	config.gridDim = config.blockDim = dim3(1);
	r = cuda_check(cudaLaunchKernelEx(&config, clock_kernel, questions), "clock_kernel", err);
	if (!r)
		r = ask_all(questions, ret_ns, ret_within_ns, err);
	finished = cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", err);
	cudaFreeHost(questions);
	return r ? r : finished;
}
