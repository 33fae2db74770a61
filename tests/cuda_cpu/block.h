/* Between fibers.cc, what a running thread does, and grid.cc, what runs it. */
#ifndef HEARTH_TESTS_CUDA_CPU_BLOCK_H
#define HEARTH_TESTS_CUDA_CPU_BLOCK_H

#include <vector>

#include "tests/cuda_cpu/fibers.h"

/* Lanes of a warp that wait for each other. */
struct gathering {
	enum cuda_cpu_kind kind;
	uint32_t mask, arrived;
};

struct warp;

/* Where a fiber goes on. */
struct point {
	void *stack, *frame, *code;
};

struct copy {
	void *to;
	unsigned char bytes[16];
};

struct lane {
	struct cuda_cpu_place place; /* first: cuda_cpu_here points to it */
	struct point point;
	struct warp *warp;
	const char *waits_in;
	struct cuda_cpu_line waits_at;
	std::vector<struct copy> copies; /* not done yet */
	std::vector<size_t> groups;      /* of copies: their ends */
};

struct warp {
	uint32_t ready, left, at_barrier, held; /* lanes */
	uint32_t n_gatherings;
	struct gathering gatherings[CUDA_CPU_WARP];
	uint64_t values[CUDA_CPU_WARP];
	uint8_t sources[CUDA_CPU_WARP];
	struct lane lanes[CUDA_CPU_WARP];
};

struct block {
	const struct cuda_cpu_grid *grid;
	uint32_t index; /* in the grid */
	uint32_t n_warps, n_threads, n_left, n_at_barrier;
	bool early;    /* the kernel before has not run yet */
	bool has_held; /* a thread has waited for it */
	unsigned char *dynamic, *saved, *stacks;
	struct warp warps[CUDA_CPU_BLOCK_MAX / CUDA_CPU_WARP];
};

extern struct block *cuda_cpu_block; /* whose shared memory is there */
extern uint32_t cuda_cpu_n_active;   /* blocks under way */
extern struct point cuda_cpu_scheduler;
extern char cuda_cpu_mistake[512]; /* "": none yet */
extern uint64_t cuda_cpu_random;

/* The first call of a fiber. */
void cuda_cpu_lane_main(void);

/* Goes on where `to` was left.  Inline and by a jump: so the processor's guesses at returns hold.
 */
static inline __attribute__((always_inline)) void
go(struct point *from, const struct point *to)
{
	__asm__ volatile("lea 1f(%%rip), %%rax\n\t"
			 "mov %%rax, 16(%0)\n\t"
			 "mov %%rsp, (%0)\n\t"
			 "mov %%rbp, 8(%0)\n\t"
			 "mov (%1), %%rsp\n\t"
			 "mov 8(%1), %%rbp\n\t"
			 "jmp *16(%1)\n"
			 "1:"
			 : "+D"(from), "+S"(to)
			 :
			 : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13",
			   "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6",
			   "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14",
			   "xmm15", "cc", "memory");
}

static inline uint32_t
draw(uint32_t below)
{
	cuda_cpu_random ^= cuda_cpu_random << 13;
	cuda_cpu_random ^= cuda_cpu_random >> 7;
	cuda_cpu_random ^= cuda_cpu_random << 17;
	return (uint32_t)((cuda_cpu_random >> 32) * below >> 32);
}

static inline struct warp *
ready_warp(struct block *block)
{
	uint32_t first = draw(block->n_warps);

	for (uint32_t i = 0; i < block->n_warps; i++) {
		struct warp *warp = &block->warps[(first + i) % block->n_warps];

		if (warp->ready)
			return warp;
	}
	return NULL;
}

static inline struct lane *
take_ready(struct warp *warp)
{
	uint32_t number = (uint32_t)__builtin_ctz(warp->ready);

	warp->ready &= warp->ready - 1;
	return &warp->lanes[number];
}

#endif
