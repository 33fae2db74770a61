/* What compute_cuda can compute, and its memory. */
#include <cuda_runtime.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" {
#include "common/types.h"
}
#include "worker/cuda_compute.h"
#include "worker/cuda_launch.cuh"

#define HEAD_DIM_MAX 1024u /* a row that attention has room for */
#define OVERHEAD_BYTES \
	(32ull << 20) /* kernels, stacks, the graph: what the driver takes for them */

uint64_t
cuda_compute_own_bytes(const struct model *model, uint32_t context)
{
	struct cuda_scratch scratch;

	(void)context;
	return cuda_scratch_plan(model, NULL, &scratch) + OVERHEAD_BYTES;
}

int
cuda_compute_enter(const struct compute *compute, struct error *err)
{
	int ordinal = (int)device_describe(compute->config.device)->ordinal;

	return cuda_check(cudaSetDevice(ordinal), "cudaSetDevice", err);
}

static int
check_tensor(uint64_t offset, uint32_t type, uint32_t tensor, struct error *err)
{
	uint64_t align = type == TYPE_F32 ? 4 : 2;

	if (!cuda_type_known(type))
		return error_set(err, -ENOTSUP, "cuda: tensor %u has type %u, supported are %s",
				 tensor, type, type_supported_names());
	if (offset % align != 0)
		return error_set(
		    err, -ENOTSUP,
		    "cuda: tensor %u lies at %llu in the arena, want a multiple of %llu", tensor,
		    (unsigned long long)offset, (unsigned long long)align);
	return 0;
}

static int
check_layer(const struct model_layer *layer, struct error *err)
{
	const struct matrix *const matrices[] = {
		&layer->attn_norm, &layer->q,   &layer->k,        &layer->v,     &layer->q_norm,
		&layer->k_norm,    &layer->out, &layer->ffn_norm, &layer->router
	};
	int r = 0;

	for (const struct matrix *matrix : matrices)
		if (!r)
			r = check_tensor(matrix->offset, matrix->type, matrix->tensor, err);
	for (const struct experts &experts : layer->role)
		if (!r)
			r = check_tensor(experts.offset, experts.type, experts.tensor, err);
	return r;
}

static int
check_model(const struct compute_config *config, struct error *err)
{
	const struct model *model = config->model;
	const struct matrix *const ends[] = { &model->embedding, &model->output_norm,
					      &model->output };
	int r = 0;

	if (!device_describe(config->device)->cuda)
		return error_set(err, -EINVAL, "cuda: kernels for a GPU on device %s",
				 device_describe(config->device)->name);
	if (model->head_dim % 2 != 0 || model->head_dim > HEAD_DIM_MAX)
		return error_set(err, -ENOTSUP, "cuda: heads of %u, want an even number up to %u",
				 model->head_dim, HEAD_DIM_MAX);
	for (const struct matrix *matrix : ends)
		if (!r)
			r = check_tensor(matrix->offset, matrix->type, matrix->tensor, err);
	for (uint32_t i = 0; i < model->n_layers && !r; i++)
		r = check_layer(&model->layers[i], err);
	return r;
}

/* In double, then rounded once. */
static int
upload_frequencies(struct compute *compute, struct error *err)
{
	const struct model *model = compute->config.model;
	float frequency[HEAD_DIM_MAX / 2];

	for (uint32_t i = 0; i < model->head_dim / 2; i++)
		frequency[i] =
		    (float)pow((double)model->rope_base, -2.0 * i / (double)model->head_dim);
	int r = cuda_check(cudaMemcpyAsync(compute->scratch.frequency, frequency,
					   model->head_dim / 2 * sizeof(float),
					   cudaMemcpyHostToDevice, compute->stream),
			   "copying the rotary frequencies", err);

	return r ? r : cuda_finish(compute->stream, err);
}

static int
open_memory(struct compute *compute, struct error *err)
{
	const struct compute_config *config = &compute->config;
	uint64_t bytes = cuda_scratch_plan(config->model, NULL, &compute->scratch);
	cudaError_t failure = cudaMalloc(&compute->memory, bytes);
	int r;

	if (failure == cudaErrorMemoryAllocation) {
		cudaGetLastError();
		return error_set(err, -ENOMEM, "%s: no room for %llu MiB between the kernels",
				 device_describe(config->device)->name,
				 (unsigned long long)(bytes >> 20));
	}
	r = cuda_check(failure, "cudaMalloc", err);
	if (!r)
		r = cuda_check(cudaMemsetAsync(compute->memory, 0, bytes, compute->stream),
			       "cudaMemset", err);
	if (!r)
		r = cuda_check(cudaMallocHost(&compute->input, sizeof *compute->input),
			       "cudaMallocHost", err);
	if (!r)
		r = cuda_check(
		    cudaMallocHost(&compute->logits, config->model->vocabulary * sizeof(float)),
		    "cudaMallocHost", err);
	if (!r)
		r = cuda_check(cudaHostAlloc(&compute->greatest, 2 * sizeof *compute->greatest,
					     cudaHostAllocMapped),
			       "cudaHostAlloc", err);
	if (!r)
		*compute->input = {};
	if (!r)
		cuda_scratch_plan(config->model, (uint8_t *)compute->memory, &compute->scratch);
	return r;
}

static int
open_asking(struct compute *compute, struct error *err)
{
	const struct model *model = compute->config.model;
	size_t experts = (size_t)model->n_layers * model->n_experts;
	size_t chosen = (size_t)COMPUTE_BATCH * model->top_k;
	int r = cuda_check(
	    cudaMallocHost(&compute->asking.chosen, chosen * sizeof *compute->asking.chosen),
	    "cudaMallocHost", err);

	if (!r)
		r = cuda_check(cudaMallocHost(&compute->used, experts * sizeof *compute->used),
			       "cudaMallocHost", err);
	compute->asking.needed = (uint32_t *)calloc(model->n_experts, sizeof(uint32_t));
	compute->asking.is_needed = (bool *)calloc(model->n_experts, sizeof(bool));
	if (!r && (!compute->asking.needed || !compute->asking.is_needed))
		r = error_sys(err, -ENOMEM, "cuda");
	return r;
}

void
cuda_compute_close(struct compute *compute)
{
	struct error ignored;
	bool entered;

	if (!compute)
		return;
	entered = cuda_compute_enter(compute, &ignored) == 0;
	/* Before the CPU's threads end, whom it may wait for. */
	if (compute->stream)
		cudaStreamSynchronize(compute->stream);
	if (entered) {
		if (compute->token)
			cudaGraphExecDestroy(compute->token);
		for (cudaEvent_t done : compute->done)
			if (done)
				cudaEventDestroy(done);
		if (compute->stream)
			cudaStreamDestroy(compute->stream);
		cudaFreeHost(compute->used);
		cudaFreeHost(compute->asking.chosen);
		cudaFreeHost(compute->greatest);
		cudaFreeHost(compute->logits);
		cudaFreeHost(compute->input);
		cudaFree(compute->memory);
		cudaGetLastError();
	}
	cuda_sharing_close(&compute->sharing);
	free(compute->asking.needed);
	free(compute->asking.is_needed);
	free(compute);
}

static int
open_device(struct compute *compute, struct error *err)
{
	int ordinal = (int)device_describe(compute->config.device)->ordinal, major = 0, minor = 0;
	int r = cuda_compute_enter(compute, err);

	if (!r)
		r = cuda_check(
		    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
		    "cudaDeviceGetAttribute", err);
	if (!r)
		r = cuda_check(
		    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
		    "cudaDeviceGetAttribute", err);
	if (!r)
		r = cuda_check(cudaStreamCreateWithFlags(&compute->stream, cudaStreamNonBlocking),
			       "cudaStreamCreate", err);
	for (cudaEvent_t &done : compute->done)
		if (!r)
			r = cuda_check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming),
				       "cudaEventCreate", err);
	/* A KV cache of another form is not to be taken for this one. */
	snprintf(compute->kernels, sizeof compute->kernels, "cuda sm_%d%d, 16-bit KV tiles", major,
		 minor);
	return r;
}

int
cuda_compute_open(struct compute **ret, const struct compute_config *config, struct error *err)
{
	struct compute *compute;
	int r = check_model(config, err);

	if (r)
		return r;
	compute = (struct compute *)calloc(1, sizeof *compute);
	if (!compute)
		return error_sys(err, -ENOMEM, "cuda");
	compute->config = *config;
	compute->asks = config->need_experts != NULL;
	r = open_device(compute, err);
	if (!r)
		r = open_memory(compute, err);
	if (!r)
		r = open_asking(compute, err);
	if (!r)
		r = upload_frequencies(compute, err);
	if (!r)
		r = cuda_sharing_open(&compute->sharing, config, err);
	if (!r)
		r = cuda_compute_places_changed(compute, err);
	if (r) {
		cuda_compute_close(compute);
		return r;
	}
	*ret = compute;
	return 0;
}
