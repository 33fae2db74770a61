/* loader/load.h: a start in one process, from files to a published arena, cold and warm. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/gguf_builder.h"
#include "tests/load_case.h"

#define SLICES LOAD_SLICES

static int
take_arena(struct load *load, const struct load_options *options)
{
	*load = load_case_new(options);
	return load_case_take_arena(load);
}

static void
load_whole(struct load *load, const struct load_options *options)
{
	*load = load_case_new(options);
	if (load_case_run(load) < 0)
		fail_msg("%s", loading.err.text);
}

static void
a_loaded_arena_is_told_whole(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	const Hearth__State *said;
	struct load load;

	(void)state;
	load_whole(&load, &options);
	said = board_edit(loading.board);
	assert_int_equal(said->phase, HEARTH__PHASE__PHASE_READY);
	assert_string_equal(said->model_name, "tiny");
	assert_string_equal(said->reader->chosen, "buffered");
	assert_int_equal(strncmp(said->reader->reason, "auto: buffered: ", 16), 0);
	assert_true(said->reader->bytes > 0);
	assert_true(said->reader->bytes == said->reader->total_bytes);
	assert_int_equal(said->reader->adopted_bytes, 0);
	assert_true(said->arena->inode == load.arena.inode);
	assert_int_equal(said->n_slices, SLICES);
	for (uint32_t i = 0; i < SLICES; i++) {
		assert_int_equal(said->slices[i]->state, HEARTH__SLICE_STATE__SLICE_FILLED);
		assert_true(said->slices[i]->checksum != 0);
		assert_true(said->slices[i]->begin_ns != 0);
		assert_true(said->slices[i]->end_ns >= said->slices[i]->begin_ns);
	}
	board_publish(loading.board);
	load_close(&load);
}

static void
another_process_can_attach_and_not_write(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	struct arena_want want;
	struct arena arena;
	struct load load;
	char path[128];

	(void)state;
	load_whole(&load, &options);
	snprintf(path, sizeof(path), "%s", board_edit(loading.board)->arena->path);
	board_publish(loading.board);
	want = (struct arena_want){ load.arena.bytes, load.head.stamp, load.head.layout_hash };
	assert_int_equal(arena_attach(&arena, path, true, &want, &loading.err), -EPERM);
	assert_int_equal(arena_attach(&arena, path, false, &want, &loading.err), 0);
	assert_int_equal(arena.inode, load.arena.inode);
	arena_close(&arena);
	load_close(&load);
}

static void
one_file_and_shards_give_the_same_checksums(void **state)
{
	struct load_options whole = load_case_options(loading.model, "buffered");
	struct load_options shards = load_case_options(loading.split, "buffered");
	struct load one, other;

	(void)state;
	load_whole(&one, &whole);
	load_whole(&other, &shards);
	assert_memory_equal(one.checksums, other.checksums, SLICES * sizeof(uint64_t));
	load_close(&one);
	load_close(&other);
}

static void
buffered_and_direct_give_the_same_checksums(void **state)
{
	struct load_options buffered = load_case_options(loading.split, "buffered");
	struct load_options direct = load_case_options(loading.split, "direct");
	struct load one, other = { 0 };
	int rc = take_arena(&other, &direct);

	(void)state;
	if (rc == -ENOTSUP) {
		print_message("skipped: %s\n", loading.err.text);
		load_close(&other);
		skip();
	}
	assert_int_equal(rc, 0);
	assert_int_equal(load_read(&other, &loading.err), 0);
	load_whole(&one, &buffered);
	assert_memory_equal(one.checksums, other.checksums, SLICES * sizeof(uint64_t));
	load_close(&one);
	load_close(&other);
}

static void
a_warm_arena_is_not_read_again(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	struct load first, second;

	(void)state;
	load_whole(&first, &options);
	load_case_show(&first, SLICES);
	load_whole(&second, &options);
	assert_int_equal(second.arena.inode, first.arena.inode);
	assert_memory_equal(first.checksums, second.checksums, SLICES * sizeof(uint64_t));
	assert_int_equal(board_edit(loading.board)->reader->total_bytes, 0);
	board_publish(loading.board);
	load_close(&first);
	load_close(&second);
}

/* As if the loader had been killed in the middle: what was not said to be filled is read again. */
static void
only_what_was_not_filled_is_read(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	struct load whole, killed, next;

	(void)state;
	load_whole(&whole, &options);
	assert_int_equal(take_arena(&killed, &options), 0);
	assert_true(killed.arena.inode != whole.arena.inode);
	for (uint32_t i = 0; i < 2; i++) { /* two slices came, the third in part */
		const struct arena_slice *slice = &killed.arena.slices[i];

		memcpy(killed.arena.base + slice->offset, whole.arena.base + slice->offset,
		       slice->bytes);
		killed.checksums[i] = whole.checksums[i];
	}
	memset(killed.arena.base + killed.arena.slices[2].offset, 0x77, 100);
	load_case_show(&killed, 2);
	load_whole(&next, &options);
	assert_int_equal(next.arena.inode, killed.arena.inode);
	assert_memory_equal(next.checksums, whole.checksums, SLICES * sizeof(uint64_t));
	for (uint64_t i = 0; i < whole.head.n_tensors; i++) {
		const struct arena_tensor *t = &whole.arena.tensors[i];

		assert_memory_equal(next.arena.base + t->offset, whole.arena.base + t->offset,
				    t->bytes);
	}
	assert_true(board_edit(loading.board)->reader->adopted_bytes > 0);
	board_publish(loading.board);
	load_close(&whole);
	load_close(&killed);
	load_close(&next);
}

/* The loader was killed after its last word had been written and before the pinner heard it. */
static void
a_sealed_arena_is_whole_whatever_was_heard(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	struct load first, second;

	(void)state;
	load_whole(&first, &options);
	load_case_show(&first, 3);
	load_whole(&second, &options);
	assert_int_equal(second.arena.inode, first.arena.inode);
	assert_memory_equal(first.checksums, second.checksums, SLICES * sizeof(uint64_t));
	load_close(&first);
	load_close(&second);
}

static void
a_changed_file_is_loaded_anew(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	struct tiny tiny = tiny_default();
	struct load first, second;

	(void)state;
	load_whole(&first, &options);
	load_case_show(&first, SLICES);
	tiny.layers = SLICES - 1;
	tiny.seed = 99;
	tiny_write(&tiny, loading.model);
	load_whole(&second, &options);
	assert_true(second.arena.inode != first.arena.inode);
	assert_true(first.checksums[1] != second.checksums[1]);
	load_close(&first);
	load_close(&second);
}

static void
a_bad_model_is_refused_before_there_is_an_arena(void **state)
{
	struct load_options options = load_case_options(loading.model, "auto");
	struct builder b;
	struct load load;

	(void)state;
	builder_open(&b);
	builder_string(&b, "general.architecture", "llama");
	builder_write(&b, loading.model);
	builder_close(&b);
	assert_int_equal(take_arena(&load, &options), -ENOTSUP);
	assert_non_null(strstr(loading.err.text, "supported is \"qwen3moe\""));
	assert_null(load.arena.base);
	load_close(&load);
}

#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, load_case_setup, load_case_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LOAD_TEST(a_loaded_arena_is_told_whole),
		LOAD_TEST(another_process_can_attach_and_not_write),
		LOAD_TEST(one_file_and_shards_give_the_same_checksums),
		LOAD_TEST(buffered_and_direct_give_the_same_checksums),
		LOAD_TEST(a_warm_arena_is_not_read_again),
		LOAD_TEST(only_what_was_not_filled_is_read),
		LOAD_TEST(a_sealed_arena_is_whole_whatever_was_heard),
		LOAD_TEST(a_changed_file_is_loaded_anew),
		LOAD_TEST(a_bad_model_is_refused_before_there_is_an_arena),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
