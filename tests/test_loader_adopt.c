/* loader/directory.h, loader/adopt.h: an arena's directory tells the model, and a warm arena is
 * taken back from a pinner exactly when it is the same. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/board.h"
#include "common/model.h"
#include "common/shared_memory.h"
#include "loader/adopt.h"
#include "loader/directory.h"
#include "tests/gguf_builder.h"
#include "tests/scratch.h"

#define SLICES 3

struct warm {
	struct model_files files;
	struct placement placement;
	struct arena_head head;
	struct arena arena;
	struct board *pinner;
};

static char folder[64];

/* A model's arena with nothing read into it. */
static void
make_arena(struct warm *warm)
{
	struct tiny tiny = tiny_default();
	char path[96];
	struct error err;
	int rc;

	snprintf(path, sizeof(path), "%s/m.gguf", folder);
	tiny_write(&tiny, path);
	rc = model_files_open(&warm->files, path, &err);
	assert_int_equal(rc, 0);
	rc = placement_open(&warm->placement, warm->files.tensors, warm->files.n_tensors,
			    warm->files.shards[0].gguf.header_bytes, &err);
	assert_int_equal(rc, 0);
	assert_int_equal(warm->placement.n_slices, SLICES);
	warm->head = directory_head(&warm->placement, &warm->files);
	rc = arena_create(&warm->arena, warm->head.bytes, ARENA_PAGES_AUTO, &err);
	assert_int_equal(rc, 0);
	rc = directory_write(&warm->arena, &warm->head, &warm->placement, &warm->files, &err);
	if (rc < 0)
		fail_msg("%s", err.text);
}

/* A pinner that says slice 0 is registered, slice 1 filled, slice 2 not yet. */
static void
show_arena(struct warm *warm)
{
	Hearth__State *state = board_edit(warm->pinner);
	Hearth__Arena *named = board_arena(state);
	char path[SHARED_PATH_BYTES];

	shared_memory_path(path, warm->arena.fd);
	board_text(&named->path, "%s", path);
	named->bytes = warm->arena.bytes;
	named->inode = warm->arena.inode;
	named->stamp = warm->head.stamp;
	named->layout_hash = warm->head.layout_hash;
	assert_int_equal(board_slices(state, SLICES), 0);
	state->slices[0]->state = HEARTH__SLICE_STATE__SLICE_REGISTERED;
	state->slices[0]->checksum = 11;
	state->slices[1]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	state->slices[1]->checksum = 22;
	state->slices[2]->state = HEARTH__SLICE_STATE__SLICE_RESERVED;
	state->slices[2]->checksum = 33;
	board_publish(warm->pinner);
}

static int
setup(void **state)
{
	struct warm *warm = calloc(1, sizeof(*warm));
	struct error err;

	*state = warm;
	snprintf(folder, sizeof(folder), "/tmp/hearth-adopt-XXXXXX");
	if (!warm || !mkdtemp(folder))
		return -1;
	make_arena(warm);
	return board_open(&warm->pinner, folder, "pinner", &err);
}

static int
teardown(void **state)
{
	struct warm *warm = *state;

	board_close(warm->pinner);
	arena_close(&warm->arena);
	placement_close(&warm->placement);
	model_files_close(&warm->files);
	free(warm);
	return scratch_remove(folder);
}

static void
the_directory_tells_the_model(void **state)
{
	struct warm *warm = *state;
	struct model model;
	struct error err;

	if (model_read_arena(&model, &warm->arena, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(model.name, "tiny");
	assert_int_equal(model.n_layers, 2);
	assert_int_equal(model.embedding.offset, warm->files.tensors[0].offset);
	assert_true(model.layers[1].role[ROLE_UP].offset >= warm->placement.slices[2].offset);
	assert_non_null(arena_find_tensor(&warm->arena, "blk.1.attn_q.weight"));
	assert_true(warm->head.layout_hash == arena_layout_hash(&warm->arena));
	model_close(&model);
}

static void
the_same_arena_is_taken_with_what_is_filled(void **state)
{
	struct warm *warm = *state;
	bool filled[SLICES];
	uint64_t checksums[SLICES];
	struct arena arena;
	struct error why;

	show_arena(warm);
	if (!adopt_arena(&arena, folder, &warm->head, filled, checksums, &why))
		fail_msg("%s", why.text);
	assert_int_equal(arena.inode, warm->arena.inode);
	assert_true(arena.writable);
	assert_true(filled[0] && filled[1]);
	assert_int_equal(checksums[0], 11);
	assert_int_equal(checksums[1], 22);
	assert_false(filled[2]); /* partly filled, perhaps: not trusted */
	arena.base[arena.slices[2].offset] = 7;
	assert_int_equal(warm->arena.base[arena.slices[2].offset], 7);
	arena_close(&arena);
}

static void
a_slice_without_checksum_is_not_trusted(void **state)
{
	struct warm *warm = *state;
	bool filled[SLICES];
	uint64_t checksums[SLICES];
	struct arena arena;
	struct error why;

	show_arena(warm);
	board_edit(warm->pinner)->slices[0]->checksum = 0;
	board_publish(warm->pinner);
	assert_true(adopt_arena(&arena, folder, &warm->head, filled, checksums, &why));
	assert_false(filled[0]);
	arena_close(&arena);
}

static void
a_sealed_arena_is_taken_to_read(void **state)
{
	struct warm *warm = *state;
	bool filled[SLICES];
	uint64_t checksums[SLICES];
	struct arena arena;
	struct error why;

	show_arena(warm);
	assert_int_equal(arena_seal(&warm->arena), 0);
	assert_true(adopt_arena(&arena, folder, &warm->head, filled, checksums, &why));
	assert_false(arena.writable);
	arena_close(&arena);
}

static void
another_model_or_layout_is_not_taken(void **state)
{
	struct warm *warm = *state;
	struct arena_head head;
	bool filled[SLICES];
	uint64_t checksums[SLICES];
	struct arena arena;
	struct error why;

	show_arena(warm);
	head = warm->head;
	head.stamp++;
	assert_false(adopt_arena(&arena, folder, &head, filled, checksums, &why));
	assert_non_null(strstr(why.text, "the pinner's is of model"));
	head = warm->head;
	head.layout_hash++;
	assert_false(adopt_arena(&arena, folder, &head, filled, checksums, &why));
	head = warm->head;
	head.bytes += ARENA_SLICE_ALIGN;
	assert_false(adopt_arena(&arena, folder, &head, filled, checksums, &why));
}

/* What the message says and what the memory says must agree. */
static void
an_arena_that_is_not_what_the_pinner_says_is_not_taken(void **state)
{
	struct warm *warm = *state;
	struct arena_head head = warm->head;
	bool filled[SLICES];
	uint64_t checksums[SLICES];
	struct arena arena;
	struct error why;

	show_arena(warm);
	head.stamp++;
	board_edit(warm->pinner)->arena->stamp = head.stamp;
	board_publish(warm->pinner);
	assert_false(adopt_arena(&arena, folder, &head, filled, checksums, &why));
	assert_non_null(strstr(why.text, "stamp"));
}

static void
a_pinner_without_an_arena_has_none_to_give(void **state)
{
	struct warm *warm = *state;
	bool filled[SLICES];
	uint64_t checksums[SLICES];
	struct arena arena;
	struct error why;

	assert_false(adopt_arena(&arena, folder, &warm->head, filled, checksums, &why));
	assert_string_equal(why.text, "the pinner has none");
	assert_false(adopt_arena(&arena, "/tmp", &warm->head, filled, checksums, &why));
}

#define WARM_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		WARM_TEST(the_directory_tells_the_model),
		WARM_TEST(the_same_arena_is_taken_with_what_is_filled),
		WARM_TEST(a_slice_without_checksum_is_not_trusted),
		WARM_TEST(a_sealed_arena_is_taken_to_read),
		WARM_TEST(another_model_or_layout_is_not_taken),
		WARM_TEST(an_arena_that_is_not_what_the_pinner_says_is_not_taken),
		WARM_TEST(a_pinner_without_an_arena_has_none_to_give),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
