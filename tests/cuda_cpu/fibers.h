/* A grid of fibers: what the kernels' intrinsics in cuda_runtime.h stand on, and what runtime.cc
 * runs launches with.  One grid at a time, under runtime.cc's lock. */
#ifndef HEARTH_TESTS_CUDA_CPU_FIBERS_H
#define HEARTH_TESTS_CUDA_CPU_FIBERS_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

#define CUDA_CPU_WARP 32u
#define CUDA_CPU_BLOCK_MAX 1024u /* threads */

struct uint3 {
	unsigned x, y, z;
};

struct dim3 {
	unsigned x, y, z;
	constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};

/* A line of the kernel's source, for what is said of a mistake. */
struct cuda_cpu_line {
	const char *file;
	int line;
};

#define CUDA_CPU_LINE struct cuda_cpu_line at = { __builtin_FILE(), __builtin_LINE() }

enum cuda_cpu_kind {
	CUDA_CPU_SYNC,
	CUDA_CPU_SHUFFLE, /* `source`: the lane whose value is wanted */
	CUDA_CPU_ADD,
	CUDA_CPU_MIN,
	CUDA_CPU_MAX,
	CUDA_CPU_AND,
	CUDA_CPU_OR,
	CUDA_CPU_PRODUCT, /* the value: where the lane's cuda_cpu_product lies */
};

/* A lane's part of a product of matrices of bytes, (16, 32) by (32, 8), the second signed. */
struct cuda_cpu_product {
	bool is_signed; /* the first */
	uint32_t a[4], b[2];
	int32_t sum[4];
};

/* Of the running thread. */
struct cuda_cpu_place {
	struct uint3 thread, block;
	unsigned lane;
	unsigned char *shared; /* the dynamic */
};

extern const struct cuda_cpu_place *cuda_cpu_here;
extern struct dim3 gridDim, blockDim;

struct cuda_cpu_grid {
	struct dim3 grid, block;
	size_t shared;
	bool overlaps;                /* may begin before the kernel before it has ended */
	std::function<void()> thread; /* the kernel with its arguments */
	const char *signature;        /* what is known of its name */
};

/* NULL, or what the kernel did wrong: a line that holds until the next call.  `next`, which is run
 * next: a block of it may begin before this one, up to where it waits for it; NULL: none does. */
const char *cuda_cpu_run(const struct cuda_cpu_grid &grid, const struct cuda_cpu_grid *next);

/* Waits for the lanes of `mask`; gives the value that the kind says. */
uint64_t cuda_cpu_collective(enum cuda_cpu_kind kind, unsigned mask, uint64_t value,
			     unsigned source, const char *name, struct cuda_cpu_line at);
void cuda_cpu_barrier(struct cuda_cpu_line at);
/* Where a kernel that overlaps waits for the one before. */
void cuda_cpu_previous_done(void);
/* 16 bytes to `to`, at some time until the thread waits for all its groups but the last `n`. */
void cuda_cpu_copy16(void *to, const void *bytes);
void cuda_cpu_copies_end_group(void);
void cuda_cpu_copies_wait(size_t n);
void cuda_cpu_copies_wait_all(void);
/* Others may run here: beside atomics and fences. */
void cuda_cpu_pause(void);

#endif
