#include "tests/need_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "worker/compute.h"

#define TOKENS 3u
#define POISON 0xff /* as a float: NaN */

static const uint32_t ids[TOKENS] = { 5, 17, 60 };

/* -- the device -- */

static struct need_stage *
stage_of(struct device *device)
{
	return device->impl;
}

static int
device_make(struct device *device, uint64_t bytes, struct device_memory *ret, struct error *err)
{
	(void)device;
	(void)err;
	*ret = (struct device_memory){ .at = malloc(bytes), .bytes = bytes, .fd = -1 };
	memset(ret->at, POISON, bytes);
	return 0;
}

static void
device_unmake(struct device *device, struct device_memory *memory)
{
	(void)device;
	free(memory->at);
}

static int
device_pin(struct device *device, void *at, uint64_t bytes, bool read_only, struct error *err)
{
	(void)device;
	(void)at;
	(void)bytes;
	(void)read_only;
	(void)err;
	return 0;
}

static void
device_unpin(struct device *device, void *at, uint64_t bytes)
{
	(void)device;
	(void)at;
	(void)bytes;
}

static int
device_copy(struct device *device, void *to, const void *from, uint64_t bytes, struct error *err)
{
	struct need_stage *stage = stage_of(device);

	(void)err;
	assert_true(stage->n_copies < 64);
	stage->copies[stage->n_copies++] = (struct need_copy){ to, from, bytes };
	stage->copied++;
	return 0;
}

static int
device_finish(struct device *device, struct error *err)
{
	struct need_stage *stage = stage_of(device);

	(void)err;
	for (uint32_t i = 0; i < stage->n_copies; i++)
		memcpy(stage->copies[i].to, stage->copies[i].from, stage->copies[i].bytes);
	stage->n_copies = 0;
	return 0;
}

static const struct device_ops device_ops = { .alloc = device_make,
					      .free = device_unmake,
					      .register_range = device_pin,
					      .unregister_range = device_unpin,
					      .copy_in = device_copy,
					      .wait = device_finish };

/* -- the loader -- */

static uint64_t
home_of(const struct need_stage *stage, uint32_t layer, uint32_t expert, enum role role)
{
	const struct experts *experts = &stage->model.layers[layer].role[role];

	return experts->offset + expert * experts->stride;
}

static bool
is_resident(const struct need_stage *stage, uint32_t layer, uint32_t expert)
{
	return stage->table.home[table_which(&stage->table, layer, expert)].role[0] != NULL;
}

/* The window holds what this answer brings and nothing else any more. */
static void
publish_experts(struct need_stage *stage, const Hearth__Fetch *fetch, Hearth__FetchedExpert *ret)
{
	const struct model_layer *layer = &stage->model.layers[fetch->layer];
	uint64_t slot_bytes = model_slot_bytes(&stage->model);

	memset(stage->arena.base + stage->window, POISON, stage->model.n_experts * slot_bytes);
	for (size_t i = 0; i < fetch->n_experts; i++) {
		uint64_t at[N_ROLES];

		for (enum role role = 0; role < N_ROLES; role++) {
			uint64_t home = home_of(stage, fetch->layer, fetch->experts[i], role);

			at[role] =
			    is_resident(stage, fetch->layer, fetch->experts[i])
				? home
				: stage->window + i * slot_bytes + model_slot_offset(layer, role);
			memcpy(stage->arena.base + at[role], stage->whole.base + home,
			       layer->role[role].bytes);
		}
		hearth__fetched_expert__init(&ret[i]);
		ret[i].expert = fetch->experts[i];
		ret[i].offset_gate = at[ROLE_GATE];
		ret[i].offset_up = at[ROLE_UP];
		ret[i].offset_down = stage->out_of_arena ? stage->arena.bytes - 1 : at[ROLE_DOWN];
	}
}

static void
answer(struct need_stage *stage, struct call *call, const Hearth__Fetch *fetch)
{
	Hearth__FetchReply reply = HEARTH__FETCH_REPLY__INIT;
	Hearth__FetchedExpert fetched[64], *list[64];
	uint8_t packed[4096];
	size_t n;

	assert_true(fetch->n_experts <= 64);
	if (stage->refuses != 0) {
		reply.error = stage->refuses;
		reply.text = "the drive is on fire";
	} else {
		publish_experts(stage, fetch, fetched);
		for (size_t i = 0; i < fetch->n_experts; i++)
			list[i] = &fetched[i];
		reply.experts = list;
		reply.n_experts = fetch->n_experts;
	}
	n = hearth__fetch_reply__pack(&reply, packed);
	call_reply(call, packed, n);
}

static void
loader_hears(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	struct need_stage *stage = arg;
	Hearth__Fetch *fetch = hearth__fetch__unpack(NULL, n, bytes);

	assert_non_null(fetch);
	pthread_mutex_lock(&stage->lock);
	for (size_t i = 0; i < fetch->n_experts; i++) {
		if (i > 0)
			assert_true(fetch->experts[i] > fetch->experts[i - 1]);
		stage->was_asked[table_which(&stage->table, fetch->layer, fetch->experts[i])] =
		    true;
	}
	stage->n_asked++;
	if (stage->hold) {
		if (stage->question != NULL)
			hearth__fetch__free_unpacked(stage->question, NULL);
		stage->call = call;
		stage->question = fetch;
	} else {
		answer(stage, call, fetch);
		hearth__fetch__free_unpacked(fetch, NULL);
	}
	pthread_mutex_unlock(&stage->lock);
	gate_pass(&stage->asked);
}

void
need_loader_answer(struct need_stage *stage)
{
	pthread_mutex_lock(&stage->lock);
	answer(stage, stage->call, stage->question);
	pthread_mutex_unlock(&stage->lock);
}

void
need_loader_start(struct need_stage *stage)
{
	assert_int_equal(server_open(&stage->loader, stage->scratch.dir, "loader.fetch",
				     loader_hears, stage, &stage->err),
			 0);
}

void
need_loader_stop(struct need_stage *stage)
{
	server_close(stage->loader);
	stage->loader = NULL;
}

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

static void
service_make(struct service *service)
{
	pthread_condattr_t attr;

	*service = (struct service){ .stage = "test" };
	pthread_mutex_init(&service->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&service->wake, &attr);
	pthread_condattr_destroy(&attr);
}

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
	memset(arena->base, POISON, arena->bytes);
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
	service_make(&stage->service);
	tiny.layers = 3;
	tiny.experts = 24; /* more than the ring holds */
	arena_make(&stage->whole, &tiny);
	assert_int_equal(model_read_arena(&stage->model, &stage->whole, &stage->err), 0);
	stage->device =
	    (struct device){ .ops = &device_ops,
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
	pthread_cond_destroy(&stage->service.wake);
	pthread_mutex_destroy(&stage->service.lock);
	pthread_mutex_destroy(&stage->lock);
}

int
need_forward(struct need_stage *stage)
{
	return compute_cpu.forward(stage->compute, ids, TOKENS, 0, stage->logits, &stage->err);
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
				    stage->whole.base + home_of(stage, layer, expert, role);
	config.kv = calloc(1, compute_cpu.kv_bytes(&stage->model, NEED_CONTEXT));
	config.places = places;
	config.need_experts = NULL;
	assert_int_equal(compute_cpu.open(&compute, &config, &stage->err), 0);
	assert_int_equal(compute_cpu.forward(compute, ids, TOKENS, 0, logits, &stage->err), 0);
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
