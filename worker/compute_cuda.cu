/* compute.h on a GPU.  A forward is one copy in, a sequence of launches, a copy out where logits
 * are wanted, and one wait; for a single token the sequence is a graph, captured behind the first
 * token that was computed without.  While need_experts is asked, forwards are launched layer by
 * layer, each layer's experts behind what it says.
 *
 * A token ahead is the same graph behind the one before, which leaves its input on the device: two
 * are in flight, and the host waits for the first.  Nothing takes it back: one that is not asked
 * for runs to its end, and what comes next runs behind it.  Where the CPU has a share, the host
 * begins it once it has the result before, which says what became of that token's orders; the CPU's
 * threads are awake until it has been waited for, asked for or not.  Its keys and values lie behind
 * the last position that the caller counts (journal.h): there a forward writes before it reads. Who
 * waits for the whole stream (places_changed, usage, close) has waited for it too, so that no slot
 * is filled under it. */
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

	return cuda_step_launch(&step, err);
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

/* What was begun ahead is not asked for any more.  Its failure, where it is waited for. */
static int
drop_ahead(struct compute *compute, struct error *err)
{
	bool shared = compute->ahead.begun && compute->ahead.shared;
	int r;

	compute->ahead.begun = false;
	if (!shared)
		return 0;
	r = cuda_finish(compute->stream, err);
	cuda_sharing_end(&compute->sharing, false);
	return r;
}

static void
compute_drop(struct compute *compute)
{
	struct error ignored;

	drop_ahead(compute, &ignored);
}

/* Whether the newest turn is being computed still. */
static bool
is_computing(const struct compute *compute)
{
	bool computing = cudaEventQuery(compute->done[compute->turn % 2]) == cudaErrorNotReady;

	if (computing)
		cudaGetLastError();
	return computing;
}

/* For all that was launched; what was begun ahead stays begun. */
static int
wait_for_all(struct compute *compute, struct error *err)
{
	bool shared = compute->ahead.begun && compute->ahead.shared && is_computing(compute);
	int r = cuda_finish(compute->stream, err);

	if (!r && shared)
		cuda_sharing_done(&compute->sharing);
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
		r = wait_for_all(compute, err);
	if (r) {
		compute_drop(compute);
		return r;
	}
	cuda_sharing_places(&compute->sharing, &compute->config);
	look_for_common(compute);
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

/* Of one token: else it is launched kernel by kernel. */
static bool
by_graph(const struct compute *compute, uint32_t n, bool result)
{
	return !compute->asks && n == 1 && result && compute->answered;
}

static int
launch_token(struct compute *compute, struct error *err)
{
	int r = compute->token ? 0 : capture_token(compute, err);

	return r ? r
		 : cuda_check(cudaGraphLaunch(compute->token, compute->stream), "cudaGraphLaunch",
			      err);
}

static int
begin(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos, bool result,
      struct error *err)
{
	struct cuda_input *in = compute->input;
	int r;

	in->pos = pos;
	in->turn = ++compute->turn;
	for (uint32_t i = 0; i < n; i++)
		in->ids[i] = ids[i];
	if (shares(compute, n))
		in->share = cuda_sharing_begin(&compute->sharing);
	r = cuda_check(cudaMemcpyAsync(compute->scratch.input, in, sizeof *in,
				       cudaMemcpyHostToDevice, compute->stream),
		       "copying the tokens", err);
	if (r)
		return r;
	return by_graph(compute, n, result) ? launch_token(compute, err)
					    : launch(compute, n, result, err);
}

static int
mark_done(struct compute *compute, struct error *err)
{
	return cuda_check(cudaEventRecord(compute->done[compute->turn % 2], compute->stream),
			  "cudaEventRecord", err);
}

/* The token at `pos`, from what the newest one leaves in scratch.input.  A failure is none yet: the
 * forward that wants the token begins it again. */
static void
go_ahead(struct compute *compute, uint32_t pos)
{
	struct error ignored;

	if (launch_token(compute, &ignored))
		return;
	compute->turn++;
	compute->ahead.begun = mark_done(compute, &ignored) == 0;
	compute->ahead.shared = false;
	compute->ahead.pos = pos;
}

/* The same behind its result, with a share for the CPU. */
static void
go_on(struct compute *compute, uint32_t pos)
{
	struct cuda_ahead *ahead = &compute->ahead;
	struct error ignored;
	int r;

	ahead->usual = compute->token;
	r = begin(compute, &ahead->id, 1, pos, true, &ignored);
	ahead->begun = ahead->shared = true;
	ahead->pos = pos;
	if (r || mark_done(compute, &ignored))
		compute_drop(compute);
}

static bool
is_begun(const struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos)
{
	const struct cuda_ahead *ahead = &compute->ahead;

	return ahead->begun && n == 1 && ids[0] == ahead->id && pos == ahead->pos;
}

/* Whether the time that a token takes is that of others: not where its graph is captured first, nor
 * where it was done before anybody waited for it. */
static bool
is_usual(const struct compute *compute, uint32_t n, bool result, bool begun)
{
	if (begun)
		return compute->ahead.usual &&
		       (compute->sharing.done_ns != 0 || is_computing(compute));
	return by_graph(compute, n, result) && compute->token;
}

static int
copy_logits(struct compute *compute, struct error *err)
{
	return cuda_check(cudaMemcpyAsync(compute->logits, compute->scratch.logits.at,
					  compute->config.model->vocabulary * sizeof(float),
					  cudaMemcpyDeviceToHost, compute->stream),
			  "copying the logits", err);
}

/* Waits for the result of a turn; behind a failure, r, for all that was launched: the pinned input
 * is used again. */
static int
finish(struct compute *compute, uint64_t turn, int r, struct error *err)
{
	struct error ignored;

	if (!r)
		r = cuda_check(cudaEventSynchronize(compute->done[turn % 2]), "waiting for kernels",
			       err);
	if (r) {
		compute->ahead.begun = false;
		cuda_finish(compute->stream, &ignored);
	}
	return r;
}

static void
answer(struct compute *compute, uint64_t turn, const struct compute_want *want,
       struct compute_result *ret)
{
	struct cuda_greatest greatest = compute->greatest[turn % 2];

	compute->answered = true;
	compute->ahead.id = greatest.id;
	ret->greatest = greatest.id;
	ret->logit = greatest.logit;
	ret->logits = want->logits ? compute->logits : NULL;
}

static int
compute_forward(struct compute *compute, const uint32_t *ids, uint32_t n, uint32_t pos,
		const struct compute_want *want, struct compute_result *ret, struct error *err)
{
	bool begun, shared, usual, ahead;
	int r = check_tokens(compute, ids, n, pos, err);
	uint64_t turn;

	if (!r)
		r = cuda_compute_enter(compute, err);
	if (r)
		return r;
	begun = want && is_begun(compute, ids, n, pos);
	r = begun ? 0 : drop_ahead(compute, err);
	if (r)
		return r;
	shared = begun ? compute->ahead.shared : shares(compute, n);
	usual = is_usual(compute, n, want != NULL, begun);
	ahead =
	    want && want->ahead && pos + n < compute->config.context && by_graph(compute, 1, true);
	compute->ahead.begun = false;
	if (!begun)
		r = begin(compute, ids, n, pos, want != NULL, err);
	turn = compute->turn;
	if (!r && want && want->logits)
		r = copy_logits(compute, err);
	if (!r && (!begun || want->logits))
		r = mark_done(compute, err);
	if (!r && ahead && !shares(compute, 1))
		go_ahead(compute, pos + n);
	r = finish(compute, turn, r, err);
	if (shared)
		cuda_sharing_end(&compute->sharing, usual && !r);
	if (!r && want)
		answer(compute, turn, want, ret);
	if (!r && ahead && shares(compute, 1))
		go_on(compute, pos + n);
	if (!r && want)
		ret->ahead = compute->ahead.begun;
	return r;
}

static void
compute_ask(struct compute *compute, bool ask)
{
	compute->asks = ask && compute->config.need_experts;
	if (compute->asks)
		compute_drop(compute);
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
		r = wait_for_all(compute, &err);
	if (r)
		compute_drop(compute);
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
	compute_usage,     compute_drop,
	compute_share_of,
};
