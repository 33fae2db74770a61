/* Stands in for CUDA's header of this name when .cu files are compiled for the CPU; cuda_cpu.h says
 * what for.  What the kernels of this project use and no more; a name that is missing is added
 * here, as the CUDA C++ Programming Guide has it. */
#ifndef HEARTH_TESTS_CUDA_CPU_RUNTIME_H
#define HEARTH_TESTS_CUDA_CPU_RUNTIME_H

#include <math.h>
#include <string.h>

#include "tests/cuda_cpu/fibers.h"
#include "tests/cuda_cpu/runtime.h"

#define __host__
#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static /* to .bss: shared.ld */
#define CUDA_SHARED(type, name) type *const name = (type *)cuda_cpu_here->shared

#define threadIdx (cuda_cpu_here->thread)
#define blockIdx (cuda_cpu_here->block)
#define warpSize ((int)CUDA_CPU_WARP)

#define DEFINE(T, name, arguments, value) \
	static inline T name arguments    \
	{                                 \
		return value;             \
	}

/* -- vectors -- */

#define VECTORS(T, name)                                                \
	struct alignas(2 * sizeof(T)) name##2                           \
	{                                                               \
		T x, y;                                                 \
	};                                                              \
	struct alignas(4 * sizeof(T)) name##4                           \
	{                                                               \
		T x, y, z, w;                                           \
	};                                                              \
	DEFINE(name##2, make_##name##2, (T x, T y), (name##2 { x, y })) \
	DEFINE(name##4, make_##name##4, (T x, T y, T z, T w), (name##4 { x, y, z, w }))
VECTORS(int, int)
VECTORS(unsigned, uint)
VECTORS(float, float)
VECTORS(signed char, char)
VECTORS(unsigned char, uchar)
VECTORS(short, short)
VECTORS(unsigned short, ushort)

/* -- arithmetic -- */

#define MIN_MAX(T)                                \
	DEFINE(T, min, (T a, T b), b < a ? b : a) \
	DEFINE(T, max, (T a, T b), a < b ? b : a)
MIN_MAX(int)
MIN_MAX(unsigned)
MIN_MAX(long)
MIN_MAX(unsigned long)
MIN_MAX(unsigned long long)
MIN_MAX(float)

template <class To, class From>
static inline To
cuda_cpu_bits(From from)
{
	static_assert(sizeof(To) == sizeof(From), "as many bits");
	To to;

	memcpy(&to, &from, sizeof to);
	return to;
}

DEFINE(float, __uint_as_float, (unsigned v), cuda_cpu_bits<float>(v))
DEFINE(float, __int_as_float, (int v), cuda_cpu_bits<float>(v))
DEFINE(unsigned, __float_as_uint, (float v), cuda_cpu_bits<unsigned>(v))
DEFINE(int, __float_as_int, (float v), cuda_cpu_bits<int>(v))
DEFINE(float, __int2float_rn, (int v), (float)v)
DEFINE(float, __uint2float_rn, (unsigned v), (float)v)
DEFINE(int, __float2int_rn, (float v), (int)rintf(v))
DEFINE(float, __fdividef, (float a, float b), a / b)
DEFINE(float, __fdiv_rn, (float a, float b), a / b)
DEFINE(float, __frcp_rn, (float v), 1 / v)
DEFINE(float, __fsqrt_rn, (float v), sqrtf(v))
DEFINE(float, __fmul_rn, (float a, float b), a *b)
DEFINE(float, __fadd_rn, (float a, float b), a + b)
DEFINE(float, __fmaf_rn, (float a, float b, float c), fmaf(a, b, c))
DEFINE(float, rsqrtf, (float v), 1 / sqrtf(v))
DEFINE(int, __popc, (unsigned v), __builtin_popcount(v))
DEFINE(int, __ffs, (int v), __builtin_ffs(v))
DEFINE(int, __clz, (int v), v ? __builtin_clz((unsigned)v) : 32)
#define __expf(v) expf(v)
#define __logf(v) logf(v)

/* Bytes 0 to 3 are those of a, 4 to 7 of b; a nibble of `which` with its top bit spreads the sign.
 */
static inline unsigned
__byte_perm(unsigned a, unsigned b, unsigned which)
{
	uint64_t both = (uint64_t)b << 32 | a;
	unsigned ret = 0;

	for (int i = 0; i < 4; i++) {
		unsigned nibble = which >> 4 * i & 15, byte = both >> 8 * (nibble & 7) & 255;

		ret |= (nibble & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
	}
	return ret;
}

DEFINE(uint64_t, cuda_cpu_wide, (unsigned low, unsigned high), (uint64_t)high << 32 | low)
DEFINE(unsigned, __funnelshift_r, (unsigned low, unsigned high, unsigned by),
       (unsigned)(cuda_cpu_wide(low, high) >> (by & 31)))
DEFINE(unsigned, __funnelshift_l, (unsigned low, unsigned high, unsigned by),
       (unsigned)(cuda_cpu_wide(low, high) << (by & 31) >> 32))

static inline int
__dp4a(int a, int b, int sum)
{
	for (int i = 0; i < 4; i++)
		sum += (signed char)(a >> 8 * i) * (signed char)(b >> 8 * i);
	return sum;
}

static inline unsigned
__dp4a(unsigned a, unsigned b, unsigned sum)
{
	for (int i = 0; i < 4; i++)
		sum += (a >> 8 * i & 255) * (b >> 8 * i & 255);
	return sum;
}

/* -- memory -- */

#define READ(name) template <class T> DEFINE(T, name, (const T *at), *at)
READ(__ldg)
READ(__ldcs)
READ(__ldcg)
READ(__ldca)
READ(__ldlu)
READ(__ldcv)
#define WRITE(name) template <class T> DEFINE(void, name, (T * at, T value), (void)(*at = value))
WRITE(__stcg)
WRITE(__stcs)
WRITE(__stwt)
DEFINE(void, __threadfence_block, (void), cuda_cpu_pause())
DEFINE(void, __threadfence, (void), cuda_cpu_pause())
DEFINE(void, __threadfence_system, (void), cuda_cpu_pause())

/* Others run between any two, never within one. */
#define ATOMIC(T, name, change)              \
	static inline T name(T *at, T value) \
	{                                    \
		cuda_cpu_pause();            \
		T old = *at;                 \
		*at = change;                \
		cuda_cpu_pause();            \
		return old;                  \
	}
ATOMIC(int, atomicAdd, old + value)
ATOMIC(unsigned, atomicAdd, old + value)
ATOMIC(unsigned long long, atomicAdd, old + value)
ATOMIC(float, atomicAdd, old + value)
ATOMIC(unsigned, atomicSub, old - value)
ATOMIC(int, atomicMax, max(old, value))
ATOMIC(unsigned, atomicMax, max(old, value))
ATOMIC(unsigned long long, atomicMax, max(old, value))
ATOMIC(unsigned, atomicMin, min(old, value))
ATOMIC(unsigned, atomicOr, old | value)
ATOMIC(unsigned, atomicExch, value)
ATOMIC(unsigned long long, atomicExch, value)
ATOMIC(unsigned, atomicInc, old >= value ? 0 : old + 1)

static inline unsigned
atomicCAS(unsigned *at, unsigned want, unsigned value)
{
	cuda_cpu_pause();
	unsigned old = *at;
	if (old == want)
		*at = value;
	cuda_cpu_pause();
	return old;
}

/* -- all threads of a block, all lanes of a warp -- */

DEFINE(void, __syncthreads, (CUDA_CPU_LINE), cuda_cpu_barrier(at))
DEFINE(void, __syncwarp, (unsigned mask = ~0u, CUDA_CPU_LINE),
       (void)cuda_cpu_collective(CUDA_CPU_SYNC, mask, 0, 0, "__syncwarp", at))

template <class T>
static inline T
cuda_cpu_shuffle(unsigned mask, T value, unsigned source, const char *name, cuda_cpu_line at)
{
	static_assert(sizeof(T) <= 8, "what one shuffle takes");
	uint64_t bits = 0;

	memcpy(&bits, &value, sizeof value);
	bits = cuda_cpu_collective(CUDA_CPU_SHUFFLE, mask, bits, source, name, at);
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* `inside`: whether the lane wanted lies in the caller's group of `width`; if not, its own. */
#define SHUFFLE(name, T2, wanted, inside)                                                          \
	template <class T>                                                                         \
	static inline T name(unsigned mask, T value, T2 by, int width = 32, CUDA_CPU_LINE)         \
	{                                                                                          \
		int lane = (int)cuda_cpu_here->lane, group = lane / width * width, from = wanted;  \
		return cuda_cpu_shuffle(mask, value, (unsigned)(inside ? from : lane), #name, at); \
	}
SHUFFLE(__shfl_sync, int, group + (by & (width - 1)), true)
SHUFFLE(__shfl_up_sync, unsigned, lane - (int)by, from >= group)
SHUFFLE(__shfl_down_sync, unsigned, lane + (int)by, from < group + width)
SHUFFLE(__shfl_xor_sync, int, lane ^ by, from < group + width)

DEFINE(unsigned, __ballot_sync, (unsigned mask, int yes, CUDA_CPU_LINE),
       (unsigned)cuda_cpu_collective(CUDA_CPU_OR, mask, yes ? 1u << cuda_cpu_here->lane : 0, 0,
				     "__ballot_sync", at))
DEFINE(int, __any_sync, (unsigned mask, int yes, CUDA_CPU_LINE),
       (int)cuda_cpu_collective(CUDA_CPU_OR, mask, yes != 0, 0, "__any_sync", at))
DEFINE(int, __all_sync, (unsigned mask, int yes, CUDA_CPU_LINE),
       (int)cuda_cpu_collective(CUDA_CPU_AND, mask, yes != 0, 0, "__all_sync", at))

/* Signed values in the order of unsigned ones, for the least and the greatest. */
#define REDUCE(T, name, kind, flip)                                                            \
	DEFINE(T, name, (unsigned mask, T value, CUDA_CPU_LINE),                               \
	       (T)(flip ^ (unsigned)cuda_cpu_collective(kind, mask, (unsigned)value ^ flip, 0, \
							#name, at)))
REDUCE(int, __reduce_add_sync, CUDA_CPU_ADD, 0u)
REDUCE(unsigned, __reduce_add_sync, CUDA_CPU_ADD, 0u)
REDUCE(int, __reduce_min_sync, CUDA_CPU_MIN, 1u << 31)
REDUCE(unsigned, __reduce_min_sync, CUDA_CPU_MIN, 0u)
REDUCE(int, __reduce_max_sync, CUDA_CPU_MAX, 1u << 31)
REDUCE(unsigned, __reduce_max_sync, CUDA_CPU_MAX, 0u)
REDUCE(unsigned, __reduce_or_sync, CUDA_CPU_OR, 0u)
REDUCE(unsigned, __reduce_and_sync, CUDA_CPU_AND, 0u)

#endif
