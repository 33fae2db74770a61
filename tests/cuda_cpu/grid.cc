#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda_cpu/block.h"
#include "tests/cuda_cpu/cuda_cpu.h"

#define STACK_BYTES (64u << 10)
#define GUARD_BYTES 4096u
#define LINE_BYTES 64u
#define GARBAGE 0xff /* as floats: NaN */

/* What .cu files have in .bss is __shared__: shared.ld. */
extern unsigned char cuda_shared_begin[], cuda_shared_end[];
#define SHARED_BYTES ((size_t)(cuda_shared_end - cuda_shared_begin))

/* There in a build with AddressSanitizer. */
extern "C" __attribute__((weak)) void __asan_unpoison_memory_region(const volatile void *, size_t);

struct dim3 gridDim, blockDim;
struct block *cuda_cpu_block;
uint32_t cuda_cpu_n_active;
struct point cuda_cpu_scheduler;
char cuda_cpu_mistake[512];
uint64_t cuda_cpu_random = 1;

static struct block blocks[CUDA_CPU_TOGETHER];
static struct block *early; /* a block of the kernel that runs next; NULL: none */
static struct block early_room[2];
static uint32_t together_wanted;

/* By instructions: a sanitizer would see the gaps between variables. */
static void
copy_bytes(void *to, const void *from, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void
fill_bytes(void *at, int value, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(at), "+c"(n) : "a"(value) : "memory");
}

/* Tops are apart by some cache lines, so that they do not compete for the same ones. */
static void
lane_begin(struct block *block, uint32_t thread)
{
	struct warp *warp = &block->warps[thread / CUDA_CPU_WARP];
	struct lane *lane = &warp->lanes[thread % CUDA_CPU_WARP];
	unsigned char *top =
	    block->stacks + (size_t)(thread + 1) * STACK_BYTES - (thread % 32) * 3 * LINE_BYTES;

	lane->warp = warp;
	warp->ready |= 1u << thread % CUDA_CPU_WARP;
	lane->point = point{ top - 8, NULL, (void *)cuda_cpu_lane_main }; /* as behind a call */
}

/* Shared memory is there once, for the block that runs. */
static void
keep_shared(void)
{
	if (cuda_cpu_block)
		copy_bytes(cuda_cpu_block->saved, cuda_shared_begin, SHARED_BYTES);
	cuda_cpu_block = NULL;
}

static void
block_begin(struct block *block, const struct cuda_cpu_grid *of, uint32_t index)
{
	const struct dim3 grid = of->grid, dim = of->block;
	struct uint3 at = { index % grid.x, index / grid.x % grid.y, index / grid.x / grid.y };

	block->grid = of;
	block->index = index;
	block->early = block->has_held = false;
	block->n_threads = dim.x * dim.y * dim.z;
	block->n_warps = (block->n_threads + CUDA_CPU_WARP - 1) / CUDA_CPU_WARP;
	block->n_left = block->n_at_barrier = 0;
	for (uint32_t i = 0; i < block->n_warps; i++) {
		struct warp *warp = &block->warps[i];

		warp->ready = warp->at_barrier = warp->held = warp->n_gatherings = 0;
		warp->left = 0;
		if (block->n_threads - i * CUDA_CPU_WARP < CUDA_CPU_WARP) /* lanes not there */
			warp->left = ~0u << (block->n_threads - i * CUDA_CPU_WARP);
	}
	for (uint32_t i = 0; i < block->n_threads; i++) {
		lane_begin(block, i);
		block->warps[i / CUDA_CPU_WARP].lanes[i % CUDA_CPU_WARP].place = cuda_cpu_place{
			{ i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y },
			at,
			i % CUDA_CPU_WARP,
			block->dynamic,
		};
	}
	fill_bytes(block->dynamic, GARBAGE, of->shared);
	keep_shared();
	fill_bytes(cuda_shared_begin, GARBAGE, SHARED_BYTES);
	cuda_cpu_block = block;
}

static void
bring_shared(struct block *block)
{
	gridDim = block->grid->grid;
	blockDim = block->grid->block;
	if (cuda_cpu_block == block)
		return;
	keep_shared();
	copy_bytes(cuda_shared_begin, block->saved, SHARED_BYTES);
	cuda_cpu_block = block;
}

static void
find_stuck(const struct block *block)
{
	for (uint32_t i = 0; i < block->n_threads; i++) {
		const struct warp *warp = &block->warps[i / CUDA_CPU_WARP];
		const struct lane *lane = &warp->lanes[i % CUDA_CPU_WARP];

		if (warp->left >> lane->place.lane & 1)
			continue;
		snprintf(cuda_cpu_mistake, sizeof cuda_cpu_mistake,
			 "%s:%d: block (%u,%u,%u) thread (%u,%u,%u): %s: others never come here",
			 lane->waits_at.file, lane->waits_at.line, lane->place.block.x,
			 lane->place.block.y, lane->place.block.z, lane->place.thread.x,
			 lane->place.thread.y, lane->place.thread.z, lane->waits_in);
		return;
	}
}

static bool
block_room(struct block *block, size_t shared)
{
	size_t bytes = (size_t)CUDA_CPU_BLOCK_MAX * STACK_BYTES;

	if (!block->stacks) {
		void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (at == MAP_FAILED)
			return false;
		block->stacks = (unsigned char *)at;
		for (size_t i = 0; i < CUDA_CPU_BLOCK_MAX; i++)
			mprotect(block->stacks + i * STACK_BYTES, GUARD_BYTES, PROT_NONE);
		block->saved = (unsigned char *)malloc(SHARED_BYTES);
	}
	block->dynamic = (unsigned char *)malloc(shared);
	return block->saved && block->dynamic;
}

static void
block_end(struct block *block)
{
	free(block->dynamic);
	block->dynamic = NULL;
	/* After a mistake fibers were left in the middle of a call. */
	for (size_t t = 0; cuda_cpu_mistake[0] && t < block->n_threads; t++)
		if (__asan_unpoison_memory_region)
			__asan_unpoison_memory_region(block->stacks + t * STACK_BYTES + GUARD_BYTES,
						      STACK_BYTES - GUARD_BYTES);
}

static bool
is_over(const struct block *block)
{
	return block->n_left == block->n_threads;
}

/* Runs a block until it ends, pauses, or waits for the kernel before. */
static void
block_run(struct block *block)
{
	struct warp *warp = ready_warp(block);
	struct lane *lane = take_ready(warp);

	bring_shared(block);
	cuda_cpu_here = &lane->place;
	go(&cuda_cpu_scheduler, &lane->point);
	if (cuda_cpu_mistake[0])
		return;
	if (is_over(block) && block->grid->overlaps && !block->has_held)
		snprintf(cuda_cpu_mistake, sizeof cuda_cpu_mistake,
			 "a block of a kernel that overlaps never waited for the one before: %s",
			 block->grid->signature);
	else if (!is_over(block) && !ready_warp(block) && !(block->early && block->has_held))
		find_stuck(block);
}

/* A block of the kernel that runs next does all that it does before it waits for this one: as late
 * as this one may begin, none of that may depend on it. */
static void
early_begin(const struct cuda_cpu_grid *next)
{
	struct block *block = &early_room[early == &early_room[0]];

	if (!next || !next->overlaps || draw(2) || !block_room(block, next->shared))
		return;
	block_begin(block, next, draw(next->grid.x * next->grid.y * next->grid.z));
	block->early = true;
	cuda_cpu_n_active = 1;
	while (!cuda_cpu_mistake[0] && ready_warp(block))
		block_run(block);
	keep_shared();
	early = block;
}

static void
early_go_on(struct block *block)
{
	block->early = false;
	for (uint32_t i = 0; i < block->n_warps; i++)
		block->warps[i].ready |= block->warps[i].held;
}

static uint32_t
greatest_divisor(uint32_t a, uint32_t b)
{
	return b ? greatest_divisor(b, a % b) : a;
}

/* Block number i is (first + i * stride) % n, or has begun early. */
static void
blocks_run(const struct cuda_cpu_grid *grid, uint32_t together, struct block *begun_early)
{
	struct block *active[CUDA_CPU_TOGETHER], *end[CUDA_CPU_TOGETHER];
	uint32_t n = grid->grid.x * grid->grid.y * grid->grid.z;
	uint32_t first = draw(n), stride = draw(n), begun = 0, n_active = 0;

	for (uint32_t i = 0; i < together; i++)
		end[i] = &blocks[i];
	while (greatest_divisor(stride, n) != 1)
		stride = (stride + 1) % n;
	while (!cuda_cpu_mistake[0] && (n_active || begun < n)) {
		uint32_t i;

		if (n_active < together && begun < n) {
			i = (uint32_t)((first + (uint64_t)begun++ * stride) % n);
			if (begun_early && begun_early->index == i) {
				end[n_active] = begun_early;
				early_go_on(begun_early);
			} else {
				block_begin(end[n_active], grid, i);
			}
			active[n_active] = end[n_active];
			n_active++;
			continue;
		}
		i = draw(n_active);
		cuda_cpu_n_active = n_active;
		block_run(active[i]);
		if (!is_over(active[i]))
			continue;
		cuda_cpu_block = cuda_cpu_block == active[i] ? NULL : cuda_cpu_block;
		end[--n_active] = active[i];
		active[i] = active[n_active];
	}
}

const char *
cuda_cpu_run(const struct cuda_cpu_grid &grid, const struct cuda_cpu_grid *next)
{
	struct block *mine = early && early->grid == &grid ? early : NULL;
	uint32_t together = together_wanted;

	if (together == 0)
		together = draw(4) ? 1 : 1 + draw(CUDA_CPU_TOGETHER);
	cuda_cpu_mistake[0] = 0;
	cuda_cpu_block = NULL;
	for (uint32_t i = 0; i < together; i++)
		if (!block_room(&blocks[i], grid.shared))
			snprintf(cuda_cpu_mistake, sizeof cuda_cpu_mistake, "no memory");
	if (!cuda_cpu_mistake[0])
		early_begin(next);
	early = early == mine ? NULL : early;
	if (!cuda_cpu_mistake[0])
		blocks_run(&grid, together, mine);
	for (uint32_t i = 0; i < together; i++)
		block_end(&blocks[i]);
	if (mine)
		block_end(mine);
	if (early && cuda_cpu_mistake[0]) {
		block_end(early);
		early = NULL;
	}
	return cuda_cpu_mistake[0] ? cuda_cpu_mistake : NULL;
}

void
cuda_cpu_order(uint64_t seed, uint32_t together)
{
	cuda_cpu_random = seed * 0x9e3779b97f4a7c15u | 1;
	together_wanted = together < CUDA_CPU_TOGETHER ? together : CUDA_CPU_TOGETHER;
}
