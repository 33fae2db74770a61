/* worker/attach.h and upstream.h: what a worker finds, and when it must not take it. */
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

#include "tests/attach_stage.h"
#include "worker/report.h"

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
	struct attach_stage *stage = arg;

	return (void *)(intptr_t)attach_open(&stage->attached, &stage->config, &stage->err);
}

static void
waits_for_a_pinner_that_names_an_arena(void **state)
{
	struct attach_stage *stage = *state;
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
	struct attach_stage *stage = *state;
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
	struct attach_stage *stage = *state;
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
	struct attach_stage *stage = *state;
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
	struct attach_stage *stage = *state;
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
	struct attach_stage *stage = *state;

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
a_context_without_room_for_an_answer_is_refused(void **state)
{
	struct attach_stage *stage = *state;
	int rc;

	loader_fill_all(stage);
	worker_prepare(stage);
	stage->config.context = 1;
	rc = attach_open(&stage->attached, &stage->config, &stage->err);
	assert_int_equal(error_exit_code(rc), EXIT_INPUT);
	assert_non_null(strstr(stage->err.text, "a context of 1, want 2 or more (--ctx N)"));
	stage->config.context = 2;
	assert_int_equal(attach_open(&stage->attached, &stage->config, &stage->err), 0);
	worker_leave(stage);
}

static void
two_workers_at_once_are_refused(void **state)
{
	struct attach_stage *stage = *state;
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
	struct attach_stage *stage = *state;
	Hearth__State *pinner;

	loader_fill_all(stage);
	pinner = board_edit(stage->pinner.board);
	pinner->arena->stamp ^= 1;
	board_publish(stage->pinner.board);
	worker_prepare(stage);
	assert_int_equal(attach_open(&stage->attached, &stage->config, &stage->err), -EIO);
	assert_non_null(strstr(stage->err.text, "stamp"));
	assert_int_equal(error_exit_code(-EIO), EXIT_SYSTEM);
	worker_leave(stage);
}

static void
another_pinner_or_arena_ends_it(void **state)
{
	struct attach_stage *stage = *state;
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
the_board_says_which_slices_may_be_computed_from(void **state)
{
	struct attach_stage *stage = *state;
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

#define RULE(name) cmocka_unit_test_setup_teardown(name, attach_setup, attach_teardown)

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
		RULE(a_context_without_room_for_an_answer_is_refused),
		RULE(two_workers_at_once_are_refused),
		RULE(an_arena_that_is_not_the_one_named_is_refused_and_tried_again),
		RULE(another_pinner_or_arena_ends_it),
		RULE(the_board_says_which_slices_may_be_computed_from),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
