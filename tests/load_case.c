#include "tests/load_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "tests/gguf_builder.h"
#include "tests/knobs.h"

struct load_case loading;

int
load_case_setup(void **state)
{
	struct tiny tiny = tiny_default();
	char stem[80];

	scratch_setup(state);
	tiny.layers = LOAD_SLICES - 1;
	snprintf(loading.model, sizeof(loading.model), "%s/m.gguf", scratch_of_test.dir);
	tiny_write(&tiny, loading.model);
	snprintf(stem, sizeof(stem), "%s/s", scratch_of_test.dir);
	tiny_write_split(&tiny, stem, 3);
	tiny_split_path(loading.split, sizeof(loading.split), stem, 1, 3);
	loading.service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&loading.service.lock, NULL);
	pthread_cond_init(&loading.service.wake, NULL);
	if (board_open(&loading.pinner, scratch_of_test.dir, "pinner", &loading.err) < 0)
		return -1;
	return board_open(&loading.board, scratch_of_test.dir, "loader", &loading.err);
}

int
load_case_teardown(void **state)
{
	board_close(loading.board);
	board_close(loading.pinner);
	scratch_teardown(state);
	return knobs_restore(state);
}

struct load_options
load_case_options(const char *model, const char *read)
{
	return (struct load_options){ .dir = scratch_of_test.dir,
				      .model = model,
				      .read = read,
				      .threads = 3,
				      .numa_node = NUMA_NODE_AUTO,
				      .io = &io_system,
				      .cache = &cache_system,
				      .populate = &populate_system,
				      .root = "" };
}

struct load_options
load_case_pages(enum arena_pages pages)
{
	struct load_options options = load_case_options(loading.model, "buffered");

	options.pages = pages;
	return options;
}

struct load
load_case_new(const struct load_options *options)
{
	return (struct load){ .options = options,
			      .service = &loading.service,
			      .board = loading.board,
			      .arena = { .fd = -1 } };
}

int
load_case_take_arena(struct load *load)
{
	int rc = load_plan(load, &loading.err);

	return rc < 0 ? rc : load_take_arena(load, &loading.err);
}

int
load_case_run(struct load *load)
{
	int rc = load_case_take_arena(load);

	if (rc == 0)
		rc = load_read(load, &loading.err);
	if (rc == 0)
		rc = load_finish(load, &loading.err);
	return rc;
}

void
load_case_show(const struct load *load, uint32_t filled)
{
	Hearth__State *state = board_edit(loading.pinner);
	Hearth__Arena *named = board_arena(state);
	char path[SHARED_PATH_BYTES];

	shared_memory_path(path, load->arena.fd);
	board_text(&named->path, "%s", path);
	named->bytes = load->arena.bytes;
	named->stamp = load->head.stamp;
	named->layout_hash = load->head.layout_hash;
	assert_int_equal(board_slices(state, LOAD_SLICES), 0);
	for (uint32_t i = 0; i < filled; i++) {
		state->slices[i]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
		state->slices[i]->checksum = load->checksums[i];
	}
	board_publish(loading.pinner);
}
