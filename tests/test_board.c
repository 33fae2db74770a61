#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/endpoint.h"
#include "common/service.h"
#include "tests/scratch.h"

static struct scratch scratch;
static struct service service;

/* A service's stdin must stay open: the end of it is the order to stop. */
static int
setup(void **state)
{
	static int life[2];
	struct error err;

	(void)state;
	if (pipe(life) < 0 || dup2(life[0], STDIN_FILENO) < 0)
		return -1;
	scratch_open(&scratch);
	return service_open(&service, "test", &err);
}

static int
teardown(void **state)
{
	(void)state;
	service_close(&service);
	scratch_close(&scratch);
	return 0;
}

/* Waits until the watch has heard a state of at least that version (0: until it is lost). */
static Hearth__State *
wait_for(struct watch *watch, uint64_t version)
{
	uint64_t seen = 0, deadline = clock_ns() + GATE_SECONDS * NS_PER_SECOND;
	Hearth__State *state = NULL;

	while (clock_ns() < deadline) {
		state = watch_get(watch);
		if (version ? state && state->version >= version : !state)
			break;
		if (state)
			hearth__state__free_unpacked(state, NULL);
		state = NULL;
		service_wait(&service, &seen, deadline);
	}
	assert_true(clock_ns() < deadline);
	return state;
}

static void
a_question_gets_the_whole_state(void **unused)
{
	Hearth__State *state, *answer;
	struct board *board;
	struct error err;

	(void)unused;
	assert_int_equal(board_open(&board, scratch.dir, "loader", &err), 0);
	state = board_edit(board);
	board_text(&state->model, "%s", "m.gguf");
	assert_int_equal(board_slices(state, 3), 0);
	state->slices[2]->bytes = 7;
	board_text(&state->slices[2]->name, "layer %d", 1);
	board_reader(state)->bytes = 5;
	board_publish(board);
	board_phase(board, HEARTH__PHASE__PHASE_LOADING, "at %d", 1);
	board_phase(board, HEARTH__PHASE__PHASE_LOADING, "at %d", 2);
	assert_int_equal(board_ask(scratch.dir, "loader", 5000, &answer, &err), 0);
	assert_string_equal(answer->stage, "loader");
	assert_string_equal(answer->model, "m.gguf");
	assert_string_equal(answer->reason, "at 2");
	assert_int_equal(answer->pid, getpid());
	assert_int_equal(answer->n_slices, 3);
	assert_string_equal(answer->slices[2]->name, "layer 1");
	assert_int_equal(answer->reader->bytes, 5);
	hearth__state__free_unpacked(answer, NULL);
	board_close(board);
}

static void
slices_made_again_replace_the_old_ones(void **unused)
{
	Hearth__State *state, *answer;
	struct board *board;
	struct error err;

	(void)unused;
	assert_int_equal(board_open(&board, scratch.dir, "loader", &err), 0);
	state = board_edit(board);
	assert_int_equal(board_slices(state, 3), 0);
	assert_int_equal(board_slices(state, 1), 0);
	board_publish(board);
	assert_int_equal(board_ask(scratch.dir, "loader", 5000, &answer, &err), 0);
	assert_int_equal(answer->n_slices, 1);
	hearth__state__free_unpacked(answer, NULL);
	board_close(board);
}

static void
count_asked(void *arg, Hearth__State *state)
{
	(void)arg;
	state->reader->demand_requests++;
}

static void
figures_are_fresh_for_who_asks_and_no_news(void **unused)
{
	Hearth__State *answer;
	struct board *board;
	uint64_t version = 0;
	struct error err;

	(void)unused;
	assert_int_equal(board_open(&board, scratch.dir, "loader", &err), 0);
	board_reader(board_edit(board));
	board_publish(board);
	board_refresh(board, count_asked, NULL);
	for (uint64_t i = 1; i <= 3; i++) {
		assert_int_equal(board_ask(scratch.dir, "loader", 5000, &answer, &err), 0);
		assert_true(answer->reader->demand_requests >= i); /* heartbeats count too */
		assert_true(version == 0 || answer->version == version);
		version = answer->version;
		hearth__state__free_unpacked(answer, NULL);
	}
	board_refresh(board, NULL, NULL);
	assert_int_equal(board_ask(scratch.dir, "loader", 5000, &answer, &err), 0);
	version = answer->reader->demand_requests;
	hearth__state__free_unpacked(answer, NULL);
	assert_int_equal(board_ask(scratch.dir, "loader", 5000, &answer, &err), 0);
	assert_int_equal(answer->reader->demand_requests, version);
	hearth__state__free_unpacked(answer, NULL);
	board_close(board);
}

/* While the state is being changed, what was told last is the answer. */
static void
a_question_waits_for_no_edit(void **unused)
{
	Hearth__State *answer;
	struct board *board;
	struct error err;

	(void)unused;
	assert_int_equal(board_open(&board, scratch.dir, "loader", &err), 0);
	board_reader(board_edit(board));
	board_publish(board);
	board_refresh(board, count_asked, NULL);
	board_edit(board);
	assert_int_equal(board_ask(scratch.dir, "loader", 5000, &answer, &err), 0);
	hearth__state__free_unpacked(answer, NULL);
	board_publish(board);
	board_close(board);
}

/* Other languages refuse a message whose strings are no UTF-8. */
static void
texts_of_the_state_are_lines_of_utf8(void **state)
{
	Hearth__State *edited;
	struct board *board;
	struct error err;

	(void)state;
	assert_int_equal(board_open(&board, scratch.dir, "loader", &err), 0);
	edited = board_edit(board);
	board_text(&edited->model, "%s", "/m\xff\n.gguf");
	assert_string_equal(edited->model, "/m??.gguf");
	board_publish(board);
	board_phase(board, HEARTH__PHASE__PHASE_FAILED, "a %s", "\x1b[2J");
	assert_string_equal(board_edit(board)->reason, "a ?[2J");
	board_publish(board);
	board_close(board);
}

static void
a_stage_that_is_not_there_is_said_at_once(void **unused)
{
	Hearth__State *answer;
	struct error err;

	(void)unused;
	assert_int_equal(board_ask(scratch.dir, "loader", 60000, &answer, &err), -ECONNREFUSED);
	assert_non_null(strstr(err.text, "loader.state"));
}

static void
a_watch_hears_what_was_said_before_it_came(void **unused)
{
	Hearth__State *state;
	struct board *board;
	struct watch *watch;
	struct error err;

	(void)unused;
	assert_int_equal(board_open(&board, scratch.dir, "pinner", &err), 0);
	board_phase(board, HEARTH__PHASE__PHASE_READY, "%s", "early");
	assert_int_equal(watch_open(&watch, scratch.dir, "pinner", &service, &err), 0);
	state = wait_for(watch, 1);
	assert_string_equal(state->reason, "early");
	assert_true(state->ready_ns > 0);
	hearth__state__free_unpacked(state, NULL);
	watch_close(watch);
	board_close(board);
}

static void
a_watch_follows_a_stage_through_its_restarts(void **unused)
{
	Hearth__State *state;
	struct board *board;
	struct watch *watch;
	struct error err;

	(void)unused;
	assert_int_equal(watch_open(&watch, scratch.dir, "pinner", &service, &err), 0);
	assert_null(watch_get(watch));
	for (int round = 0; round < 3; round++) {
		assert_int_equal(board_open(&board, scratch.dir, "pinner", &err), 0);
		board_phase(board, HEARTH__PHASE__PHASE_LOADING, "round %d", round);
		state = wait_for(watch, 1);
		assert_int_equal(state->reason[strlen("round ")], '0' + round);
		hearth__state__free_unpacked(state, NULL);
		board_close(board);
		assert_null(wait_for(watch, 0));
	}
	watch_close(watch);
}

static void
a_watch_keeps_the_last_state_when_rubbish_comes(void **unused)
{
	static const uint8_t rubbish[] = { 0xff, 0xff, 0xff, 0x01 };
	struct publisher *publisher;
	struct watch *watch;
	struct error err;
	Hearth__State good = HEARTH__STATE__INIT, *state;
	uint8_t bytes[64];
	size_t n;

	(void)unused;
	good.version = 9;
	n = hearth__state__pack(&good, bytes);
	assert_int_equal(
	    publisher_open(&publisher, scratch.dir, "pinner.state.pub", NULL, NULL, &err), 0);
	assert_int_equal(watch_open(&watch, scratch.dir, "pinner", &service, &err), 0);
	do { /* until it has joined */
		publisher_send(publisher, bytes, n);
		state = watch_get(watch);
	} while (!state);
	hearth__state__free_unpacked(state, NULL);
	publisher_send(publisher, rubbish, sizeof(rubbish));
	good.version = 10;
	n = hearth__state__pack(&good, bytes);
	publisher_send(publisher, bytes, n);
	state = wait_for(watch, 10);
	assert_int_equal(state->version, 10);
	hearth__state__free_unpacked(state, NULL);
	watch_close(watch);
	publisher_close(publisher);
}

/* The heartbeat's copy wakes, and says that nothing has changed. */
static void
a_state_that_is_only_repeated_is_no_change(void **unused)
{
	struct publisher *publisher;
	struct watch *watch;
	struct error err;
	Hearth__State said = HEARTH__STATE__INIT, *state;
	uint64_t seen = 0, woken = 0;
	uint8_t bytes[64];
	size_t n;

	(void)unused;
	said.pid = 5;
	said.version = 9;
	n = hearth__state__pack(&said, bytes);
	assert_int_equal(
	    publisher_open(&publisher, scratch.dir, "pinner.state.pub", NULL, NULL, &err), 0);
	assert_int_equal(watch_open(&watch, scratch.dir, "pinner", &service, &err), 0);
	assert_true(watch_changed(watch, &seen));
	assert_false(watch_changed(watch, &seen));
	do { /* until it has joined */
		publisher_send(publisher, bytes, n);
		state = watch_get(watch);
	} while (!state);
	hearth__state__free_unpacked(state, NULL);
	assert_true(watch_changed(watch, &seen));
	service_wait(&service, &woken, 0);
	publisher_send(publisher, bytes, n);
	service_wait(&service, &woken, 0);
	assert_false(watch_changed(watch, &seen));
	said.version = 10;
	n = hearth__state__pack(&said, bytes);
	publisher_send(publisher, bytes, n);
	hearth__state__free_unpacked(wait_for(watch, 10), NULL);
	assert_true(watch_changed(watch, &seen));
	said.pid = 6; /* another process that has come as far */
	n = hearth__state__pack(&said, bytes);
	publisher_send(publisher, bytes, n);
	do {
		service_wait(&service, &woken, 0);
	} while (!watch_changed(watch, &seen));
	publisher_close(publisher);
	assert_null(wait_for(watch, 0));
	assert_true(watch_changed(watch, &seen));
	watch_close(watch);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_question_gets_the_whole_state, setup, teardown),
		cmocka_unit_test_setup_teardown(slices_made_again_replace_the_old_ones, setup,
						teardown),
		cmocka_unit_test_setup_teardown(figures_are_fresh_for_who_asks_and_no_news, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_question_waits_for_no_edit, setup, teardown),
		cmocka_unit_test_setup_teardown(texts_of_the_state_are_lines_of_utf8, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_stage_that_is_not_there_is_said_at_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_watch_hears_what_was_said_before_it_came, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_watch_follows_a_stage_through_its_restarts, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_state_that_is_only_repeated_is_no_change, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_watch_keeps_the_last_state_when_rubbish_comes,
						setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
