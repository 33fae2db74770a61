#include "worker/cpu_crew.h"

#include <stddef.h>

#include "common/checked.h"

#define LINE 64u /* bytes of a cache line */
#define PARTS_A_THREAD 4u
#define MIN_PART_WORK (16u << 10) /* bytes: a few microseconds, several times what a part costs */

void *
cpu_carve(uint8_t *base, uint64_t *used, uint64_t count, uint64_t bytes)
{
	void *piece = base ? base + *used : NULL;

	*used += round_up(count * bytes, LINE);
	return piece;
}

uint64_t
cpu_stride(uint64_t floats)
{
	return round_up(floats, LINE / sizeof(float));
}

float *
cpu_carve_floats(uint8_t *base, uint64_t *used, uint64_t rows, uint64_t stride)
{
	return cpu_carve(base, used, rows * stride, sizeof(float));
}

struct cpu_vectors
cpu_carve_vectors(uint8_t *base, uint64_t *used, uint64_t n, uint32_t width)
{
	struct cpu_vectors ret = { .width = width,
				   .stride = cpu_stride(width),
				   .blocks = fixed_blocks(width) };

	ret.x = cpu_carve_floats(base, used, n, ret.stride);
	ret.fixed = cpu_carve(base, used, n * ret.blocks, sizeof(*ret.fixed));
	return ret;
}

void
cpu_fix(const struct cpu_crew *crew, const struct cpu_vectors *vectors, uint32_t i, uint32_t first,
	uint32_t n)
{
	if (vectors->width % FIXED_GROUP == 0)
		crew->kernels->fix(vectors->x + i * vectors->stride + first, first, n, FIXED_TOP,
				   vectors->fixed + i * vectors->blocks);
}

uint32_t
cpu_items_a_part(const struct cpu_crew *crew, uint64_t n_items, uint64_t item_work)
{
	uint64_t parts = (uint64_t)crew->threads * PARTS_A_THREAD;
	uint64_t fair = (n_items - 1) / parts + 1;
	uint64_t least = (MIN_PART_WORK - 1) / item_work + 1;
	uint64_t items = fair > least ? fair : least;

	return (uint32_t)(items < n_items ? items : n_items);
}

uint32_t
cpu_rows_a_part(const struct cpu_crew *crew, uint64_t n_rows, uint64_t row_work)
{
	uint64_t rows = round_up(cpu_items_a_part(crew, n_rows, row_work), FIXED_GROUP);

	return (uint32_t)(rows < n_rows ? rows : n_rows);
}

void
cpu_dot_rows(const struct cpu_crew *crew, uint32_t type, struct cpu_dot *dot, uint32_t thread)
{
	dot->scratch = crew->scratch + thread * crew->scratch_stride;
	cpu_kernels_dot(crew->kernels, type)(dot);
}
