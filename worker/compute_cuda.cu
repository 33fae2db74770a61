/* compute.h on a GPU.  A forward is one copy in, a sequence of launches, one copy out and one wait;
 * for a single token the whole of it is a graph, captured behind the first token that was computed
 * without.  While need_experts is asked, forwards are launched layer by layer, each layer's experts
 * behind what it says. */
#include <cuda_runtime.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/checked.h"
#include "common/types.h"
}
#include "worker/cuda_launch.cuh"
#include "worker/cuda_step.h"

#define HEAD_DIM_MAX 1024u /* a row that attention has room for */
#define OVERHEAD_BYTES \
	(32ull << 20) /* kernels, stacks, the graph: what the driver takes for them */

struct compute {
	struct compute_config config;
	struct cuda_scratch scratch;
	void *memory;             /* scratch's */
	struct cuda_input *input; /* pinned */
	float *logits;            /* pinned, (vocabulary) */
	cudaStream_t stream;
	cudaGraphExec_t token; /* one token with logits; NULL: not captured yet */
	bool answered;         /* a forward has given logits */
	bool asks;             /* need_experts */
	struct cuda_asking asking;
	struct cuda_sharing sharing;
	bool common;              /* some expert lies where the CPU reads it too */
	unsigned long long *used; /* pinned, (layers, experts) */
	char kernels[32];
};

static int
enter(const struct compute *compute, struct error *err)
{
	int ordinal = (int)device_describe(compute->config.device)->ordinal;

	return cuda_check(cudaSetDevice(ordinal), "cudaSetDevice", err);
}

static uint64_t
kv_bytes(const struct model *model, uint32_t context)
{
	return cuda_kv_bytes(model, context);
}

static uint64_t
own_bytes(const struct model *model, uint32_t context)
{
	struct cuda_scratch scratch;

	(void)context;
	return cuda_scratch_plan(model, NULL, &scratch) + OVERHEAD_BYTES;
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

/* Whether a forward leaves experts to the CPU. */
static bool
shares(const struct compute *compute, uint32_t tokens)
{
	return compute->sharing.cpu && compute->common && !compute->asks && tokens == 1;
}

/* Copy in, launches, copy out. */
static int
launch(struct compute *compute, uint32_t tokens, bool logits, struct error *err)
{
	struct cuda_step step = { &compute->config,
				  &compute->scratch,
				  compute->stream,
				  tokens,
				  logits,
				  compute->asks ? &compute->asking : NULL,
				  shares(compute, tokens) ? &compute->sharing : NULL };
	int r = cuda_check(cudaMemcpyAsync(compute->scratch.input, compute->input,
					   sizeof *compute->input, cudaMemcpyHostToDevice,
					   compute->stream),
			   "copying the tokens", err);

	if (!r)
		r = cuda_step_launch(&step, err);
	if (!r && logits)
		r = cuda_check(cudaMemcpyAsync(compute->logits, compute->scratch.logits.at,
					       compute->config.model->vocabulary * sizeof(float),
					       cudaMemcpyDeviceToHost, compute->stream),
			       "copying the logits", err);
	return r;
}

/* Relaxed: other threads may register memory meanwhile. */
static int
capture_token(struct compute *compute, struct error *err)
{
	cudaGraph_t graph = NULL;
	struct error ignored;
	int r = cuda_check(cudaStreamBeginCapture(compute->stream, cudaStreamCaptureModeRelaxed),
			   "cudaStreamBeginCapture", err);
	int ended;

	if (r)
		return r;
	r = launch(compute, 1, true, err);
	ended = cuda_check(cudaStreamEndCapture(compute->stream, &graph), "cudaStreamEndCapture",
			   r ? &ignored : err);
	if (!r)
		r = ended;
	if (!r)
		r = cuda_check(cudaGraphInstantiate(&compute->token, graph, 0),
			       "cudaGraphInstantiate", err);
	if (!r)
		r = cuda_check(cudaGraphUpload(compute->token, compute->stream), "cudaGraphUpload",
			       err);
	if (graph)
		cudaGraphDestroy(graph);
	return r;
}

static bool
any_common(const struct compute_config *config)
{
	size_t n = (size_t)config->model->n_layers * config->model->n_experts;

	for (size_t i = 0; i < n; i++)
		if ((uintptr_t)config->places[i].role[ROLE_GATE] - (uintptr_t)config->arena <
		    config->arena_bytes)
			return true;
	return false;
}

/* A graph is with the CPU or without. */
static void
look_for_common(struct compute *compute)
{
	bool common = compute->sharing.cpu && any_common(&compute->config);

	if (common == compute->common)
		return;
	compute->common = common;
	if (compute->token)
		cudaGraphExecDestroy(compute->token);
	compute->token = NULL;
}

static int
compute_places_changed(struct compute *compute, struct error *err)
{
	const struct model *model = compute->config.model;
	size_t bytes = (size_t)model->n_layers * model->n_experts * sizeof(struct expert_place);
	int r = enter(compute, err);

	if (!r)
		r = cuda_check(cudaMemcpyAsync(compute->scratch.places, compute->config.places,
					       bytes, cudaMemcpyHostToDevice, compute->stream),
			       "copying the expert table", err);
	if (!r)
		r = cuda_finish(compute->stream, err);
	if (!r)
		look_for_common(compute);
	return r;
}

static void
compute_close(struct compute *compute)
{
	struct error ignored;

	if (!compute)
		return;
	if (enter(compute, &ignored) == 0) {
		if (compute->stream)
			cudaStreamSynchronize(compute->stream);
		if (compute->token)
			cudaGraphExecDestroy(compute->token);
		if (compute->stream)
			cudaStreamDestroy(compute->stream);
		cuda_sharing_close(&compute->sharing);
		cudaFreeHost(compute->used);
		cudaFreeHost(compute->asking.chosen);
		cudaFreeHost(compute->logits);
		cudaFreeHost(compute->input);
		cudaFree(compute->memory);
		cudaGetLastError();
	}
	free(compute->asking.needed);
	free(compute->asking.is_needed);
	free(compute);
}

static int
open_device(struct compute *compute, struct error *err)
{
	int ordinal = (int)device_describe(compute->config.device)->ordinal, major = 0, minor = 0;
	int r = enter(compute, err);

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
	/* A KV cache of another form is not to be taken for this one. */
	snprintf(compute->kernels, sizeof compute->kernels, "cuda sm_%d%d, 16-bit KV tiles", major,
		 minor);
	return r;
}

static int
compute_open(struct compute **ret, const struct compute_config *config, struct error *err)
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
		r = compute_places_changed(compute, err);
	if (r) {
		compute_close(compute);
		return r;
	}
	*ret = compute;
	return 0;
}

static const char *
compute_kernels(const struct compute *compute)
{
	return compute->kernels;
}

static int
check_tokens(const struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
	     struct error *err)
{
	const struct compute_config *config = &compute->config;

	if (n == 0 || n > COMPUTE_BATCH || pos > config->context || n > config->context - pos)
		return error_set(err, -EINVAL,
				 "%u tokens at position %u: want 1 to %u within a context of %u", n,
				 pos, COMPUTE_BATCH, config->context);
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] >= config->model->vocabulary)
			return error_set(err, -EINVAL, "token %u: the vocabulary has %u", ids[i],
					 config->model->vocabulary);
	return 0;
}

static int
forward_launch(struct compute *compute, uint32_t n, bool logits, struct error *err)
{
	int r = 0;

	if (compute->asks || n != 1 || !logits || !compute->answered)
		return launch(compute, n, logits, err);
	if (!compute->token)
		r = capture_token(compute, err);
	return r ? r
		 : cuda_check(cudaGraphLaunch(compute->token, compute->stream), "cudaGraphLaunch",
			      err);
}

/* What was launched before a failure is waited for too: the pinned input is used again. */
static int
compute_forward(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
		float *logits, struct error *err)
{
	struct error ignored;
	int r = check_tokens(compute, ids, n, pos, err), finished;

	if (!r)
		r = enter(compute, err);
	if (r)
		return r;
	compute->input->pos = pos;
	compute->input->turn++;
	for (uint32_t i = 0; i < n; i++)
		compute->input->ids[i] = ids[i];
	if (shares(compute, n))
		compute->input->share = cuda_sharing_begin(&compute->sharing);
	r = forward_launch(compute, n, logits != NULL, err);
	finished = cuda_finish(compute->stream, r ? &ignored : err);
	if (shares(compute, n))
		cuda_sharing_end(&compute->sharing);
	if (!r)
		r = finished;
	if (r)
		return r;
	compute->answered = compute->answered || logits;
	for (uint32_t i = 0; logits && i < compute->config.model->vocabulary; i++)
		logits[i] = compute->logits[i];
	return 0;
}

static void
compute_ask(struct compute *compute, bool ask)
{
	compute->asks = ask && compute->config.need_experts;
}

static int
compute_usage(struct compute *compute, uint64_t *counts)
{
	const struct model *model = compute->config.model;
	size_t n = (size_t)model->n_layers * model->n_experts;
	size_t bytes = n * sizeof *compute->used;
	struct error err;
	int r = enter(compute, &err);

	if (!r)
		r = cuda_check(cudaMemcpyAsync(compute->used, compute->scratch.used, bytes,
					       cudaMemcpyDeviceToHost, compute->stream),
			       "copying the experts' use", &err);
	if (!r)
		r = cuda_check(cudaMemsetAsync(compute->scratch.used, 0, bytes, compute->stream),
			       "zeroing the experts' use", &err);
	if (!r)
		r = cuda_finish(compute->stream, &err);
	for (size_t i = 0; i < n && !r; i++)
		counts[i] += compute->used[i];
	return r;
}

static void
compute_share_of(const struct compute *compute, struct compute_share *ret)
{
	*ret = {};
	if (!compute->sharing.cpu)
		return;
	ret->threads = cpu_share_threads(compute->sharing.cpu);
	ret->now = share_control_now(&compute->sharing.control);
	ret->experts = cpu_share_experts(compute->sharing.cpu);
}

extern "C" const struct compute_ops compute_cuda = {
	kv_bytes,         own_bytes,       compute_open,
	compute_close,    compute_kernels, compute_places_changed,
	compute_forward,  compute_ask,     compute_usage,
	compute_share_of,
};
