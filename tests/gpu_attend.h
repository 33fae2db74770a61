/* Attention over a small cache for the tests: its arguments in memory that host and device share,
 * and what lies in the cache before a run. */
#ifndef HEARTH_TESTS_GPU_ATTEND_H
#define HEARTH_TESTS_GPU_ATTEND_H

#include "tests/gpu.h"
#include "tests/gpu_kv.h"
#include "worker/cuda_kernels.h"

#define GPU_ATTEND_EPSILON 1e-6f
#define GPU_ATTEND_DIM 1024u /* heads have at most */

struct gpu_attend {
	struct device *device;
	struct cuda_attention a; /* with room for fewer tokens at once than a batch has */
	struct cuda_input *input;
	uint32_t columns, tokens; /* of qkv; room for */
	uint64_t cache;           /* bytes of keys, and of values */
	float *norms;             /* q's, k's, then frequencies */
	struct gpu_kv now[2];     /* keys and values */
	struct gpu_kv earlier[2]; /* what lies in the cache before a run */
};

/* shape: heads, kv_heads, head_dim; `tokens`: of the largest batch; all is drawn from `seed`. */
void gpu_attend_open(struct gpu_attend *ret, struct device *device, const uint32_t shape[3],
		     uint32_t context, uint32_t tokens, uint64_t *seed);
void gpu_attend_close(struct gpu_attend *t);

/* Random rows at the first `n` positions of all that lies there before a run. */
void gpu_attend_earlier(const struct gpu_attend *t, uint32_t n, uint64_t *seed);

/* The cache as it is before `pos`: what is to come is no number. */
void gpu_attend_reset(struct gpu_attend *t, uint32_t pos);

/* Tokens `first`.. of the batch that begins at `pos`.  Dies if one is left waiting for others. */
void gpu_attend_run(const struct gpu_attend *t, uint32_t pos, uint32_t first, uint32_t tokens);

#endif
