/* Stands in for the worker's header of this name, which says what each means. */
#ifndef HEARTH_TESTS_CUDA_CPU_PTX_CUH
#define HEARTH_TESTS_CUDA_CPU_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

DEFINE(void, previous_done, (void), cuda_cpu_previous_done())
DEFINE(void, let_next_begin, (void), (void)0)
DEFINE(void, fence, (void), cuda_cpu_pause())
DEFINE(void, copies_end_group, (void), cuda_cpu_copies_end_group())
DEFINE(void, copies_wait_but_one, (void), cuda_cpu_copies_wait(1))
DEFINE(void, copies_wait, (void), cuda_cpu_copies_wait_all())

/* Both ends are read here, where a sanitizer sees it. */
static inline void
copy16(void *to, const void *from)
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

#endif
