/* What the kernels say to the machine directly, each beside plain code of the same result for
 * devices that lack it, and for the CPU (tests/cuda_cpu). */
#ifndef HEARTH_WORKER_CUDA_PTX_CUH
#define HEARTH_WORKER_CUDA_PTX_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* Kernels overlap: one may begin while the kernel before it in the stream still runs, once every
 * block of that has called let_next_begin or ended.  Before its own previous_done it writes nothing
 * that an earlier kernel reads or writes, and reads of what these write only what was there before
 * the one before it let it begin: where that had called previous_done first, all from before that.
 * Every kernel calls previous_done, for else the next would run ahead of the one before. */
static __device__ __forceinline__ void
previous_done(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void
let_next_begin(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* 16 bytes from device memory to shared memory, both at a multiple of 16.  There for the copying
 * thread once it has called copies_wait. */
static __device__ __forceinline__ void
copy16(void *to, const void *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
			 (uint32_t)__cvta_generic_to_shared(to)),
		     "l"(__cvta_generic_to_global(from))
		     : "memory");
#else
	*(uint4 *)to = *(const uint4 *)from;
#endif
}

/* The same of weights.  Through the first cache, which makes whole lines of what lanes and
 * neighbouring rows ask for: over PCIe a part of a line takes as long as all of it. */
static __device__ __forceinline__ void
copy16_weights(void *to, const void *from)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(
			 (uint32_t)__cvta_generic_to_shared(to)),
		     "l"(__cvta_generic_to_global(from))
		     : "memory");
#else
	copy16(to, from);
#endif
}

static __device__ __forceinline__ void
copies_wait(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* The thread's copies since its last call are one group. */
static __device__ __forceinline__ void
copies_end_group(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for all groups of the thread but the N newest. */
template <int N>
static __device__ __forceinline__ void
copies_wait_but(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
#endif
}

/* What this thread, and those it met at a barrier, wrote before is seen by who sees what it writes
 * after; and the other way round for reads. */
static __device__ __forceinline__ void
fence(void)
{
#if defined(__CUDA_ARCH__)
	asm volatile("fence.acq_rel.gpu;" ::: "memory");
#else
	__threadfence();
#endif
}

/* The same for the host too. */
static __device__ __forceinline__ void
fence_for_host(void)
{
#if defined(__CUDA_ARCH__)
	asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
	__threadfence_system();
#endif
}

/* Adds 1 to a counter, or where it is `most` makes it 0.  Is both: a fence before it for what was
 * written, and one behind it for what is read.  What the counter was. */
static __device__ __forceinline__ uint32_t
arrive(uint32_t *counter, uint32_t most)
{
	uint32_t before;

#if defined(__CUDA_ARCH__)
	asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
		     : "=r"(before)
		     : "l"(__cvta_generic_to_global(counter)), "r"(most)
		     : "memory");
#else
	before = atomicInc(counter, most);
#endif
	return before;
}

/* A word of memory that host and device share.  Behind a fence: what was written before, by this
 * thread and those it met at a barrier, is seen by who has loaded what is stored.  The fence behind
 * it sends it on its way: without one it may stay in the device's cache until the next. */
static __device__ __forceinline__ void
store_for_host(uint64_t *at, uint64_t value)
{
#if defined(__CUDA_ARCH__)
	asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
#else
	*at = value;
#endif
}

static __device__ __forceinline__ uint64_t
load_of_host(const uint64_t *at)
{
	uint64_t value;
#if defined(__CUDA_ARCH__)
	asm volatile("ld.relaxed.sys.u64 %0, [%1]; fence.acq_rel.sys;"
		     : "=l"(value)
		     : "l"(at)
		     : "memory");
#else
	value = *at;
#endif
	return value;
}

/* Of the device, in ns: one for all its blocks, not the host's. */
static __device__ __forceinline__ uint64_t
device_clock(void)
{
	uint64_t now = 0;

#if defined(__CUDA_ARCH__)
	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
#endif
	return now;
}

/* Between two looks at something that is waited for. */
static __device__ __forceinline__ void
wait_briefly(void)
{
#if defined(__CUDA_ARCH__)
	asm volatile("nanosleep.u32 100;");
#endif
}

/* The value, of which the compiler does not know that it has been there before: what is computed
 * from it is not what else was computed from the same. */
static __device__ __forceinline__ float
apart(float value)
{
#if defined(__CUDA_ARCH__)
	asm volatile("" : "+f"(value));
#endif
	return value;
}

/* 1 / value to a unit in the last place. */
static __device__ __forceinline__ float
inverse_fast(float value)
{
	float ret = 0;

#ifdef __CUDA_ARCH__
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(ret) : "f"(value));
#endif
	return ret;
}

/* sum + the products of four unsigned bytes with four signed ones. */
static __device__ __forceinline__ int32_t
dot4(uint32_t bytes, uint32_t with, int32_t sum)
{
#ifdef __CUDA_ARCH__
	asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(bytes), "r"(with), "r"(sum));
#else
	for (int i = 0; i < 4; i++)
		sum += (int32_t)(bytes >> 8 * i & 255) * (int8_t)(with >> 8 * i);
#endif
	return sum;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <bool SIGNED>
static __device__ __forceinline__ void
multiply_quarter(int32_t &first, int32_t &second, uint32_t a, uint32_t b)
{
	if (SIGNED)
		asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
		    : "+r"(first), "+r"(second)
		    : "r"(a), "r"(b));
	else
		asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
		    : "+r"(first), "+r"(second)
		    : "r"(a), "r"(b));
}
#endif

/* By a whole warp: adds the product of two matrices of bytes, (16, 32) by (32, 8), the first SIGNED
 * or not, the second signed.  With g = lane / 4 and t = lane % 4 a lane has of the first rows g and
 * g + 8, of the second column g, each in columns or rows 4 * t .. and then 16 + 4 * t ..; of the
 * sums row g and then row g + 8, of each columns 2 * t and the next. */
template <bool SIGNED>
static __device__ __forceinline__ void
multiply_bytes(int32_t (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MULTIPLY(type)                                                                 \
	asm("mma.sync.aligned.m16n8k32.row.col.s32." type ".s8.s32 {%0, %1, %2, %3}, " \
	    "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                            \
	    : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])                   \
	    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
	if (SIGNED)
		MULTIPLY("s8");
	else
		MULTIPLY("u8");
#undef MULTIPLY
#elif defined(__CUDA_ARCH__)
	multiply_quarter<SIGNED>(sum[0], sum[1], a[0], b0);
	multiply_quarter<SIGNED>(sum[0], sum[1], a[2], b1);
	multiply_quarter<SIGNED>(sum[2], sum[3], a[1], b0);
	multiply_quarter<SIGNED>(sum[2], sum[3], a[3], b1);
#endif
}

/* 2^x to 2 units in the last place; below 2^-126 it is 0. */
static __device__ __forceinline__ float
exp2_fast(float x)
{
	float ret = 0;

#ifdef __CUDA_ARCH__
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(ret) : "f"(x));
#endif
	return ret;
}

#endif
