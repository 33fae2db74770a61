#include "tests/need_stage.h"
#include "tests/forward_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "tests/quiet_service.h"
#include "worker/compute.h"

#define TOKENS 3u

static const uint32_t ids[TOKENS] = { 5, 17, 60 };

/* -- the pinner -- */

void
need_publish(struct need_stage *stage, uint32_t layer, bool registered)
{
	const struct arena_slice *slice = &stage->whole.slices[1 + layer];
	Hearth__State *state;

	pthread_mutex_lock(&stage->lock);
	memcpy(stage->arena.base + slice->offset, stage->whole.base + slice->offset, slice->bytes);
	pthread_mutex_unlock(&stage->lock);
	state = board_edit(stage->pinner);
	state->slices[1 + layer]->state =
	    registered ? HEARTH__SLICE_STATE__SLICE_REGISTERED : HEARTH__SLICE_STATE__SLICE_FILLED;
	board_publish(stage->pinner);
}

void
need_word(struct need_stage *stage)
{
	board_edit(stage->pinner);
	board_publish(stage->pinner);
}

static void
pinner_start(struct need_stage *stage)
{
	Hearth__State *state;
	int rc = 0;

	assert_int_equal(board_open(&stage->pinner, stage->scratch.dir, "pinner", &stage->err), 0);
	state = board_edit(stage->pinner);
	board_slices(state, 1 + stage->model.n_layers);
	board_text(&board_arena(state)->path, "/proc/self/fd/0");
	board_text(&board_pinning(state)->device, "fake");
	board_publish(stage->pinner);
	assert_int_equal(
	    upstream_open(&stage->upstream, stage->scratch.dir, &stage->service, &stage->err), 0);
	while (rc == 0 && !upstream_bind(&stage->upstream))
		rc = upstream_wait(&stage->upstream, &stage->err);
	assert_int_equal(rc, 0);
}

/* -- the worker -- */

/* All but the experts is there. */
static void
arena_poison(struct need_stage *stage)
{
	struct arena *arena = &stage->arena;
	const struct arena_slice *first = &stage->whole.slices[1];

	*arena = stage->whole;
	stage->window = stage->whole.bytes;
	arena->bytes += stage->model.n_experts * model_slot_bytes(&stage->model);
	arena->base = aligned_alloc(4096, (arena->bytes + 4095) / 4096 * 4096);
	memset(arena->base, NEED_POISON, arena->bytes);
	memcpy(arena->base, stage->whole.base, first->offset);
}

static void
table_make(struct need_stage *stage, uint32_t resident)
{
	struct table *table = &stage->table;

	*table = (struct table){ .arena = &stage->arena,
				 .model = &stage->model,
				 .device = &stage->device,
				 .upstream = &stage->upstream,
				 .fetcher = &stage->fetcher };
	assert_int_equal(fetcher_open(&stage->fetcher, stage->scratch.dir, &stage->service,
				      stage->model.n_experts, &stage->err),
			 0);
	assert_int_equal(table_open(table, 0, &stage->err), 0);
	for (uint32_t layer = 0; layer < stage->model.n_layers; layer++)
		for (uint32_t expert = resident; expert < stage->model.n_experts; expert++) {
			table->home[table_which(table, layer, expert)] =
			    (struct expert_place){ { NULL } };
			table->homeless[layer]++;
		}
	if (!stage->device.info.computes_from_host)
		assert_int_equal(
		    staging_open(&table->staging, &stage->device, &stage->model, 2, &stage->err),
		    0);
	table_place(table);
	table_look(table);
}

static struct compute_config
config_of(struct need_stage *stage)
{
	return (struct compute_config){
		.model = &stage->model,
		.arena = stage->arena.base,
		.device = &stage->device,
		.trunk = stage->arena.base + stage->arena.slices[0].offset,
		.trunk_offset = stage->arena.slices[0].offset,
		.kv = stage->kv,
		.context = NEED_CONTEXT,
		.threads = 2,
		.places = stage->table.places,
		.need_experts = table_need,
		.need_arg = &stage->table,
	};
}

void
need_open(struct need_stage *stage, bool from_host, uint32_t resident)
{
	struct tiny tiny = tiny_default();
	struct compute_config config;

	memset(stage, 0, sizeof(*stage));
	stage->asked = (struct gate)GATE_INIT;
	pthread_mutex_init(&stage->lock, NULL);
	scratch_open(&stage->scratch);
	quiet_service_open(&stage->service, "test");
	tiny.layers = 3;
	tiny.experts = 24; /* more than the ring holds */
	arena_make(&stage->whole, &tiny);
	assert_int_equal(model_read_arena(&stage->model, &stage->whole, &stage->err), 0);
	stage->device =
	    (struct device){ .ops = &need_device_ops,
			     .info = { .name = "fake", .computes_from_host = from_host },
			     .impl = stage };
	arena_poison(stage);
	pinner_start(stage);
	table_make(stage, resident);
	stage->was_asked = calloc((size_t)stage->model.n_layers * stage->model.n_experts, 1);
	stage->kv = calloc(1, compute_cpu.kv_bytes(&stage->model, NEED_CONTEXT));
	stage->logits = calloc(stage->model.vocabulary, sizeof(float));
	config = config_of(stage);
	assert_int_equal(compute_cpu.open(&stage->compute, &config, &stage->err), 0);
}

void
need_close(struct need_stage *stage)
{
	compute_cpu.close(stage->compute);
	staging_close(stage->table.staging);
	table_close(&stage->table);
	fetcher_close(&stage->fetcher);
	server_close(stage->loader);
	upstream_close(&stage->upstream);
	board_close(stage->pinner);
	if (stage->question != NULL)
		hearth__fetch__free_unpacked(stage->question, NULL);
	free(stage->arena.base);
	model_close(&stage->model);
	arena_close(&stage->whole);
	scratch_close(&stage->scratch);
	free(stage->was_asked);
	free(stage->kv);
	free(stage->logits);
	quiet_service_close(&stage->service);
	pthread_mutex_destroy(&stage->lock);
}

int
need_forward(struct need_stage *stage)
{
	return forward_copy(&compute_cpu, stage->compute, &stage->model, ids, TOKENS, 0,
			    stage->logits, &stage->err);
}

static void *
forward_run(void *arg)
{
	struct need_stage *stage = arg;

	stage->rc = need_forward(stage);
	return NULL;
}

void
need_forward_begin(struct need_stage *stage)
{
	assert_int_equal(pthread_create(&stage->thread, NULL, forward_run, stage), 0);
}

int
need_forward_end(struct need_stage *stage)
{
	pthread_join(stage->thread, NULL);
	return stage->rc;
}

float *
need_reference(struct need_stage *stage)
{
	size_t n = (size_t)stage->model.n_layers * stage->model.n_experts;
	struct expert_place *places = calloc(n, sizeof(*places));
	float *logits = calloc(stage->model.vocabulary, sizeof(*logits));
	struct compute_config config = config_of(stage);
	struct compute *compute;

	for (uint32_t layer = 0; layer < stage->model.n_layers; layer++)
		for (uint32_t expert = 0; expert < stage->model.n_experts; expert++)
			for (enum role role = 0; role < N_ROLES; role++)
				places[layer * stage->model.n_experts + expert].role[role] =
				    stage->whole.base + need_home(stage, layer, expert, role);
	config.kv = calloc(1, compute_cpu.kv_bytes(&stage->model, NEED_CONTEXT));
	config.places = places;
	config.need_experts = NULL;
	assert_int_equal(compute_cpu.open(&compute, &config, &stage->err), 0);
	assert_int_equal(
	    forward_copy(&compute_cpu, compute, &stage->model, ids, TOKENS, 0, logits, &stage->err),
	    0);
	compute_cpu.close(compute);
	free(config.kv);
	free(places);
	return logits;
}

void
need_check_asked(struct need_stage *stage)
{
	size_t n = (size_t)stage->model.n_layers * stage->model.n_experts;
	uint64_t *counts = calloc(n, sizeof(*counts));

	assert_int_equal(compute_cpu.usage(stage->compute, counts), 0);
	pthread_mutex_lock(&stage->lock);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(counts[i] != 0, stage->was_asked[i]);
	pthread_mutex_unlock(&stage->lock);
	free(counts);
}
