#include <cuda_runtime.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "common/clock.h"
#include "common/log.h"
}
#include "worker/cuda_launch.cuh"
#include "worker/cuda_sharing.h"

#define CHOSEN_MAX 32u /* of a token: a warp has a lane for each */

static size_t
places_bytes(const struct model *model)
{
	return (size_t)model->n_layers * model->n_experts * sizeof(struct expert_place);
}

static int
open_memory(struct cuda_sharing *sharing, const struct model *model, struct error *err)
{
	uint64_t order = cpu_share_order_bytes(model), answer = cpu_share_answer_bytes(model);
	uint64_t bytes = order + answer + model->n_layers * sizeof *sharing->seen;
	uint8_t *memory = NULL;
	int r =
	    cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc", err);

	if (r)
		return r;
	sharing->places = (struct expert_place *)malloc(places_bytes(model));
	if (!sharing->places) {
		cudaFreeHost(memory);
		return error_sys(err, -ENOMEM, "cuda: what experts the CPU reads");
	}
	memset(memory, 0, bytes);
	sharing->order = (struct share_order *)memory;
	sharing->answer = (struct share_answer *)(memory + order);
	sharing->seen = (struct share_seen *)(memory + order + answer);
	sharing->layers = model->n_layers;
	sharing->missed = true;
	return 0;
}

/* With the threads but one, for that one waits for the GPU. */
static int
open_cpu(struct cuda_sharing *sharing, const struct compute_config *config, struct error *err)
{
	struct cpu_share_config share = {};
	int r = open_memory(sharing, config->model, err);

	if (r)
		return r;
	cuda_sharing_places(sharing, config);
	share.model = config->model;
	share.places = sharing->places;
	share.threads = config->threads > 1 ? config->threads - 1 : 1;
	share.order = sharing->order;
	share.answer = sharing->answer;
	return cpu_share_open(&sharing->cpu, &share, err);
}

void
cuda_sharing_places(struct cuda_sharing *sharing, const struct compute_config *config)
{
	if (sharing->places)
		memcpy(sharing->places, config->places, places_bytes(config->model));
}

int
cuda_sharing_open(struct cuda_sharing *sharing, const struct compute_config *config,
		  struct error *err)
{
	const struct model *model = config->model;
	int r;

	share_control_open(&sharing->control, config->cpu_share);
	if (config->cpu_share == 0)
		return 0;
	if (!cpu_share_possible(model) || model->top_k > CHOSEN_MAX)
		return config->cpu_share < 0
			   ? 0
			   : error_set(err, -ENOTSUP,
				       "cuda: this CPU cannot compute this model's experts as the "
				       "GPU does: want no share of them for it");
	r = open_cpu(sharing, config, err);
	if (!r || config->cpu_share >= 0)
		return r;
	log_warn("--cpu-share auto: the GPU computes all experts: %s", err->text);
	cuda_sharing_close(sharing);
	return 0;
}

void
cuda_sharing_close(struct cuda_sharing *sharing)
{
	cpu_share_close(sharing->cpu);
	cudaFreeHost(sharing->order);
	cudaGetLastError();
	free(sharing->places);
	sharing->cpu = NULL;
	sharing->order = NULL;
	sharing->places = NULL;
}

/* Behind a token that missed nothing the CPU is not woken. */
float
cuda_sharing_begin(struct cuda_sharing *sharing)
{
	sharing->now = sharing->missed ? share_control_now(&sharing->control) : 0;
	if (sharing->now > 0)
		cpu_share_wake(sharing->cpu);
	sharing->begin_ns = clock_ns();
	sharing->done_ns = 0;
	return sharing->now;
}

void
cuda_sharing_done(struct cuda_sharing *sharing)
{
	sharing->done_ns = clock_ns();
}

/* A forward that failed may have ordered what no kernel of it waited for.  The next order must not
 * be given while the CPU is about this one. */
void
cuda_sharing_end(struct cuda_sharing *sharing, bool usual)
{
	struct share_token token = {};

	if (sharing->done_ns == 0)
		cuda_sharing_done(sharing);
	token.ns = sharing->done_ns - sharing->begin_ns;
	cpu_share_settle(sharing->cpu);
	cpu_share_rest(sharing->cpu);
	for (uint32_t i = 0; i < sharing->layers; i++) {
		token.misses += sharing->seen[i].misses;
		token.orders += sharing->seen[i].given > 0;
		token.late += sharing->seen[i].late;
	}
	if (sharing->missed && usual)
		share_control_saw(&sharing->control, &token);
	sharing->missed = token.misses > 0;
}
