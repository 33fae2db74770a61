/* A stream is a list of what is to be done; it is done when somebody waits, and no more of it than
 * is waited for.  So nothing is there before that, whatever the caller hopes. */
#include "tests/cuda_cpu/stream.h"

#include <map>
#include <memory>
#include <stdio.h>

#define SHARED_DEFAULT (48u << 10) /* of a block, without having asked for more */

/* Either is there. */
struct work {
	std::function<cudaError_t()> what;
	std::shared_ptr<const struct cuda_cpu_grid> kernel;
};

/* Has come when so many of a stream are done. */
struct cuda_cpu_event {
	struct cuda_cpu_stream *stream; /* NULL: not recorded */
	uint64_t at;
};

struct cuda_cpu_graph {
	std::vector<work> nodes;
};

struct cuda_cpu_stream {
	std::vector<work> todo;
	uint64_t done;                  /* taken from there so far */
	struct cuda_cpu_graph *capture; /* NULL: it does not */
};

char cuda_cpu_failure[512] = "a kernel failed";

static struct cuda_cpu_stream default_stream;
static std::vector<struct cuda_cpu_stream *> streams{ &default_stream };
static std::map<const void *, size_t> shared_allowed;

static struct cuda_cpu_stream *
stream_of(cudaStream_t stream)
{
	return stream ? stream : &default_stream;
}

bool
cuda_cpu_stream_captures(cudaStream_t stream)
{
	return stream_of(stream)->capture != NULL;
}

static void
add(cudaStream_t stream, struct work work)
{
	stream = stream_of(stream);
	(stream->capture ? stream->capture->nodes : stream->todo).push_back(std::move(work));
}

void
cuda_cpu_stream_add(cudaStream_t stream, std::function<cudaError_t()> what)
{
	add(stream, work{ std::move(what), nullptr });
}

static cudaError_t
run_kernel(const struct cuda_cpu_grid *kernel, const struct cuda_cpu_grid *next)
{
	const char *mistake = cuda_cpu_run(*kernel, next);

	if (!mistake)
		return cudaSuccess;
	snprintf(cuda_cpu_failure, sizeof cuda_cpu_failure, "%s", mistake);
	return cudaErrorLaunchFailure;
}

static cudaError_t
do_all(const std::vector<work> &todo)
{
	cudaError_t error = cudaSuccess;

	for (size_t i = 0; i < todo.size() && !error; i++)
		error = todo[i].what
			    ? todo[i].what()
			    : run_kernel(todo[i].kernel.get(),
					 i + 1 < todo.size() ? todo[i + 1].kernel.get() : NULL);
	return error;
}

/* Of a failure nothing is left to do. */
static cudaError_t
do_first(struct cuda_cpu_stream *stream, size_t n)
{
	std::vector<work> first(stream->todo.begin(), stream->todo.begin() + (ptrdiff_t)n);
	cudaError_t error;

	stream->todo.erase(stream->todo.begin(), stream->todo.begin() + (ptrdiff_t)n);
	stream->done += n;
	error = do_all(first);
	if (error) {
		stream->done += stream->todo.size();
		stream->todo.clear();
	}
	return error;
}

cudaError_t
cuda_cpu_stream_finish(cudaStream_t stream)
{
	stream = stream_of(stream);
	if (stream->capture)
		return cudaErrorStreamCaptureUnsupported;
	return do_first(stream, stream->todo.size());
}

/* -- launches -- */

size_t cuda_cpu_shared_max = 227u << 10;

extern "C" void
cuda_cpu_shared(size_t bytes)
{
	cuda_cpu_shared_max = bytes;
}

cudaError_t
cuda_cpu_allow_shared(const void *kernel, size_t bytes)
{
	CUDA_CPU_LOCKED;

	if (bytes > cuda_cpu_shared_max)
		return cuda_cpu_result(cudaErrorInvalidValue);
	shared_allowed[kernel] = bytes;
	return cudaSuccess;
}

static bool
launch_possible(const struct cuda_cpu_grid &grid, const void *kernel)
{
	uint64_t threads = (uint64_t)grid.block.x * grid.block.y * grid.block.z;
	auto allowed = shared_allowed.find(kernel);
	size_t shared = allowed == shared_allowed.end() ? SHARED_DEFAULT : allowed->second;

	return threads > 0 && threads <= CUDA_CPU_BLOCK_MAX && grid.block.z <= 64 &&
	       grid.grid.x > 0 && grid.grid.x < 1u << 31 && grid.grid.y > 0 &&
	       grid.grid.y < 1u << 16 && grid.grid.z > 0 && grid.grid.z < 1u << 16 &&
	       grid.shared <= shared;
}

cudaError_t
cuda_cpu_launch(const cudaLaunchConfig_t *config, const void *kernel, std::function<void()> thread,
		const char *signature)
{
	struct cuda_cpu_grid grid = { config->gridDim, config->blockDim,  config->dynamicSmemBytes,
				      false,           std::move(thread), signature };
	CUDA_CPU_LOCKED;

	if (cuda_cpu_fails("cudaLaunchKernelEx") || !launch_possible(grid, kernel))
		return cuda_cpu_result(cudaErrorInvalidConfiguration);
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == cudaLaunchAttributeProgrammaticStreamSerialization)
			grid.overlaps = config->attrs[i].val.programmaticStreamSerializationAllowed;
	cuda_cpu_counted.launches++;
	cuda_cpu_counted.shared = config->dynamicSmemBytes;
	add(config->stream, work{ nullptr, std::make_shared<const struct cuda_cpu_grid>(grid) });
	return cudaSuccess;
}

/* -- streams -- */

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	*ret = new cuda_cpu_stream();
	streams.push_back(*ret);
	return cudaSuccess;
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	cuda_cpu_stream_finish(stream);
	for (size_t i = 0; i < streams.size(); i++)
		if (streams[i] == stream)
			streams.erase(streams.begin() + (ptrdiff_t)i--);
	delete stream;
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t stream)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.waits++;
	return cuda_cpu_result(cuda_cpu_stream_finish(stream));
}

cudaError_t
cudaDeviceSynchronize(void)
{
	cudaError_t error = cudaSuccess;
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.waits++;
	for (struct cuda_cpu_stream *stream : streams)
		if (!error)
			error = cuda_cpu_stream_finish(stream);
	return cuda_cpu_result(error);
}

extern "C" void
cuda_cpu_pass_time(void)
{
	CUDA_CPU_LOCKED;

	for (struct cuda_cpu_stream *stream : streams)
		cuda_cpu_stream_finish(stream);
}

/* -- events -- */

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	*ret = new cuda_cpu_event();
	return cudaSuccess;
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	delete event;
	return cudaSuccess;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	CUDA_CPU_LOCKED;

	stream = stream_of(stream);
	if (stream->capture)
		return cuda_cpu_result(cudaErrorStreamCaptureUnsupported);
	event->stream = stream;
	event->at = stream->done + stream->todo.size();
	return cudaSuccess;
}

cudaError_t
cudaEventSynchronize(cudaEvent_t event)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.waits++;
	if (!event->stream || event->at <= event->stream->done)
		return cudaSuccess;
	return cuda_cpu_result(do_first(event->stream, event->at - event->stream->done));
}

cudaError_t
cudaEventQuery(cudaEvent_t event)
{
	CUDA_CPU_LOCKED;

	return cuda_cpu_result(
	    !event->stream || event->at <= event->stream->done ? cudaSuccess : cudaErrorNotReady);
}

/* -- graphs: the list of what was captured -- */

static bool next_graph_breaks;

extern "C" void
cuda_cpu_break_graph(void)
{
	next_graph_breaks = true;
}

cudaError_t
cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode)
{
	CUDA_CPU_LOCKED;

	if (stream == NULL || stream->capture)
		return cuda_cpu_result(cudaErrorStreamCaptureUnsupported);
	cuda_cpu_counted.allocations++;
	stream->capture = new cuda_cpu_graph();
	return cudaSuccess;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *ret)
{
	CUDA_CPU_LOCKED;

	if (stream == NULL || !stream->capture)
		return cuda_cpu_result(cudaErrorIllegalState);
	*ret = stream->capture;
	stream->capture = NULL;
	return cudaSuccess;
}

cudaError_t
cudaGraphInstantiate(cudaGraphExec_t *ret, cudaGraph_t graph, unsigned long long)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	*ret = new cuda_cpu_graph(*graph);
	return cudaSuccess;
}

cudaError_t
cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
	return cudaSuccess;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.graphs++;
	if (cuda_cpu_fails("cudaGraphLaunch"))
		return cuda_cpu_result(cudaErrorIllegalState);
	cuda_cpu_stream_add(stream, [graph, breaks = next_graph_breaks] {
		return breaks ? cudaErrorLaunchFailure : do_all(graph->nodes);
	});
	next_graph_breaks = false;
	return cudaSuccess;
}

cudaError_t
cudaGraphDestroy(cudaGraph_t graph)
{
	CUDA_CPU_LOCKED;

	cuda_cpu_counted.allocations++;
	delete graph;
	return cudaSuccess;
}

cudaError_t
cudaGraphExecDestroy(cudaGraphExec_t graph)
{
	return cudaGraphDestroy(graph);
}
