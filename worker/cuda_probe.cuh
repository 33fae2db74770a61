/* Where a token's time goes.  In a build with PROBE=1 each block writes down, for each launch, when
 * it came to which mark; in any other this is nothing.  One thread launches.
 *
 * A kernel has PROBE_PARAM behind its last parameter, PROBE_BEGIN where it begins, marks where its
 * first thread comes by, and PROBE_END where a warp has nothing more to do. */
#ifndef HEARTH_WORKER_CUDA_PROBE_CUH
#define HEARTH_WORKER_CUDA_PROBE_CUH

#include <stdint.h>

enum probe_mark {
	PROBE_BEGUN,
	PROBE_WAITED,
	PROBE_LOADED,
	PROBE_MULTIPLIED,
	PROBE_ARRIVED,
	PROBE_ENDED,
	/* Of who orders from the CPU: about to, the order stored, on its way.  Of who waits for an
	 * answer: from when to when. */
	PROBE_HANDING,
	PROBE_STORED,
	PROBE_HANDED,
	PROBE_MARKS
};

#ifdef CUDA_PROBE

#include <cuda_runtime.h>

#include "worker/cuda_ptx.cuh"

#define PROBE_LAUNCHES 1024u
#define PROBE_BLOCKS 512u /* of a launch; those behind are not written down */

/* The newest launches, launch n at n % PROBE_LAUNCHES. */
struct cuda_probe_log {
	uint64_t *at; /* device memory, (launches, blocks, marks): ns, only ever greater ones */
	uint32_t n;
	struct {
		const char *name;
		uint32_t blocks;
	} launch[PROBE_LAUNCHES];
};

inline struct cuda_probe_log cuda_probe_log;

static inline uint64_t *
cuda_probe_next(const char *name, dim3 grid)
{
	struct cuda_probe_log *log = &cuda_probe_log;
	uint32_t place = log->n++ % PROBE_LAUNCHES;
	uint64_t one = PROBE_BLOCKS * PROBE_MARKS;

	if (!log->at && (cudaMalloc(&log->at, PROBE_LAUNCHES * one * sizeof *log->at) ||
			 cudaMemset(log->at, 0, PROBE_LAUNCHES * one * sizeof *log->at)))
		log->at = NULL;
	log->launch[place].name = name;
	log->launch[place].blocks = grid.x * grid.y * grid.z;
	return log->at ? log->at + place * one : NULL;
}

static __shared__ unsigned long long *probe_here;

static __device__ __forceinline__ void
probe_write(unsigned long long *at, enum probe_mark mark, uint64_t now)
{
	if (at)
		atomicMax(at + mark, (unsigned long long)now);
}

static __device__ __forceinline__ unsigned long long *
probe_block(uint64_t *launch)
{
	uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);

	return launch && block < PROBE_BLOCKS ? (unsigned long long *)launch + block * PROBE_MARKS
					      : NULL;
}

static __device__ __forceinline__ void
probe_begin(uint64_t *launch)
{
	if (threadIdx.x > 0)
		return;
	probe_here = probe_block(launch);
	probe_write(probe_here, PROBE_BEGUN, device_clock());
}

#define PROBE_PARAM , uint64_t *probe_launch
#define PROBE_ARG(name, grid) , cuda_probe_next(name, grid)
#define PROBE_BEGIN() probe_begin(probe_launch)
#define PROBE(mark) PROBE_AT(mark, device_clock())
/* Where a mark's own store would be in the way: now, and written down later. */
#define PROBE_TIME(name) uint64_t name = device_clock()
#define PROBE_AT(mark, time)                                 \
	do {                                                 \
		if (threadIdx.x == 0)                        \
			probe_write(probe_here, mark, time); \
	} while (0)
#define PROBE_END()                                                                          \
	do {                                                                                 \
		if (threadIdx.x % 32 == 0)                                                   \
			probe_write(probe_block(probe_launch), PROBE_ENDED, device_clock()); \
	} while (0)

#else

#define PROBE_PARAM
#define PROBE_ARG(name, grid)
#define PROBE_BEGIN() (void)0
#define PROBE(mark) (void)0
#define PROBE_TIME(name) (void)0
#define PROBE_AT(mark, time) (void)0
#define PROBE_END() (void)0

#endif
#endif
