/* worker/attach.h, table.h and upstream.h against the pinner's own desk, registrar and mover on the
 * cpu device; the loader is a message that the test writes. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "pinner/pinner.h"
#include "tests/arena_maker.h"
#include "tests/fake_compute.h"
#include "tests/scratch.h"
#include "worker/attach.h"
#include "worker/report.h"

#define CONTEXT 128u

struct stage {
	struct scratch scratch;
	struct arena arena;
	Hearth__State *loader; /* as the registrar is to hear it */
	struct service pinner_service, service;
	struct pinner pinner;
	struct server *desk;
	pthread_t mover;
	/* one worker's life */
	struct board *board;
	struct upstream upstream;
	struct attach_config config;
	struct attached attached;
	struct error err;
};

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

/* -- loader and pinner -- */

static void
loader_fill(struct stage *stage, uint32_t slice)
{
	stage->loader->slices[slice]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	if (registrar_follow(&stage->pinner, stage->loader, &stage->err) < 0)
		fail_msg("%s", stage->err.text);
}

static void
loader_fill_all(struct stage *stage)
{
	for (uint32_t i = 0; i < stage->arena.head->n_slices; i++)
		loader_fill(stage, i);
}

static void
loader_make(struct stage *stage)
{
	Hearth__Arena *named;
	char path[SHARED_PATH_BYTES];

	stage->loader = malloc(sizeof(*stage->loader));
	hearth__state__init(stage->loader);
	named = board_arena(stage->loader);
	shared_memory_path(path, stage->arena.fd);
	board_text(&named->path, "%s", path);
	named->bytes = stage->arena.bytes;
	named->inode = stage->arena.inode;
	named->fingerprint = stage->arena.head->fingerprint;
	named->layout_hash = stage->arena.head->layout_hash;
	board_slices(stage->loader, (uint32_t)stage->arena.head->n_slices);
}

static void
pinner_start(struct stage *stage)
{
	struct pinner *pinner = &stage->pinner;
	Hearth__Pinning *pinning;

	*pinner = (struct pinner){ .service = &stage->pinner_service };
	pthread_mutex_init(&pinner->lock, NULL);
	pthread_cond_init(&pinner->moves, NULL);
	assert_int_equal(board_open(&pinner->board, stage->scratch.dir, "pinner", &stage->err), 0);
	assert_int_equal(device_open(&pinner->device, "cpu", &stage->err), 0);
	pinner->lending.device = pinner->device;
	pinning = board_pinning(board_edit(pinner->board));
	board_text(&pinning->device, "cpu");
	board_publish(pinner->board);
	assert_int_equal(mover_start(pinner, &stage->mover), 0);
	assert_int_equal(server_open(&stage->desk, stage->scratch.dir, "pinner.lend", desk_answer,
				     pinner, &stage->err),
			 0);
}

static void
pinner_stop(struct stage *stage)
{
	struct pinner *pinner = &stage->pinner;

	mover_stop(pinner, stage->mover);
	server_close(stage->desk);
	board_close(pinner->board);
	slot_table_close(&pinner->slots);
	lending_close(&pinner->lending);
	if (pinner->attached) {
		model_close(&pinner->model);
		arena_close(&pinner->arena);
		free(pinner->usable);
		free(pinner->filled);
	}
	device_close(pinner->device);
	pthread_cond_destroy(&pinner->moves);
	pthread_mutex_destroy(&pinner->lock);
}

/* Room in slots for `n` experts beside what a worker borrows. */
static void
pinner_cap(struct stage *stage, uint32_t n)
{
	pthread_mutex_lock(&stage->pinner.lock);
	stage->pinner.lending.cap =
	    fake_compute_ops.kv_bytes(NULL, CONTEXT) + n * model_slot_bytes(&stage->pinner.model);
	pthread_mutex_unlock(&stage->pinner.lock);
	desk_publish(&stage->pinner);
}

static uint64_t
pinner_lent(struct stage *stage, const char *key)
{
	const struct region *region;
	uint64_t bytes;

	pthread_mutex_lock(&stage->pinner.lock);
	region = lending_find(&stage->pinner.lending, key);
	bytes = region != NULL ? region->bytes : 0;
	pthread_mutex_unlock(&stage->pinner.lock);
	return bytes;
}

static uint64_t
pinner_moved(struct stage *stage)
{
	uint64_t moved;

	pthread_mutex_lock(&stage->pinner.lock);
	moved = stage->pinner.moved;
	pthread_mutex_unlock(&stage->pinner.lock);
	return moved;
}

/* -- worker -- */

static void
worker_prepare(struct stage *stage)
{
	const char *dir = stage->scratch.dir;

	service_make(&stage->service);
	assert_int_equal(board_open(&stage->board, dir, "worker", &stage->err), 0);
	assert_int_equal(upstream_open(&stage->upstream, dir, &stage->service, &stage->err), 0);
	stage->config = (struct attach_config){ .dir = dir,
						.context = CONTEXT,
						.threads = 1,
						.upstream = &stage->upstream,
						.board = stage->board,
						.cpu = &fake_compute_ops,
						.cuda = &compute_cuda };
}

static void
worker_attach(struct stage *stage)
{
	worker_prepare(stage);
	if (attach_open(&stage->attached, &stage->config, &stage->err) < 0)
		fail_msg("%s", stage->err.text);
}

static void
worker_leave(struct stage *stage)
{
	if (stage->attached.device != NULL)
		attach_close(&stage->attached);
	upstream_close(&stage->upstream);
	board_close(stage->board);
	pthread_cond_destroy(&stage->service.wake);
	pthread_mutex_destroy(&stage->service.lock);
}

/* Follows the pinner until its state says what the test wants. */
static void
worker_follow(struct stage *stage, bool (*wanted)(const struct stage *))
{
	int rc = upstream_look(&stage->upstream, &stage->err);

	while (rc == 0 && (stage->upstream.state == NULL || !wanted(stage)))
		rc = upstream_wait(&stage->upstream, &stage->err);
	if (rc < 0)
		fail_msg("%s", stage->err.text);
	table_look(&stage->attached.table);
}

static bool
all_usable(const struct stage *stage)
{
	const Hearth__State *state = stage->upstream.state;

	for (uint32_t i = 0; i < stage->arena.head->n_slices; i++)
		if (!upstream_slice_usable(state, i))
			return false;
	return true;
}

static bool
trunk_usable(const struct stage *stage)
{
	return upstream_slice_usable(stage->upstream.state, 0);
}

static bool
first_layer_usable(const struct stage *stage)
{
	return upstream_slice_usable(stage->upstream.state, 1);
}

static int
setup(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));
	struct tiny tiny = tiny_default();

	scratch_open(&stage->scratch);
	service_make(&stage->pinner_service);
	arena_make(&stage->arena, &tiny);
	loader_make(stage);
	pinner_start(stage);
	*state = stage;
	return 0;
}

static int
teardown(void **state)
{
	struct stage *stage = *state;

	pinner_stop(stage);
	hearth__state__free_unpacked(stage->loader, NULL);
	arena_close(&stage->arena);
	scratch_close(&stage->scratch);
	free(stage);
	return 0;
}

/* -- the rules -- */

static void
only_a_whole_slice_that_the_pinner_is_done_with_is_usable(void **state)
{
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Slice slice = HEARTH__SLICE__INIT, *slices[1] = { &slice };

	(void)state;
	assert_false(upstream_slice_usable(&pinner, 0));
	pinner.n_slices = 1;
	pinner.slices = slices;
	assert_false(upstream_slice_usable(&pinner, 0));
	slice.state = HEARTH__SLICE_STATE__SLICE_FILLED;
	assert_false(upstream_slice_usable(&pinner, 0));
	slice.note = (char *)"registration refused";
	assert_true(upstream_slice_usable(&pinner, 0));
	slice.state = HEARTH__SLICE_STATE__SLICE_RESERVED;
	assert_false(upstream_slice_usable(&pinner, 0));
	slice.state = HEARTH__SLICE_STATE__SLICE_REGISTERED;
	assert_true(upstream_slice_usable(&pinner, 0));
	slice.state = HEARTH__SLICE_STATE__SLICE_READY;
	assert_true(upstream_slice_usable(&pinner, 0));
	assert_false(upstream_slice_usable(&pinner, 1));
}

static void
the_devices_first_word_opens_it(void **state)
{
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Pinning pinning = HEARTH__PINNING__INIT;
	char word[32];

	(void)state;
	pinner.pinning = &pinning;
	pinning.device = (char *)"cuda:0 NVIDIA H200";
	upstream_device(&pinner, word);
	assert_string_equal(word, "cuda:0");
	pinning.device = (char *)"cpu";
	upstream_device(&pinner, word);
	assert_string_equal(word, "cpu");
	pinning.device = (char *)"a-word-that-is-longer-than-any-device-has-it";
	upstream_device(&pinner, word);
	assert_int_equal(strlen(word), 31);
}

static void *
attach_thread(void *arg)
{
	struct stage *stage = arg;

	return (void *)(intptr_t)attach_open(&stage->attached, &stage->config, &stage->err);
}

static void
waits_for_a_pinner_that_names_an_arena(void **state)
{
	struct stage *stage = *state;
	struct error err;
	pthread_t thread;
	void *rc;

	worker_prepare(stage);
	assert_int_equal(pthread_create(&thread, NULL, attach_thread, stage), 0);
	assert_int_equal(registrar_follow(&stage->pinner, stage->loader, &err), 0);
	pthread_join(thread, &rc);
	assert_int_equal((intptr_t)rc, 0);
	assert_int_equal(stage->attached.context, CONTEXT);
	assert_int_equal(stage->attached.arena.inode, stage->arena.inode);
	assert_int_equal(pinner_lent(stage, "kv"), CONTEXT * sizeof(uint64_t));
	assert_int_equal(pinner_lent(stage, "kv.journal"), journal_bytes(CONTEXT));
	assert_int_equal(pinner_lent(stage, "slots"), 0);
	worker_leave(stage);
}

static void
leaving_ends_the_wait_for_a_pinner(void **state)
{
	struct stage *stage = *state;
	pthread_t thread;
	void *rc;

	worker_prepare(stage);
	assert_int_equal(pthread_create(&thread, NULL, attach_thread, stage), 0);
	service_leave(&stage->service);
	pthread_join(thread, &rc);
	assert_int_equal((intptr_t)rc, -ECANCELED);
	worker_leave(stage);
}

static void
the_next_worker_finds_cache_and_journal_as_they_were(void **state)
{
	struct stage *stage = *state;
	const uint32_t ids[] = { 4, 5, 6, 7 };

	loader_fill_all(stage);
	worker_attach(stage);
	memcpy(stage->attached.kv.at, "keys and values", 16);
	journal_append(&stage->attached.journal, ids, 4);
	worker_leave(stage);
	worker_attach(stage);
	assert_memory_equal(stage->attached.kv.at, "keys and values", 16);
	assert_int_equal(journal_keep(&stage->attached.journal, ids, 4), 3);
	worker_leave(stage);
}

static void
another_context_begins_with_an_empty_cache(void **state)
{
	struct stage *stage = *state;
	const uint32_t ids[] = { 4, 5, 6, 7 };
	uint32_t contexts[] = { CONTEXT / 2, CONTEXT, CONTEXT / 2 };

	loader_fill_all(stage);
	worker_attach(stage);
	for (uint32_t i = 0; i < 3; i++) {
		journal_append(&stage->attached.journal, ids, 4);
		worker_leave(stage);
		worker_prepare(stage);
		stage->config.context = contexts[i];
		assert_int_equal(attach_open(&stage->attached, &stage->config, &stage->err), 0);
		assert_int_equal(stage->attached.journal.page->count, 0);
		assert_int_equal(pinner_lent(stage, "kv"), contexts[i] * sizeof(uint64_t));
		assert_int_equal(pinner_lent(stage, "kv.journal"), journal_bytes(contexts[i]));
	}
	worker_leave(stage);
}

static void
a_cache_lent_anew_is_not_what_an_old_journal_says(void **state)
{
	struct stage *stage = *state;
	const uint32_t ids[] = { 4, 5, 6, 7 };

	loader_fill_all(stage);
	worker_attach(stage);
	journal_append(&stage->attached.journal, ids, 4);
	worker_leave(stage);
	pthread_mutex_lock(&stage->pinner.lock);
	assert_int_equal(lending_release(&stage->pinner.lending, "kv", &stage->err), 0);
	pthread_mutex_unlock(&stage->pinner.lock);
	worker_attach(stage);
	assert_int_equal(stage->attached.journal.page->count, 0);
	worker_leave(stage);
}

static void
without_ctx_it_is_the_models(void **state)
{
	struct stage *stage = *state;

	loader_fill_all(stage);
	worker_prepare(stage);
	stage->config.context = 0;
	stage->config.threads = 0;
	assert_int_equal(attach_open(&stage->attached, &stage->config, &stage->err), 0);
	assert_int_equal(stage->attached.context, tiny_default().context);
	assert_true(stage->attached.threads >= 1);
	worker_leave(stage);
}

static void
two_workers_at_once_are_refused(void **state)
{
	struct stage *stage = *state;
	struct attached second;

	loader_fill_all(stage);
	worker_attach(stage);
	assert_int_equal(attach_open(&second, &stage->config, &stage->err), -EWOULDBLOCK);
	assert_non_null(strstr(stage->err.text, "another worker"));
	worker_leave(stage);
	worker_attach(stage);
	worker_leave(stage);
}

static void
an_arena_that_is_not_the_one_named_is_refused_and_tried_again(void **state)
{
	struct stage *stage = *state;
	Hearth__State *pinner;

	loader_fill_all(stage);
	pinner = board_edit(stage->pinner.board);
	pinner->arena->fingerprint ^= 1;
	board_publish(stage->pinner.board);
	worker_prepare(stage);
	assert_int_equal(attach_open(&stage->attached, &stage->config, &stage->err), -EIO);
	assert_non_null(strstr(stage->err.text, "fingerprint"));
	assert_int_equal(error_exit_code(-EIO), EXIT_SYSTEM);
	worker_leave(stage);
}

static void
another_pinner_or_arena_ends_it(void **state)
{
	struct stage *stage = *state;
	Hearth__State *pinner;
	uint32_t pid = (uint32_t)getpid();
	int rc;

	loader_fill_all(stage);
	for (int what = 0; what < 3; what++) {
		worker_attach(stage);
		pinner = board_edit(stage->pinner.board);
		if (what == 0)
			pinner->arena->inode++;
		if (what == 1)
			pinner->pid++;
		board_publish(stage->pinner.board);
		if (what == 2)
			pinner_stop(stage);
		do {
			rc = upstream_wait(&stage->upstream, &stage->err);
		} while (rc == 0);
		assert_int_equal(rc, -ECANCELED);
		assert_non_null(strstr(stage->err.text, what == 0   ? "another arena"
							: what == 1 ? "another pinner"
								    : "is gone"));
		worker_leave(stage);
		if (what == 2)
			break;
		pinner = board_edit(stage->pinner.board);
		pinner->arena->inode = stage->arena.inode;
		pinner->pid = pid;
		board_publish(stage->pinner.board);
	}
	pinner_start(stage);
}

static void
check_places(struct stage *stage)
{
	const struct model *model = &stage->attached.model;
	const struct table *table = &stage->attached.table;

	for (uint32_t layer = 0; layer < model->n_layers; layer++)
		for (uint32_t expert = 0; expert < model->n_experts; expert++)
			for (int role = 0; role < N_ROLES; role++) {
				const struct experts *at = &model->layers[layer].role[role];
				uint32_t which = layer * model->n_experts + expert;
				const uint8_t *in_arena =
				    stage->attached.arena.base + at->offset + expert * at->stride;
				const void *place = table->places[which].role[role];

				assert_int_equal(place == in_arena,
						 table->slots.slot_of[which] == SLOT_NONE);
				assert_memory_equal(place, in_arena, at->bytes);
			}
}

static void
without_a_cap_the_cpu_computes_from_the_arena(void **state)
{
	struct stage *stage = *state;

	loader_fill_all(stage);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_int_equal(stage->attached.n_slots, 0);
	assert_int_equal(table_fill(&stage->attached.table, &stage->err), 0);
	check_places(stage);
	worker_leave(stage);
}

static void
slots_are_filled_and_hold_what_the_arena_holds(void **state)
{
	struct stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	assert_int_equal(stage->attached.n_slots, 11);
	while (table_fill(&stage->attached.table, &stage->err) == 1)
		;
	assert_int_equal(stage->attached.table.slots.filled, 11);
	assert_int_equal(pinner_moved(stage), 11);
	check_places(stage);
	worker_leave(stage);
}

static void
experts_of_a_layer_that_is_not_there_are_not_moved(void **state)
{
	struct stage *stage = *state;

	loader_fill(stage, 0);
	loader_fill(stage, 1);
	pinner_cap(stage, 16);
	worker_attach(stage);
	worker_follow(stage, first_layer_usable);
	while (table_fill(&stage->attached.table, &stage->err) == 1)
		;
	assert_int_equal(stage->attached.table.slots.in_layer[0], 8);
	assert_int_equal(stage->attached.table.slots.in_layer[1], 0);
	loader_fill(stage, 2);
	worker_follow(stage, all_usable);
	while (table_fill(&stage->attached.table, &stage->err) == 1)
		;
	assert_int_equal(stage->attached.table.slots.in_layer[1], 8);
	check_places(stage);
	worker_leave(stage);
}

static bool
slots_on_the_board(const struct stage *stage)
{
	return upstream_region_bytes(stage->upstream.state, "slots") != 0;
}

static void
the_next_worker_takes_over_filled_slots(void **state)
{
	struct stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	while (table_fill(&stage->attached.table, &stage->err) == 1)
		;
	worker_follow(stage, slots_on_the_board);
	worker_leave(stage);
	worker_attach(stage);
	assert_int_equal(stage->attached.n_slots, 11);
	assert_int_equal(stage->attached.table.slots.filled, 11);
	worker_follow(stage, all_usable);
	assert_int_equal(table_fill(&stage->attached.table, &stage->err), 0);
	assert_int_equal(pinner_moved(stage), 11);
	check_places(stage);
	worker_leave(stage);
}

static void
a_larger_cache_takes_its_room_from_the_slots(void **state)
{
	struct stage *stage = *state;
	uint64_t slot_bytes;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, slots_on_the_board);
	slot_bytes = stage->attached.table.slot_bytes;
	worker_leave(stage);
	worker_prepare(stage);
	stage->config.context = CONTEXT + (uint32_t)(2 * slot_bytes / sizeof(uint64_t));
	if (attach_open(&stage->attached, &stage->config, &stage->err) < 0)
		fail_msg("%s", stage->err.text);
	assert_int_equal(stage->attached.n_slots, 9);
	assert_int_equal(pinner_lent(stage, "slots"), 9 * slot_bytes);
	worker_leave(stage);
}

static void
moves_that_are_refused_leave_the_arena_in_use(void **state)
{
	struct stage *stage = *state;

	loader_fill_all(stage);
	pinner_cap(stage, 11);
	worker_attach(stage);
	worker_follow(stage, all_usable);
	stage->attached.table.slot_bytes++; /* as a worker of another build might ask */
	assert_int_equal(table_fill(&stage->attached.table, &stage->err), 0);
	assert_int_equal(stage->attached.table.slots.filled, 0);
	check_places(stage);
	worker_leave(stage);
}

static void *
forward_thread(void *arg)
{
	struct stage *stage = arg;
	const uint32_t ids[] = { 1, 2, 3 };

	return (void *)(intptr_t)fake_compute_ops.forward(stage->attached.compute, ids, 3, 0, NULL,
							  &stage->err);
}

static void
the_first_prompt_runs_while_later_layers_still_load(void **state)
{
	struct stage *stage = *state;
	struct error err;
	pthread_t thread;
	void *rc;

	loader_fill(stage, 0);
	worker_attach(stage);
	worker_follow(stage, trunk_usable);
	assert_int_equal(table_wait_slice(&stage->attached.table, 0, &err), 0);
	assert_int_equal(pthread_create(&thread, NULL, forward_thread, stage), 0);
	fake_compute_wait_entered(fake_compute_opened, 1);
	loader_fill(stage, 1);
	assert_int_equal(fake_compute_opened->forwards, 0);
	loader_fill(stage, 2);
	pthread_join(thread, &rc);
	assert_int_equal((intptr_t)rc, 0);
	worker_leave(stage);
}

static bool
always(void *arg)
{
	(void)arg;
	return true;
}

static void
an_order_the_end_or_the_pinners_loss_ends_the_wait_for_a_layer(void **state)
{
	struct stage *stage = *state;
	struct table *table = &stage->attached.table;

	loader_fill(stage, 0);
	worker_attach(stage);
	table->interrupted = always;
	assert_int_equal(table_wait_layer(table, 0), -ECANCELED);
	table->interrupted = NULL;
	service_leave(&stage->service);
	assert_int_equal(table_wait_layer(table, 0), -ECANCELED);
	worker_leave(stage);
	worker_attach(stage);
	pinner_stop(stage);
	assert_int_equal(table_wait_layer(table, 0), -ECANCELED);
	worker_leave(stage);
	pinner_start(stage);
}

static void
the_board_says_which_slices_may_be_computed_from(void **state)
{
	struct stage *stage = *state;
	struct report report = { .board = stage->board };
	Hearth__State *told;

	loader_fill(stage, 0);
	loader_fill(stage, 1);
	worker_attach(stage);
	report = (struct report){ .board = stage->board, .attached = &stage->attached };
	worker_follow(stage, first_layer_usable);
	report_attached(&report);
	report_slices(&report, stage->upstream.state);
	assert_int_equal(board_ask(stage->scratch.dir, "worker", 5000, &told, &stage->err), 0);
	assert_int_equal(told->phase, HEARTH__PHASE__PHASE_LOADING);
	assert_string_equal(told->reason, "waits for 1 of 3 slices");
	assert_int_equal(told->n_slices, 3);
	assert_int_equal(told->slices[1]->state, HEARTH__SLICE_STATE__SLICE_READY);
	assert_int_equal(told->slices[2]->state, HEARTH__SLICE_STATE__SLICE_RESERVED);
	assert_string_equal(told->slices[2]->name, "layer 1");
	assert_string_equal(told->computing->kernels, "fake");
	assert_int_equal(told->computing->context, CONTEXT);
	hearth__state__free_unpacked(told, NULL);
	loader_fill(stage, 2);
	worker_follow(stage, all_usable);
	report_slices(&report, stage->upstream.state);
	assert_int_equal(board_ask(stage->scratch.dir, "worker", 5000, &told, &stage->err), 0);
	assert_int_equal(told->phase, HEARTH__PHASE__PHASE_READY);
	hearth__state__free_unpacked(told, NULL);
	worker_leave(stage);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_whole_slice_that_the_pinner_is_done_with_is_usable),
		cmocka_unit_test(the_devices_first_word_opens_it),
		RULE(waits_for_a_pinner_that_names_an_arena),
		RULE(leaving_ends_the_wait_for_a_pinner),
		RULE(the_next_worker_finds_cache_and_journal_as_they_were),
		RULE(another_context_begins_with_an_empty_cache),
		RULE(a_cache_lent_anew_is_not_what_an_old_journal_says),
		RULE(without_ctx_it_is_the_models),
		RULE(two_workers_at_once_are_refused),
		RULE(an_arena_that_is_not_the_one_named_is_refused_and_tried_again),
		RULE(another_pinner_or_arena_ends_it),
		RULE(without_a_cap_the_cpu_computes_from_the_arena),
		RULE(slots_are_filled_and_hold_what_the_arena_holds),
		RULE(experts_of_a_layer_that_is_not_there_are_not_moved),
		RULE(the_next_worker_takes_over_filled_slots),
		RULE(a_larger_cache_takes_its_room_from_the_slots),
		RULE(moves_that_are_refused_leave_the_arena_in_use),
		RULE(the_first_prompt_runs_while_later_layers_still_load),
		RULE(an_order_the_end_or_the_pinners_loss_ends_the_wait_for_a_layer),
		RULE(the_board_says_which_slices_may_be_computed_from),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
