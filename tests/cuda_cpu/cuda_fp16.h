/* Of CUDA's header of this name, what the kernels use, on the CPU. */
#ifndef HEARTH_TESTS_CUDA_CPU_FP16_H
#define HEARTH_TESTS_CUDA_CPU_FP16_H

#include <immintrin.h>

struct __half {
	unsigned short bits;
};

static inline __half
__ushort_as_half(unsigned short bits)
{
	return __half{ bits };
}

static inline unsigned short
__half_as_ushort(__half half)
{
	return half.bits;
}

static inline float
__half2float(__half half)
{
	return _cvtsh_ss(half.bits);
}

static inline __half
__float2half_rn(float value)
{
	return __half{ _cvtss_sh(value, 0) };
}

#endif
