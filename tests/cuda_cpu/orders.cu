/* What tests/cuda_cpu promises: mistakes of kernels that it finds, orders that it tries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include <cmocka.h>
}

#include "tests/cuda_cpu/cuda_cpu.h"
#include "worker/cuda_launch.cuh"
#include "worker/cuda_ptx.cuh"

#define SEEDS 200

#define WORDS 4096u

/* Device memory: WORDS of them, 0 before each test.  Not in .bss, where it would be __shared__. */
static unsigned *words __attribute__((section(".data")));

/* As cuda_launch, but the kernel begins when the one before has ended. */
template <class... Params, class... Args>
static int
launch_alone(void (*kernel)(Params...), unsigned blocks, unsigned threads, cudaStream_t stream,
	     struct error *err, Args... args)
{
	cudaLaunchConfig_t config = {};

	config.gridDim = dim3(blocks);
	config.blockDim = dim3(threads);
	config.stream = stream;
	return cuda_check(cudaLaunchKernelEx(&config, kernel, args...), "kernel", err);
}

template <class... Params, class... Args>
static int
run(void (*kernel)(Params...), unsigned blocks, unsigned threads, struct error *err, Args... args)
{
	int r = launch_alone(kernel, blocks, threads, NULL, err, args...);

	return r ? r : cuda_check(cudaStreamSynchronize(NULL), "kernel", err);
}

template <class... Params>
static void
fails_with(void (*kernel)(Params...), unsigned threads, const char *want)
{
	struct error err;

	for (uint32_t seed = 0; seed < 20; seed++) {
		cuda_cpu_order(seed, 0);
		assert_int_equal(run(kernel, 3, threads, &err, words), -EIO);
		if (!strstr(err.text, want) || !strstr(err.text, "orders.cu:"))
			fail_msg("%s: want %s", err.text, want);
	}
}

static __global__ void
barrier_skipped(unsigned *)
{
	if (threadIdx.x != 40)
		__syncthreads();
}

static __global__ void
barrier_and_collective(unsigned *)
{
	if (threadIdx.x < 40)
		__syncthreads();
	else
		__syncwarp();
	__syncthreads();
}

static __global__ void
lane_missing(unsigned *to)
{
	if (threadIdx.x != 7)
		to[threadIdx.x] = __shfl_xor_sync(0xffffffffu, threadIdx.x, 1);
}

static __global__ void
lane_not_named(unsigned *to)
{
	to[threadIdx.x] = __ballot_sync(0x7fffffffu, 1);
}

static __global__ void
two_collectives(unsigned *to)
{
	if (threadIdx.x % 32 < 16)
		to[threadIdx.x] = __ballot_sync(0xffffffffu, 1);
	else
		to[threadIdx.x] = __shfl_sync(0xffffffffu, 1u, 0);
}

static __global__ void
value_of_nobody(unsigned *to)
{
	if (threadIdx.x < 16)
		to[threadIdx.x] = __shfl_sync(0xffffu, threadIdx.x, 20);
}

static void
what_not_all_reach_is_an_error_that_says_where(void **)
{
	fails_with(barrier_skipped, 64, "__syncthreads");
	fails_with(barrier_and_collective, 64, "others never come here");
	fails_with(lane_missing, 64, "__shfl_xor_sync");
	fails_with(lane_not_named, 64, "not in its own mask 7fffffff");
	fails_with(two_collectives, 64, "wait in another collective");
	fails_with(value_of_nobody, 32, "wants the value of lane 20");
}

static __global__ void
shared_unwritten(unsigned *to)
{
	__shared__ float before[64];

	if (isnan(before[threadIdx.x]))
		to[blockIdx.x] = 1;
	__syncthreads();
	before[threadIdx.x] = 1;
}

static void
shared_memory_is_no_number_at_the_start_of_each_block(void **)
{
	struct error err;

	assert_int_equal(run(shared_unwritten, 50, 64, &err, words), 0);
	for (int i = 0; i < 50; i++)
		assert_int_equal(words[i], 1);
}

/* Each block its sum; with the barrier as it should be, or without. */
template <bool BARRIER>
static __global__ void
exchange(unsigned *to)
{
	__shared__ unsigned room[128];

	room[threadIdx.x] = threadIdx.x;
	if (BARRIER)
		__syncthreads();
	to[128 * blockIdx.x + threadIdx.x] = room[127 - threadIdx.x];
}

/* In how many orders the result is right. */
template <class... Params>
static int
times_right(void (*kernel)(Params...), unsigned blocks, unsigned (*want)(unsigned), unsigned n)
{
	struct error err;
	int right = 0;

	for (uint32_t seed = 0; seed < SEEDS; seed++) {
		bool same = true;

		cuda_cpu_order(seed, seed % (CUDA_CPU_TOGETHER + 1));
		memset(words, 0, WORDS * sizeof *words);
		assert_int_equal(run(kernel, blocks, 128, &err, words), 0);
		for (unsigned i = 0; i < n; i++)
			same = same && words[i] == want(i);
		right += same;
	}
	return right;
}

static void
a_barrier_that_is_missing_changes_results(void **)
{
	auto want = [](unsigned i) { return 127 - i % 128; };

	assert_int_equal(times_right(exchange<true>, 9, want, 9 * 128), SEEDS);
	assert_in_range(times_right(exchange<false>, 9, want, 9 * 128), 0, SEEDS / 10);
}

#define JOINED 1000u /* words: before it the blocks' sums, the counter behind it */

/* The last block to come adds up what all have written; counted by an atomic, or by what only looks
 * like one. */
template <bool ATOMIC>
static __global__ void
join(unsigned *to)
{
	__shared__ bool last;

	if (threadIdx.x == 0) {
		unsigned before;

		to[blockIdx.x] = blockIdx.x + 1;
		__threadfence();
		if (ATOMIC) {
			before = atomicAdd(&to[JOINED + 1], 1u);
		} else {
			before = to[JOINED + 1];
			__threadfence();
			to[JOINED + 1] = before + 1;
		}
		last = before == gridDim.x - 1;
	}
	__syncthreads();
	if (last && threadIdx.x == 0) {
		unsigned sum = 0;

		for (unsigned i = 0; i < gridDim.x; i++)
			sum += to[i];
		to[JOINED] = sum;
		to[JOINED + 1] = 0;
	}
}

static void
the_last_block_joins_in_any_order_of_blocks(void **)
{
	auto want = [](unsigned i) { return i < 30 ? i + 1 : i == JOINED ? 465u : 0u; };

	assert_int_equal(times_right(join<true>, 30, want, WORDS), SEEDS);
	assert_in_range(times_right(join<false>, 30, want, WORDS), 1, SEEDS / 2);
}

#define OVERLAPS 20u

/* Each adds 1 to what the one before left, having waited for it before it looks or not. */
template <bool BEFORE>
static __global__ void
overlapping(unsigned *to)
{
	unsigned seen = to[blockIdx.x];

	previous_done();
	if (BEFORE)
		seen = to[blockIdx.x];
	to[blockIdx.x] = seen + 1;
}

template <bool BEFORE>
static void
launch_overlapping(struct cudaLaunchAttribute *attribute)
{
	struct cudaLaunchConfig_t config = {};

	config.gridDim = 3;
	config.blockDim = 1;
	config.attrs = attribute;
	config.numAttrs = 1;
	for (uint32_t i = 0; i < OVERLAPS; i++)
		assert_int_equal(cudaLaunchKernelEx(&config, overlapping<BEFORE>, words), 0);
	assert_int_equal(cudaStreamSynchronize(NULL), 0);
}

static void
a_kernel_that_overlaps_sees_the_one_before_only_when_it_has_waited(void **)
{
	struct cudaLaunchAttribute attribute;
	struct error err;

	attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
	attribute.val.programmaticStreamSerializationAllowed = 1;
	launch_overlapping<true>(&attribute);
	assert_int_equal(words[0] + words[1] + words[2], 3 * OVERLAPS);
	memset(words, 0, WORDS * sizeof *words);
	launch_overlapping<false>(&attribute);
	assert_in_range(words[0] + words[1] + words[2], OVERLAPS, 3 * OVERLAPS - 1);
	assert_int_equal(run(shared_unwritten, 50, 64, &err, words), 0);
}

/* Each thread another's 16 bytes, by way of shared memory. */
template <bool WAITS>
static __global__ void
copies(unsigned *to)
{
	__shared__ uint4 room[64], next[64];
	unsigned i = threadIdx.x;

	copy16(&room[i], to + 1024 + 4 * i);
	copies_end_group();
	copy16(&next[i], to + 1024 + 4 * i);
	copies_end_group();
	if (WAITS)
		copies_wait_but<1>();
	__syncthreads();
	to[i] = room[63 - i].y;
	copies_wait();
	__syncthreads();
	to[64 + i] = next[63 - i].z;
}

static void
a_copy_is_there_when_it_was_waited_for(void **)
{
	struct error err;
	unsigned wrong = 0;

	for (unsigned i = 0; i < 256; i++)
		words[1024 + i] = i;
	assert_int_equal(run(copies<true>, 1, 64, &err, words), 0);
	for (unsigned i = 0; i < 128; i++)
		assert_int_equal(words[i], 4 * (63 - i % 64) + 1 + i / 64);
	assert_int_equal(run(copies<false>, 1, 64, &err, words), 0);
	for (unsigned i = 0; i < 64; i++)
		wrong += words[i] != 4 * (63 - i) + 1;
	assert_in_range(wrong, 1, 63);
}

static __global__ void
collectives(unsigned *to)
{
	unsigned lane = threadIdx.x % 32, all = 0xffffffffu;

	to[lane] = __shfl_up_sync(all, lane, 3) + 100 * __shfl_down_sync(all, lane, 3, 16);
	to[32 + lane] = __shfl_sync(all, lane, 5, 8) + 100 * __shfl_xor_sync(all, lane, 17);
	to[64 + lane] = __ballot_sync(all, lane % 3 == 0);
	to[96 + lane] = (unsigned)__reduce_min_sync(all, (int)lane - 9);
	to[128 + lane] = __reduce_add_sync(all, lane);
	if (lane < 16)
		to[160 + lane] = __reduce_max_sync(0xffffu, lane);
	else
		to[160 + lane] = __any_sync(0xffff0000u, lane == 20) + 100;
}

static void
collectives_give_what_the_guide_says(void **)
{
	struct error err;

	assert_int_equal(run(collectives, 1, 32, &err, words), 0);
	for (unsigned i = 0; i < 32; i++) {
		unsigned up = i < 3 ? i : i - 3, down = i % 16 < 13 ? i + 3 : i;

		assert_int_equal(words[i], up + 100 * down);
		assert_int_equal(words[32 + i], i / 8 * 8 + 5 + 100 * (i ^ 17));
		assert_int_equal(words[64 + i], 0x49249249u);
		assert_int_equal((int)words[96 + i], -9);
		assert_int_equal(words[128 + i], 496);
		assert_int_equal(words[160 + i], i < 16 ? 15 : 101);
	}
	assert_int_equal(__dp4a(0x01ff7f80, 0x02fe0303, 7), 7 + 2 + 2 + 381 - 384);
	assert_int_equal(__dp4a(0x01ff7f80u, 0x02fe0303u, 7u), 7 + 2 + 255 * 254 + 381 + 384);
	assert_int_equal(__byte_perm(0x33221100, 0x77665544, 0x7250), 0x77225500);
	assert_int_equal(__funnelshift_r(0x11223344, 0x55667788, 16), 0x77881122);
}

static __global__ void
add_to_first(unsigned *to, unsigned what)
{
	if (threadIdx.x == 0)
		to[0] += what;
}

static void
a_stream_does_nothing_until_it_is_waited_for_and_a_graph_does_it_again(void **)
{
	cudaStream_t stream;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	struct error err;

	assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
	assert_int_equal(launch_alone(add_to_first, 1, 32, stream, &err, words, 5u), 0);
	assert_int_equal(words[0], 0);
	assert_int_equal(cudaStreamSynchronize(stream), 0);
	assert_int_equal(words[0], 5);
	assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), 0);
	assert_int_equal(launch_alone(add_to_first, 1, 32, stream, &err, words, 7u), 0);
	assert_int_equal(cudaStreamEndCapture(stream, &graph), 0);
	assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(cudaGraphLaunch(exec, stream), 0);
	assert_int_equal(words[0], 5);
	assert_int_equal(cudaStreamSynchronize(stream), 0);
	assert_int_equal(words[0], 5 + 3 * 7);
	cudaGraphDestroy(graph);
	cudaGraphExecDestroy(exec);
	cudaStreamDestroy(stream);
}

static int
words_are_zero(void **)
{
	cuda_cpu_order(1, 0);
	memset(words, 0, WORDS * sizeof *words);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup(name, words_are_zero)
		TEST(what_not_all_reach_is_an_error_that_says_where),
		TEST(shared_memory_is_no_number_at_the_start_of_each_block),
		TEST(a_barrier_that_is_missing_changes_results),
		TEST(the_last_block_joins_in_any_order_of_blocks),
		TEST(a_kernel_that_overlaps_sees_the_one_before_only_when_it_has_waited),
		TEST(a_copy_is_there_when_it_was_waited_for),
		TEST(collectives_give_what_the_guide_says),
		TEST(a_stream_does_nothing_until_it_is_waited_for_and_a_graph_does_it_again),
	};
	int failed;

	if (cudaMalloc(&words, WORDS * sizeof *words))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	cudaFree(words);
	return failed;
}
