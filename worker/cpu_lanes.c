#include "worker/cpu_lanes.h"

#include <string.h>

#include "common/types.h"
#include "worker/cpu_kernels.h"

/* How a type's lengths of 256 elements are cut, as cuda_types.cuh has it. */
struct cut {
	uint32_t type;
	uint32_t second;    /* columns from a part's first run to its second */
	uint32_t bias;      /* of the quants */
	uint32_t times;     /* the second run's quants are so many times too large */
	uint32_t parts_row; /* parts that lie side by side, 16 columns each */
	uint32_t row;       /* columns from such a row of parts to the next */
};

static const struct cut cuts[] = {
	{ TYPE_Q8_0, 16, 128, 1, 1, 32 }, { TYPE_Q4_0, 16, 8, 1, 1, 32 },
	{ TYPE_Q4_K, 32, 0, 16, 2, 64 },  { TYPE_Q5_K, 32, 0, 1, 2, 64 },
	{ TYPE_Q6_K, 64, 32, 1, 4, 128 },
};

static const struct cut *
cut_find(uint32_t type)
{
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++)
		if (cuts[i].type == type)
			return &cuts[i];
	return NULL;
}

bool
lanes_type_known(uint32_t type)
{
	return cut_find(type) != NULL;
}

/* A run of 16 columns; `end`: of the block's columns. */
static void
run_set(const struct cut *cut, const struct lanes_fixed *from, uint32_t part, uint32_t run,
	uint32_t end, struct lanes_block *to)
{
	uint32_t lane = part / 2 + part % 2 * 4;
	uint32_t column =
	    part / cut->parts_row * cut->row + part % cut->parts_row * 16 + run * cut->second;
	uint32_t place = column ^ (column & 128 ? 7 * 16 : 0), at = 16 * part;
	float unit = from->group[column / LANES_GROUP].unit;
	int32_t sum = from->group[column / LANES_GROUP].sum;

	if (column >= end) {
		memset(to->low[run] + at, 0, 16);
		memset(to->high[run] + at, 0, 16);
		to->unit[run][lane] = to->sum[run][lane] = 0;
		to->start[run][lane] = 0;
		return;
	}
	memcpy(to->low[run] + at, from->low + place, 16);
	memcpy(to->high[run] + at, from->high + place, 16);
	to->unit[run][lane] = run == 1 ? unit * (1.0f / (float)cut->times) : unit;
	to->sum[run][lane] = unit * (float)sum;
	to->start[run][lane] = (int32_t)(0 - cut->bias * cut->times * (uint32_t)sum);
}

void
lanes_set(uint32_t type, const struct lanes_fixed *from, uint32_t columns, struct lanes_block *ret)
{
	const struct cut *cut = cut_find(type);

	for (uint32_t first = 0; first < columns; first += LANES_COLUMNS, from++, ret++)
		for (uint32_t part = 0; part < 8; part++)
			for (uint32_t run = 0; run < 2; run++)
				run_set(cut, from, part, run, columns - first, ret);
}

struct set {
	const struct lanes_kernels *kernels;
	const char *like; /* of cpu_kernels.h: what it needs of the CPU is the same */
};

static const struct set sets[] = {
	{ &lanes_vnni, "avx512vnni" },
	{ &lanes_avxvnni, "avxvnni" },
	{ &lanes_avx2, "avx2" },
};

#define N_SETS (sizeof(sets) / sizeof(sets[0]))

const struct lanes_kernels *
lanes_kernels_get(uint32_t index)
{
	return index < N_SETS ? sets[index].kernels : NULL;
}

bool
lanes_kernels_usable(const struct lanes_kernels *kernels)
{
	for (size_t i = 0; i < N_SETS; i++)
		if (sets[i].kernels == kernels)
			return cpu_kernels_find(sets[i].like) != NULL;
	return false;
}

const struct lanes_kernels *
lanes_kernels_best(void)
{
	for (size_t i = 0; i < N_SETS; i++)
		if (lanes_kernels_usable(sets[i].kernels))
			return sets[i].kernels;
	return NULL;
}
