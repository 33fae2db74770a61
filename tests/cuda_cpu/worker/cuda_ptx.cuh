/* Stands in for the worker's header of this name, which says what each means. */
#ifndef HEARTH_TESTS_CUDA_CPU_PTX_CUH
#define HEARTH_TESTS_CUDA_CPU_PTX_CUH

#include <cuda_runtime.h>
#include <sched.h>
#include <stdint.h>

extern "C" {
#include "common/clock.h"
}

DEFINE(void, previous_done, (void), cuda_cpu_previous_done())
DEFINE(void, let_next_begin, (void), (void)0)
DEFINE(void, fence, (void), cuda_cpu_pause())
DEFINE(void, fence_for_host, (void), cuda_cpu_pause())
DEFINE(void, copies_end_group, (void), cuda_cpu_copies_end_group())
template <int N>
DEFINE(void, copies_wait_but, (void), cuda_cpu_copies_wait(N))
DEFINE(void, copies_wait, (void), cuda_cpu_copies_wait_all())

    /* The host's threads are others than the one that runs blocks. */
    DEFINE(void, store_for_host, (uint64_t * at, uint64_t value),
	   __atomic_store_n(at, value, __ATOMIC_RELEASE))
	DEFINE(uint64_t, load_of_host, (const uint64_t *at), __atomic_load_n(at, __ATOMIC_ACQUIRE))
	    DEFINE(uint64_t, device_clock, (void), clock_ns())
		DEFINE(void, wait_briefly, (void), (sched_yield(), cuda_cpu_pause()))

    /* Both ends are read here, where a sanitizer sees it. */
    static inline void copy16(void *to, const void *from)
{
	uint4 bytes = *(const uint4 *)from;

	(void)*(volatile unsigned *)to;
	(void)((volatile uint4 *)to)->w;
	cuda_cpu_copy16(to, &bytes);
}

DEFINE(void, copy16_weights, (void *to, const void *from), copy16(to, from))

static inline int32_t
dot4(uint32_t bytes, uint32_t with, int32_t sum)
{
	for (int i = 0; i < 4; i++)
		sum += (int32_t)(bytes >> 8 * i & 255) * (int8_t)(with >> 8 * i);
	return sum;
}

DEFINE(float, exp2_fast, (float x), exp2f(x))
DEFINE(float, inverse_fast, (float x), 1 / x)
DEFINE(float, apart, (float x), x)
DEFINE(uint32_t, arrive, (uint32_t * counter, uint32_t most), atomicInc(counter, most))

template <bool SIGNED>
static inline void
multiply_bytes(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, CUDA_CPU_LINE)
{
	struct cuda_cpu_product mine = { SIGNED, { a[0], a[1], a[2], a[3] }, { b0, b1 }, {} };

	cuda_cpu_collective(CUDA_CPU_PRODUCT, ~0u, (uint64_t)&mine, 0, "multiply_bytes", at);
	for (int i = 0; i < 4; i++)
		sum[i] += mine.sum[i];
}

#endif
