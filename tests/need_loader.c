/* The rest of need_stage.h: its loader. */
#include "tests/need_stage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

uint64_t
need_home(const struct need_stage *stage, uint32_t layer, uint32_t expert, enum role role)
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

	memset(stage->arena.base + stage->window, NEED_POISON, stage->model.n_experts * slot_bytes);
	for (size_t i = 0; i < fetch->n_experts; i++) {
		uint64_t at[N_ROLES];

		for (enum role role = 0; role < N_ROLES; role++) {
			uint64_t home = need_home(stage, fetch->layer, fetch->experts[i], role);

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
