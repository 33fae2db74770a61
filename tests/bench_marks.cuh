/* What the blocks of a launch wrote down (worker/cuda_probe.cuh), in few numbers. */
#ifndef HEARTH_TESTS_BENCH_MARKS_CUH
#define HEARTH_TESTS_BENCH_MARKS_CUH

#include "worker/cuda_probe.cuh"

#ifdef CUDA_PROBE

#define ONE ((uint64_t)PROBE_BLOCKS * PROBE_MARKS) /* words of a launch */

/* When a launch's blocks came to a mark: first, mean and last, ns since an origin. */
struct marks {
	double first[PROBE_MARKS], mean[PROBE_MARKS], last[PROBE_MARKS];
	uint32_t blocks[PROBE_MARKS]; /* that came there */
};

static inline struct marks
marks_of(const uint64_t *at, uint32_t blocks, uint64_t origin)
{
	struct marks ret = {};

	for (uint32_t mark = 0; mark < PROBE_MARKS; mark++) {
		for (uint32_t b = 0; b < blocks && b < PROBE_BLOCKS; b++) {
			const uint64_t *of = at + b * PROBE_MARKS;
			double ns = (double)(int64_t)(of[mark] - origin);

			/* Not there in this token, as each block is at the first. */
			if (of[mark] == 0 || of[mark] < of[PROBE_BEGUN])
				continue;
			if (ret.blocks[mark] == 0 || ns < ret.first[mark])
				ret.first[mark] = ns;
			if (ret.blocks[mark] == 0 || ns > ret.last[mark])
				ret.last[mark] = ns;
			ret.mean[mark] += ns;
			ret.blocks[mark]++;
		}
		if (ret.blocks[mark])
			ret.mean[mark] /= ret.blocks[mark];
	}
	return ret;
}

#endif
#endif
