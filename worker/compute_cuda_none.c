/* Stands in for the .cu files of this folder in a build without CUDA. */
#include <errno.h>

#include "worker/compute.h"
#include "worker/cuda_kernels.h"

static int
none(struct error *err)
{
	return error_set(err, -ENODEV, "cuda: this build has no CUDA; build with CUDA Toolkit 13");
}

static uint64_t
none_bytes(const struct model *model, uint32_t context)
{
	(void)model;
	(void)context;
	return 0;
}

static int
none_open(struct compute **ret, const struct compute_config *config, struct error *err)
{
	(void)ret;
	(void)config;
	return none(err);
}

const struct compute_ops compute_cuda = {
	.kv_bytes = none_bytes,
	.own_bytes = none_bytes,
	.open = none_open,
};

/* The launchers that are tested one by one. */
int
cuda_normed(void *stream, struct cuda_rows from, const struct cuda_norm *norm, uint32_t columns,
	    struct cuda_vectors to, uint32_t tokens, struct error *err)
{
	(void)stream;
	(void)from;
	(void)norm;
	(void)columns;
	(void)to;
	(void)tokens;
	return none(err);
}

int
cuda_multiply(void *stream, const struct cuda_matrices *matrices, struct cuda_vectors from,
	      struct cuda_rows to, bool add, uint32_t tokens, struct error *err)
{
	(void)stream;
	(void)matrices;
	(void)from;
	(void)to;
	(void)add;
	(void)tokens;
	return none(err);
}

int
cuda_multiply_normed(void *stream, const struct cuda_matrices *matrices, struct cuda_rows from,
		     const struct cuda_norm *norm, struct cuda_rows to, uint32_t tokens,
		     struct error *err)
{
	(void)stream;
	(void)matrices;
	(void)from;
	(void)norm;
	(void)to;
	(void)tokens;
	return none(err);
}

int
cuda_pick_greatest(void *stream, const struct cuda_pick *pick, struct error *err)
{
	(void)stream;
	(void)pick;
	return none(err);
}

int
cuda_experts_in(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	(void)stream;
	(void)moe;
	(void)tokens;
	return none(err);
}

int
cuda_experts_out(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	(void)stream;
	(void)moe;
	(void)tokens;
	return none(err);
}

int
cuda_attend(void *stream, const struct cuda_attention *a, const struct cuda_input *in,
	    uint32_t tokens, struct error *err)
{
	(void)stream;
	(void)a;
	(void)in;
	(void)tokens;
	return none(err);
}

uint64_t
cuda_partial_floats(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t at_once)
{
	(void)heads;
	(void)kv_heads;
	(void)head_dim;
	(void)at_once;
	return 0;
}

uint64_t
cuda_arrived_counts(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, uint32_t at_once)
{
	(void)heads;
	(void)kv_heads;
	(void)head_dim;
	(void)at_once;
	return 0;
}

int
cuda_route(void *stream, const struct cuda_moe *moe, uint32_t tokens, struct error *err)
{
	(void)stream;
	(void)moe;
	(void)tokens;
	return none(err);
}

int
cuda_finish(void *stream, struct error *err)
{
	(void)stream;
	return none(err);
}
