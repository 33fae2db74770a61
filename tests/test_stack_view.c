/* The stack as its stages tell it: who does not answer is told apart, slices are merged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/board.h"
#include "common/clock.h"
#include "scheduler/stack_json.h"
#include "scheduler/stack_view.h"
#include "scheduler/stage_line.h"

static char dir[64];

static int
make_dir(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/hearth-view-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int
remove_dir(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* A socket somebody has bound; the caller closes it. */
static int
bind_socket(const char *name, bool listens)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s", dir, name);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (listens)
		assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static void
without_its_folder_a_stack_is_not_up(void **state)
{
	struct stack_view view = { 0 };
	struct error err;

	(void)state;
	assert_int_equal(stack_view_ask(&view, "/tmp/hearth-none/such", &err), -ENOENT);
	assert_non_null(strstr(err.text, "not up"));
}

static void
stopped_crashed_wedged_and_ready_are_told_apart(void **state)
{
	struct stack_view view = { 0 };
	struct board *board;
	struct error err;
	int silent = bind_socket("worker.state", true);

	(void)state;
	close(bind_socket("pinner.state", false));
	assert_int_equal(board_open(&board, dir, "loader", &err), 0);
	board_phase(board, HEARTH__PHASE__PHASE_READY, "%s", "");
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	assert_string_equal(view.word[LOADER], "ready");
	assert_string_equal(view.word[PINNER], "crashed");
	assert_string_equal(view.word[WORKER], "wedged");
	assert_string_equal(view.word[SCHEDULER], "stopped");
	stack_view_close(&view);
	board_close(board);
	close(silent);
}

static void
loading_without_a_move_for_seconds_is_stalled(void **state)
{
	Hearth__State loader = HEARTH__STATE__INIT;
	uint64_t now = 100 * NS_PER_SECOND;

	(void)state;
	loader.phase = HEARTH__PHASE__PHASE_LOADING;
	loader.progress_ns = now - NS_PER_SECOND;
	assert_string_equal(stack_phase_word(&loader, now), "loading");
	loader.progress_ns = now - 10 * NS_PER_SECOND;
	assert_string_equal(stack_phase_word(&loader, now), "stalled");
	loader.phase = HEARTH__PHASE__PHASE_READY;
	assert_string_equal(stack_phase_word(&loader, now), "ready");
}

/* Two boards with two slices each; the pinner is one slice ahead. */
static void
open_two_boards(struct board *boards[2])
{
	static const char *const stages[2] = { "loader", "pinner" };
	struct error err;

	for (uint32_t i = 0; i < 2; i++) {
		Hearth__State *edit;

		assert_int_equal(board_open(&boards[i], dir, stages[i], &err), 0);
		edit = board_edit(boards[i]);
		assert_int_equal(board_slices(edit, 2), 0);
		board_text(&edit->model, "/models/a.gguf");
		board_text(&edit->slices[0]->name, "trunk");
		board_text(&edit->slices[1]->name, "layer 0");
		edit->slices[0]->bytes = 4096;
		edit->slices[1]->bytes = 8192;
		edit->slices[0]->state =
		    i ? HEARTH__SLICE_STATE__SLICE_REGISTERED : HEARTH__SLICE_STATE__SLICE_FILLED;
		edit->slices[0]->checksum = i ? 0 : 0xabcdef;
		board_publish(boards[i]);
	}
}

static void
a_slice_is_as_far_as_the_furthest_stage(void **state)
{
	struct stack_view view = { 0 };
	struct board *boards[2];
	struct slice_view slice;
	struct error err;

	(void)state;
	open_two_boards(boards);
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	assert_int_equal(stack_slices(&view), 2);
	slice = stack_slice(&view, 0);
	assert_string_equal(slice.name, "trunk");
	assert_int_equal(slice.state, HEARTH__SLICE_STATE__SLICE_REGISTERED);
	assert_int_equal(slice.checksum, 0xabcdef);
	assert_int_equal(stack_slice(&view, 1).state, HEARTH__SLICE_STATE__SLICE_RESERVED);
	stack_view_close(&view);
	board_close(boards[0]);
	board_close(boards[1]);
}

static void
the_slots_are_told_in_the_line_and_in_json(void **state)
{
	struct stack_view view = { 0 };
	char line[STAGE_LINE_BYTES];
	Hearth__Cache *cache;
	struct board *board;
	struct error err;
	json_t *json, *told;

	(void)state;
	assert_int_equal(board_open(&board, dir, "worker", &err), 0);
	cache = board_cache(board_computing(board_edit(board)));
	cache->slots = 9;
	cache->filled = 7;
	cache->experts = 20;
	board_publish(board);
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	stage_line(line, view.state[WORKER], view.asked_ns);
	assert_non_null(strstr(line, "7 of 9 slots filled for 20 experts, "));
	assert_null(strstr(line, "hits")); /* of none there is no share */
	assert_null(strstr(line, "CPU share"));
	board_edit(board);
	cache->uses = 8;
	cache->hits = 3;
	cache->bytes_moved = 4096;
	cache->cpu_threads = 15;
	cache->cpu_share = 0.375f;
	cache->cpu_experts = 12;
	board_publish(board);
	stack_view_close(&view);
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	stage_line(line, view.state[WORKER], view.asked_ns);
	assert_non_null(strstr(line, "20 experts, 37.5 % hits, "));
	assert_non_null(strstr(line, "hits, CPU share 0.38, 12 experts by 15 threads, "));
	json = stack_json(&view);
	told = json_object_get(
	    json_object_get(json_object_get(json_object_get(json, "stages"), "worker"), "cache"),
	    "bytes_moved");
	assert_int_equal(json_integer_value(told), 4096);
	json_decref(json);
	stack_view_close(&view);
	board_close(board);
}

static void
json_holds_name_model_stages_and_slices(void **state)
{
	struct stack_view view = { 0 };
	struct board *boards[2];
	struct error err;
	json_t *json, *loader, *slice;

	(void)state;
	open_two_boards(boards);
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	json = stack_json(&view);
	assert_non_null(json);
	assert_string_equal(json_string_value(json_object_get(json, "model")), "/models/a.gguf");
	assert_memory_equal(json_string_value(json_object_get(json, "name")), "view-", 5);
	loader = json_object_get(json_object_get(json, "stages"), "loader");
	assert_string_equal(json_string_value(json_object_get(loader, "state")), "starting");
	assert_int_equal(json_integer_value(json_object_get(loader, "pid")), getpid());
	assert_true(json_integer_value(json_object_get(loader, "since")) > 0);
	assert_true(json_is_null(
	    json_object_get(json_object_get(json_object_get(json, "stages"), "worker"), "pid")));
	slice = json_array_get(json_object_get(json, "slices"), 0);
	assert_string_equal(json_string_value(json_object_get(slice, "state")), "registered");
	assert_string_equal(json_string_value(json_object_get(slice, "checksum")),
			    "0000000000abcdef");
	assert_int_equal(json_integer_value(json_object_get(slice, "bytes")), 4096);
	json_decref(json);
	stack_view_close(&view);
	board_close(boards[0]);
	board_close(boards[1]);
}

static void
the_choice_of_the_reader_is_told_with_its_numbers(void **state)
{
	struct stack_view view = { 0 };
	char line[STAGE_LINE_BYTES];
	struct board *boards[2];
	Hearth__Reader *reader;
	struct error err;
	json_t *json, *choice;

	(void)state;
	open_two_boards(boards);
	reader = board_reader(board_edit(boards[0]));
	board_text(&reader->chosen, "buffered");
	board_text(&reader->reason, "auto: direct: no room");
	board_text(&reader->fallback, "m.gguf: refuses");
	board_text(&reader->probe, "cachestat");
	reader->available_bytes = 5000;
	reader->need_bytes = 3000;
	board_publish(boards[0]);
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	stage_line(line, view.state[LOADER], view.asked_ns);
	assert_non_null(strstr(line, "auto: direct: no room, not direct: m.gguf: refuses"));
	json = stack_json(&view);
	choice = json_object_get(
	    json_object_get(json_object_get(json_object_get(json, "stages"), "loader"), "reader"),
	    "choice");
	assert_int_equal(json_integer_value(json_object_get(choice, "available_bytes")), 5000);
	assert_int_equal(json_integer_value(json_object_get(choice, "need_bytes")), 3000);
	assert_string_equal(json_string_value(json_object_get(choice, "probe")), "cachestat");
	assert_string_equal(json_string_value(json_object_get(choice, "fallback")),
			    "m.gguf: refuses");
	json_decref(json);
	stack_view_close(&view);
	board_close(boards[0]);
	board_close(boards[1]);
}

static void
what_was_brought_from_outside_the_budget_is_told(void **state)
{
	struct stack_view view = { 0 };
	char line[STAGE_LINE_BYTES];
	struct board *boards[2];
	Hearth__Reader *reader;
	struct error err;
	json_t *json, *demand, *outside;

	(void)state;
	open_two_boards(boards);
	reader = board_reader(board_edit(boards[0]));
	reader->demand_requests = 9;
	reader->demand_wait_ns = 250000000;
	reader->outside_experts = 40;
	reader->outside_hits = 7;
	reader->outside_windows = 120;
	reader->outside_reads = 50;
	reader->outside_bytes = 3 << 20;
	board_publish(boards[0]);
	assert_int_equal(stack_view_ask(&view, dir, &err), 0);
	stage_line(line, view.state[LOADER], view.asked_ns);
	assert_non_null(strstr(line, "brought 40 experts that do not stay (3.00 MiB in 50 reads), "
				     "0.250 s for 9 requests"));
	json = stack_json(&view);
	demand = json_object_get(
	    json_object_get(json_object_get(json_object_get(json, "stages"), "loader"), "reader"),
	    "demand");
	outside = json_object_get(demand, "outside");
	assert_int_equal(json_integer_value(json_object_get(demand, "requests")), 9);
	assert_true(json_real_value(json_object_get(demand, "wait_seconds")) == 0.25);
	assert_int_equal(json_integer_value(json_object_get(outside, "experts")), 40);
	assert_int_equal(json_integer_value(json_object_get(outside, "hits")), 7);
	assert_int_equal(json_integer_value(json_object_get(outside, "windows")), 120);
	assert_int_equal(json_integer_value(json_object_get(outside, "reads")), 50);
	assert_int_equal(json_integer_value(json_object_get(outside, "bytes")), 3 << 20);
	json_decref(json);
	stack_view_close(&view);
	board_close(boards[0]);
	board_close(boards[1]);
}

/* A line longer than its room is cut, never overrun. */
static void
a_long_reason_is_cut(void **state)
{
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Pinning pinning = HEARTH__PINNING__INIT;
	char reason[2 * STAGE_LINE_BYTES], line[STAGE_LINE_BYTES];

	(void)state;
	memset(reason, 'x', sizeof(reason) - 1);
	reason[sizeof(reason) - 1] = '\0';
	pinner.reason = reason;
	pinner.pinning = &pinning;
	stage_line(line, &pinner, 1);
	assert_int_equal(strlen(line), STAGE_LINE_BYTES - 1);
}

/* How much is registered, at which rate, and of the rest how much is not and why. */
static void
the_line_says_what_is_registered_and_what_is_not(void **state)
{
	Hearth__State pinner = HEARTH__STATE__INIT;
	Hearth__Pinning pinning = HEARTH__PINNING__INIT;
	char line[STAGE_LINE_BYTES];
	uint64_t gib = 1ull << 30;

	(void)state;
	pinner.pinning = &pinning;
	pinning.device = "cuda:0 X";
	pinning.method = "cudaHostRegister";
	pinning.order = "before";
	pinning.registered_bytes = 4 * gib;
	pinning.register_ns = NS_PER_SECOND / 5;
	pinning.cap_bytes = 4 * gib;
	pinning.over_cap_bytes = 6 * gib;
	pinning.locked_bytes = 2 * gib;
	pinning.locked_note = "layer 9: refused";
	stage_line(line, &pinner, 1);
	assert_string_equal(
	    line, "cuda:0 X, registered 4.00 GiB by cudaHostRegister in 0.200 s, "
		  "0.050 s/GiB before reading, 6.00 GiB not registered: over --pin-gib 4, "
		  "2.00 GiB locked instead, no more is locked: layer 9: refused");
	assert_true(stage_register_rate(&pinning) > 0.0499 &&
		    stage_register_rate(&pinning) < 0.0501);
	pinning.registered_bytes = 0;
	assert_true(stage_register_rate(&pinning) == 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(without_its_folder_a_stack_is_not_up),
		cmocka_unit_test_setup_teardown(stopped_crashed_wedged_and_ready_are_told_apart,
						make_dir, remove_dir),
		cmocka_unit_test(loading_without_a_move_for_seconds_is_stalled),
		cmocka_unit_test_setup_teardown(a_slice_is_as_far_as_the_furthest_stage, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(json_holds_name_model_stages_and_slices, make_dir,
						remove_dir),
		cmocka_unit_test_setup_teardown(the_choice_of_the_reader_is_told_with_its_numbers,
						make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(what_was_brought_from_outside_the_budget_is_told,
						make_dir, remove_dir),
		cmocka_unit_test(a_long_reason_is_cut),
		cmocka_unit_test_setup_teardown(the_slots_are_told_in_the_line_and_in_json,
						make_dir, remove_dir),
		cmocka_unit_test(the_line_says_what_is_registered_and_what_is_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
