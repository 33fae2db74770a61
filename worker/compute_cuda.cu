/* compute.h on a GPU.  A forward is one copy in, a sequence of launches, a copy out where logits
 * are wanted, and one wait; for a single token the whole of it is a graph, captured behind the
 * first token that was computed without.  While need_experts is asked, forwards are launched layer
 * by layer, each layer's experts behind what it says. */
#include <cuda_runtime.h>
#include <errno.h>

#include "worker/cuda_compute.h"
#include "worker/cuda_launch.cuh"

/* Whether a forward leaves experts to the CPU. */
static bool
shares(const struct compute *compute, uint32_t tokens)
{
	return compute->sharing.cpu && compute->common && !compute->asks && tokens == 1;
}

/* Copy in, launches. */
static int
launch(struct compute *compute, uint32_t tokens, bool result, struct error *err)
{
	struct cuda_step step = { &compute->config,
				  &compute->scratch,
				  compute->stream,
				  tokens,
				  result ? compute->greatest : NULL,
				  compute->asks ? &compute->asking : NULL,
				  shares(compute, tokens) ? &compute->sharing : NULL };
	int r = cuda_check(cudaMemcpyAsync(compute->scratch.input, compute->input,
					   sizeof *compute->input, cudaMemcpyHostToDevice,
					   compute->stream),
			   "copying the tokens", err);

	return r ? r : cuda_step_launch(&step, err);
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

int
cuda_compute_places_changed(struct compute *compute, struct error *err)
{
	const struct model *model = compute->config.model;
	size_t bytes = (size_t)model->n_layers * model->n_experts * sizeof(struct expert_place);
	int r = cuda_compute_enter(compute, err);

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

/* Of one token: else it is launched kernel by kernel. */
static bool
by_graph(const struct compute *compute, uint32_t n, bool result)
{
	return !compute->asks && n == 1 && result && compute->answered;
}

static int
forward_launch(struct compute *compute, uint32_t n, bool result, struct error *err)
{
	int r = 0;

	if (!by_graph(compute, n, result))
		return launch(compute, n, result, err);
	if (!compute->token)
		r = capture_token(compute, err);
	return r ? r
		 : cuda_check(cudaGraphLaunch(compute->token, compute->stream), "cudaGraphLaunch",
			      err);
}

static int
copy_logits(struct compute *compute, struct error *err)
{
	return cuda_check(cudaMemcpyAsync(compute->logits, compute->scratch.logits.at,
					  compute->config.model->vocabulary * sizeof(float),
					  cudaMemcpyDeviceToHost, compute->stream),
			  "copying the logits", err);
}

static void
answer(struct compute *compute, const struct compute_want *want, struct compute_result *ret)
{
	compute->answered = true;
	ret->greatest = compute->greatest->id;
	ret->logit = compute->greatest->logit;
	ret->logits = want->logits ? compute->logits : NULL;
}

/* What was launched before a failure is waited for too: the pinned input is used again. */
static int
compute_forward(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
		const struct compute_want *want, struct compute_result *ret, struct error *err)
{
	/* A token for which the graph is captured first takes longer. */
	bool usual = by_graph(compute, n, want != NULL) && compute->token;
	struct error ignored;
	int r = check_tokens(compute, ids, n, pos, err), finished;

	if (!r)
		r = cuda_compute_enter(compute, err);
	if (r)
		return r;
	compute->input->pos = pos;
	compute->input->turn++;
	for (uint32_t i = 0; i < n; i++)
		compute->input->ids[i] = ids[i];
	if (shares(compute, n))
		compute->input->share = cuda_sharing_begin(&compute->sharing);
	r = forward_launch(compute, n, want != NULL, err);
	if (!r && want && want->logits)
		r = copy_logits(compute, err);
	finished = cuda_finish(compute->stream, r ? &ignored : err);
	if (shares(compute, n))
		cuda_sharing_end(&compute->sharing, usual && !r && !finished);
	if (!r)
		r = finished;
	if (r)
		return r;
	if (want)
		answer(compute, want, ret);
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
	int r = cuda_compute_enter(compute, &err);

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
	cuda_kv_bytes,     cuda_compute_own_bytes,
	cuda_compute_open, cuda_compute_close,
	compute_kernels,   cuda_compute_places_changed,
	compute_forward,   compute_ask,
	compute_usage,     compute_share_of,
};
