/* CUDA kernels on the CPU, for tests on machines without a GPU: the .cu files compiled by g++
 * against the cuda_runtime.h of this folder.  What tests ask of it.
 *
 * A block's threads are fibers, run in an order that is drawn anew for each launch; blocks run one
 * after another or a few at a time, in an order that is drawn too.  So it shows: results that
 * depend on the order of warps or blocks between barriers, shared memory that is read before it is
 * written (it starts as NaNs), barriers and warp collectives that not all reach (an error of the
 * launch that says where), and, in a build with AddressSanitizer, each byte beyond an allocation.
 * A stream does nothing until it is waited for, and no more than that, so a result read too early
 * is not there yet.
 *
 * It does not show: races within what lies between two barriers of one warp, the memory model (all
 * is seen at once, in program order), alignment of loads without UndefinedBehaviorSanitizer, host
 * memory that is read without being registered, contraction of a * b + c, and anything about speed.
 */
#ifndef HEARTH_TESTS_CUDA_CPU_H
#define HEARTH_TESTS_CUDA_CPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls since the program began. */
struct cuda_cpu_calls {
	uint64_t allocations; /* and frees, of device and pinned memory; streams, events, graphs */
	uint64_t waits;       /* of the host, for a stream, an event or for all */
	uint64_t launches;    /* of kernels by the host, without those of graphs */
	uint64_t graphs;      /* launched */
	uint64_t copies;      /* and fills, without those of graphs */
	uint64_t shared;      /* bytes that a block of the last launch asked for */
};

struct cuda_cpu_calls cuda_cpu_counts(void);

/* The orders of all launches from now on follow from `seed`.  `together`: blocks under way at once,
 * at most CUDA_CPU_TOGETHER; 0: drawn for each launch. */
#define CUDA_CPU_TOGETHER 4u
void cuda_cpu_order(uint64_t seed, uint32_t together);

/* A block may have so much shared memory from now on; 227 KiB in the beginning.  An SM has
 * CUDA_CPU_RESERVED more, and takes so much for itself of each block that it runs. */
#define CUDA_CPU_RESERVED 1024
void cuda_cpu_shared(size_t bytes);

/* The call of that name, the `which`-th from now on (the next is 1), fails: cudaSetDevice,
 * cudaHostAlloc, cudaLaunchKernelEx, cudaGraphLaunch.  0: none does. */
void cuda_cpu_fail(const char *call, uint64_t which);

/* Time passes: all that was launched is done before anybody waits. */
void cuda_cpu_pass_time(void);

/* The graph that is launched next fails when it runs. */
void cuda_cpu_break_graph(void);

#ifdef __cplusplus
}
#endif
#endif
