#include "tests/cuda_cpu/block.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct cuda_cpu_place *cuda_cpu_here;

static struct lane *
here(void)
{
	return (struct lane *)cuda_cpu_here;
}

/* -- from fiber to fiber -- */

static void
to_scheduler(void)
{
	go(&here()->point, &cuda_cpu_scheduler);
}

/* The rest of a launch that went wrong does not run. */
__attribute__((format(printf, 3, 4))) static void
give_up(struct cuda_cpu_line at, const char *name, const char *format, ...)
{
	const struct uint3 b = here()->place.block, t = here()->place.thread;
	int n = snprintf(cuda_cpu_mistake, sizeof cuda_cpu_mistake,
			 "%s:%d: block (%u,%u,%u) thread (%u,%u,%u): %s: ", at.file, at.line, b.x,
			 b.y, b.z, t.x, t.y, t.z, name);
	va_list args;

	va_start(args, format);
	vsnprintf(cuda_cpu_mistake + n, sizeof cuda_cpu_mistake - (size_t)n, format, args);
	va_end(args);
	to_scheduler();
	abort();
}

/* The warp's other lanes first, then any warp; the scheduler when none can go on. */
static inline __attribute__((always_inline)) void
run_others(void)
{
	struct lane *from = here(), *to;
	struct warp *warp = from->warp->ready ? from->warp : ready_warp(cuda_cpu_block);

	if (!warp) {
		to_scheduler();
		return;
	}
	to = take_ready(warp);
	if (to == from)
		return;
	cuda_cpu_here = &to->place;
	go(&from->point, &to->point);
}

void
cuda_cpu_pause(void)
{
	struct lane *lane = here();

	if (draw(2))
		return;
	lane->warp->ready |= 1u << lane->place.lane;
	if (cuda_cpu_n_active > 1)
		to_scheduler();
	else
		run_others();
}

void
cuda_cpu_previous_done(void)
{
	struct lane *lane = here();

	cuda_cpu_block->has_held = true;
	if (!cuda_cpu_block->early)
		return;
	lane->warp->held |= 1u << lane->place.lane;
	run_others();
}

/* -- copies -- */

void
cuda_cpu_copy16(void *to, const void *bytes)
{
	struct copy copy = { to, {} };

	memcpy(copy.bytes, bytes, sizeof copy.bytes);
	if (draw(2))
		memcpy(to, bytes, sizeof copy.bytes);
	else
		here()->copies.push_back(copy);
}

static void
copies_do(struct lane *lane, size_t n)
{
	for (size_t i = 0; i < n; i++)
		memcpy(lane->copies[i].to, lane->copies[i].bytes, sizeof lane->copies[i].bytes);
	lane->copies.erase(lane->copies.begin(), lane->copies.begin() + (ptrdiff_t)n);
}

void
cuda_cpu_copies_end_group(void)
{
	here()->groups.push_back(here()->copies.size());
}

void
cuda_cpu_copies_wait(size_t n)
{
	std::vector<size_t> &groups = here()->groups;
	size_t end;

	if (groups.size() <= n)
		return;
	end = groups[groups.size() - n - 1];
	copies_do(here(), end);
	groups.erase(groups.begin(), groups.end() - (ptrdiff_t)n);
	for (size_t &group : groups)
		group -= end;
}

void
cuda_cpu_copies_wait_all(void)
{
	copies_do(here(), here()->copies.size());
	here()->groups.clear();
}

/* -- waiting for each other -- */

static uint64_t
combined(enum cuda_cpu_kind kind, uint64_t a, uint64_t b)
{
	switch (kind) {
	case CUDA_CPU_ADD:
		return (uint32_t)(a + b);
	case CUDA_CPU_MIN:
		return a < b ? a : b;
	case CUDA_CPU_MAX:
		return a > b ? a : b;
	case CUDA_CPU_AND:
		return a & b;
	default:
		return a | b;
	}
}

static void
shuffle(struct warp *warp, uint32_t mask, const char *name, struct cuda_cpu_line at)
{
	uint64_t values[CUDA_CPU_WARP];

	memcpy(values, warp->values, sizeof values);
	for (uint32_t left = mask; left; left &= left - 1) {
		uint32_t lane = (uint32_t)__builtin_ctz(left), source = warp->sources[lane];

		if (!(mask >> source & 1))
			give_up(at, name,
				"lane %u wants the value of lane %u, not in the mask %08x", lane,
				source, mask);
		warp->values[lane] = values[source];
	}
}

static int16_t
byte_of(uint32_t word, uint32_t i, bool is_signed)
{
	return is_signed ? (int8_t)(word >> 8 * i) : (uint8_t)(word >> 8 * i);
}

/* Which lane has what is said where the kernels' own multiply_bytes is (worker/cuda_ptx.cuh). */
static void
multiply(const struct warp *warp)
{
	int16_t a[16][32];
	int8_t b[8][32];
	struct cuda_cpu_product *lanes[CUDA_CPU_WARP];

	for (uint32_t lane = 0; lane < CUDA_CPU_WARP; lane++) {
		uint32_t g = lane / 4, t = lane % 4;

		lanes[lane] = (struct cuda_cpu_product *)warp->values[lane];
		for (uint32_t i = 0; i < 4; i++)
			for (uint32_t byte = 0; byte < 4; byte++)
				a[g + i % 2 * 8][i / 2 * 16 + 4 * t + byte] =
				    byte_of(lanes[lane]->a[i], byte, lanes[lane]->is_signed);
		for (uint32_t i = 0; i < 2; i++)
			for (uint32_t byte = 0; byte < 4; byte++)
				b[g][i * 16 + 4 * t + byte] =
				    (int8_t)byte_of(lanes[lane]->b[i], byte, true);
	}
	for (uint32_t row = 0; row < 16; row++)
		for (uint32_t column = 0; column < 8; column++) {
			int32_t sum = 0;

			for (uint32_t i = 0; i < 32; i++)
				sum += a[row][i] * b[column][i];
			lanes[row % 8 * 4 + column / 2]->sum[row / 8 * 2 + column % 2] = sum;
		}
}

/* All are there: each gets its value. */
static inline __attribute__((always_inline)) void
complete(struct warp *warp, struct gathering *gathering, const char *name, struct cuda_cpu_line at)
{
	uint32_t mask = gathering->mask, first = (uint32_t)__builtin_ctz(mask);
	enum cuda_cpu_kind kind = gathering->kind;
	uint64_t result;

	*gathering = warp->gatherings[--warp->n_gatherings];
	if (kind == CUDA_CPU_SYNC)
		return;
	if (kind == CUDA_CPU_SHUFFLE) {
		shuffle(warp, mask, name, at);
		return;
	}
	if (kind == CUDA_CPU_PRODUCT) {
		multiply(warp);
		return;
	}
	result = warp->values[first];
	for (uint32_t left = mask & (mask - 1); left; left &= left - 1)
		result = combined(kind, result, warp->values[__builtin_ctz(left)]);
	for (uint32_t left = mask; left; left &= left - 1)
		warp->values[__builtin_ctz(left)] = result;
}

static struct gathering *
gathering_of(struct warp *warp, enum cuda_cpu_kind kind, uint32_t mask)
{
	for (uint32_t i = 0; i < warp->n_gatherings; i++)
		if (warp->gatherings[i].mask == mask)
			return &warp->gatherings[i];
	warp->gatherings[warp->n_gatherings] = gathering{ kind, mask, 0 };
	return &warp->gatherings[warp->n_gatherings++];
}

uint64_t
cuda_cpu_collective(enum cuda_cpu_kind kind, unsigned mask, uint64_t value, unsigned source,
		    const char *name, struct cuda_cpu_line at)
{
	struct lane *lane = here();
	struct warp *warp = lane->warp;
	struct gathering *gathering;

	if (!(mask >> lane->place.lane & 1))
		give_up(at, name, "lane %u is not in its own mask %08x", lane->place.lane, mask);
	if (mask & warp->left)
		give_up(at, name, "lanes %08x of the mask %08x have left the kernel",
			mask & warp->left, mask);
	warp->values[lane->place.lane] = value;
	warp->sources[lane->place.lane] = (uint8_t)source;
	lane->waits_in = name;
	lane->waits_at = at;
	gathering = gathering_of(warp, kind, mask);
	if (gathering->kind != kind)
		give_up(at, name, "lanes %08x of the mask %08x wait in another collective",
			gathering->arrived, mask);
	gathering->arrived |= 1u << lane->place.lane;
	if (gathering->arrived == mask) {
		complete(warp, gathering, name, at);
		warp->ready |= mask & ~(1u << lane->place.lane);
	} else {
		run_others();
	}
	return warp->values[lane->place.lane];
}

void
cuda_cpu_barrier(struct cuda_cpu_line at)
{
	struct lane *lane = here();
	struct block *block = cuda_cpu_block;

	lane->waits_in = "__syncthreads";
	lane->waits_at = at;
	if (block->n_left)
		give_up(at, lane->waits_in, "%u of the block's threads have left the kernel",
			block->n_left);
	lane->warp->at_barrier |= 1u << lane->place.lane;
	if (++block->n_at_barrier < block->n_threads) {
		run_others();
		return;
	}
	block->n_at_barrier = 0;
	for (uint32_t i = 0; i < block->n_warps; i++) {
		block->warps[i].ready |= block->warps[i].at_barrier;
		block->warps[i].at_barrier = 0;
	}
	if (cuda_cpu_n_active > 1 && draw(4) == 0)
		to_scheduler();
	else
		run_others();
}

/* -- blocks -- */

/* Who waits for a thread that is gone waits forever. */
static void
check_left(const struct lane *lane)
{
	const struct warp *warp = lane->warp;
	uint32_t waiting = 0;

	for (uint32_t i = 0; i < cuda_cpu_block->n_warps && cuda_cpu_block->n_at_barrier; i++)
		for (uint32_t n = 0; n < CUDA_CPU_WARP; n++)
			if (cuda_cpu_block->warps[i].at_barrier >> n & 1)
				give_up(cuda_cpu_block->warps[i].lanes[n].waits_at, "__syncthreads",
					"this thread leaves the kernel while %u wait there",
					cuda_cpu_block->n_at_barrier);
	for (uint32_t i = 0; i < warp->n_gatherings; i++)
		if (warp->gatherings[i].mask >> lane->place.lane & 1)
			waiting = warp->gatherings[i].arrived;
	if (waiting) {
		const struct lane *first = &warp->lanes[__builtin_ctz(waiting)];

		give_up(first->waits_at, first->waits_in,
			"lane %u of the mask leaves the kernel while lanes %08x wait there",
			lane->place.lane, waiting);
	}
}

void
cuda_cpu_lane_main(void)
{
	struct lane *lane;

	cuda_cpu_block->grid->thread();
	lane = here();
	lane->copies.clear();
	lane->groups.clear();
	lane->warp->left |= 1u << lane->place.lane;
	cuda_cpu_block->n_left++;
	check_left(lane);
	run_others();
	abort();
}
