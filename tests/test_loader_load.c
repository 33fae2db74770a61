/* loader/load.h: a start in one process, from files to a published arena, cold and warm. */
#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "loader/load.h"
#include "loader/load_board.h"
#include "tests/gguf_builder.h"

#define SLICES 5

static char folder[64], model[96], split[96];
static struct service service;
static struct board *board, *pinner;

static int
remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path);
}

/* The same model in one file and in three, two boards, and a service that is never told to leave.
 */
static int
setup(void **state)
{
	struct tiny tiny = tiny_default();
	char stem[80];
	struct error err;

	(void)state;
	snprintf(folder, sizeof(folder), "/tmp/hearth-load-XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	tiny.layers = SLICES - 1;
	snprintf(model, sizeof(model), "%s/m.gguf", folder);
	tiny_write(&tiny, model);
	snprintf(stem, sizeof(stem), "%s/s", folder);
	tiny_write_split(&tiny, stem, 3);
	tiny_split_path(split, sizeof(split), stem, 1, 3);
	service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.wake, NULL);
	if (board_open(&pinner, folder, "pinner", &err) < 0)
		return -1;
	return board_open(&board, folder, "loader", &err);
}

static int
teardown(void **state)
{
	(void)state;
	board_close(board);
	board_close(pinner);
	return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct load_options
options_of(const char *path, const char *read)
{
	return (struct load_options){ .dir = folder,
				      .model = path,
				      .read = read,
				      .threads = 3,
				      .numa_node = NUMA_NODE_AUTO,
				      .io = &io_system,
				      .cache = &cache_system,
				      .populate = &populate_system,
				      .root = "" };
}

static int
take_arena(struct load *load, const struct load_options *options, struct error *err)
{
	int rc;

	*load = (struct load){
		.options = options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
	rc = load_plan(load, err);
	return rc < 0 ? rc : load_take_arena(load, err);
}

static void
load_whole(struct load *load, const struct load_options *options)
{
	struct error err;
	int rc = take_arena(load, options, &err);

	if (rc == 0)
		rc = load_read(load, &err);
	if (rc == 0)
		rc = load_finish(load, &err);
	if (rc < 0)
		fail_msg("%s", err.text);
}

/* The pinner tells of the arena, and that the first `filled` slices are. */
static void
show(const struct load *load, uint32_t filled)
{
	Hearth__State *state = board_edit(pinner);
	Hearth__Arena *named = board_arena(state);
	char path[SHARED_PATH_BYTES];

	shared_memory_path(path, load->arena.fd);
	board_text(&named->path, "%s", path);
	named->bytes = load->arena.bytes;
	named->stamp = load->head.stamp;
	named->layout_hash = load->head.layout_hash;
	assert_int_equal(board_slices(state, SLICES), 0);
	for (uint32_t i = 0; i < filled; i++) {
		state->slices[i]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
		state->slices[i]->checksum = load->checksums[i];
	}
	board_publish(pinner);
}

static void
a_loaded_arena_is_told_whole(void **state)
{
	struct load_options options = options_of(model, "auto");
	const Hearth__State *said;
	struct load load;

	(void)state;
	load_whole(&load, &options);
	said = board_edit(board);
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
	board_publish(board);
	load_close(&load);
}

static void
another_process_can_attach_and_not_write(void **state)
{
	struct load_options options = options_of(model, "auto");
	struct arena_want want;
	struct arena arena;
	struct load load;
	struct error err;
	char path[128];

	(void)state;
	load_whole(&load, &options);
	snprintf(path, sizeof(path), "%s", board_edit(board)->arena->path);
	board_publish(board);
	want = (struct arena_want){ load.arena.bytes, load.head.stamp, load.head.layout_hash };
	assert_int_equal(arena_attach(&arena, path, true, &want, &err), -EPERM);
	assert_int_equal(arena_attach(&arena, path, false, &want, &err), 0);
	assert_int_equal(arena.inode, load.arena.inode);
	arena_close(&arena);
	load_close(&load);
}

static void
one_file_and_shards_give_the_same_checksums(void **state)
{
	struct load_options whole = options_of(model, "buffered");
	struct load_options shards = options_of(split, "buffered");
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
	struct load_options buffered = options_of(split, "buffered");
	struct load_options direct = options_of(split, "direct");
	struct load one, other = { 0 };
	struct error err;
	int rc = take_arena(&other, &direct, &err);

	(void)state;
	if (rc == -ENOTSUP) {
		print_message("skipped: %s\n", err.text);
		load_close(&other);
		skip();
	}
	assert_int_equal(rc, 0);
	assert_int_equal(load_read(&other, &err), 0);
	load_whole(&one, &buffered);
	assert_memory_equal(one.checksums, other.checksums, SLICES * sizeof(uint64_t));
	load_close(&one);
	load_close(&other);
}

static void
a_warm_arena_is_not_read_again(void **state)
{
	struct load_options options = options_of(model, "auto");
	struct load first, second;

	(void)state;
	load_whole(&first, &options);
	show(&first, SLICES);
	load_whole(&second, &options);
	assert_int_equal(second.arena.inode, first.arena.inode);
	assert_memory_equal(first.checksums, second.checksums, SLICES * sizeof(uint64_t));
	assert_int_equal(board_edit(board)->reader->total_bytes, 0);
	board_publish(board);
	load_close(&first);
	load_close(&second);
}

/* As if the loader had been killed in the middle: what was not said to be filled is read again. */
static void
only_what_was_not_filled_is_read(void **state)
{
	struct load_options options = options_of(model, "auto");
	struct load whole, killed, next;
	struct error err;

	(void)state;
	load_whole(&whole, &options);
	assert_int_equal(take_arena(&killed, &options, &err), 0);
	assert_true(killed.arena.inode != whole.arena.inode);
	for (uint32_t i = 0; i < 2; i++) { /* two slices came, the third in part */
		const struct arena_slice *slice = &killed.arena.slices[i];

		memcpy(killed.arena.base + slice->offset, whole.arena.base + slice->offset,
		       slice->bytes);
		killed.checksums[i] = whole.checksums[i];
	}
	memset(killed.arena.base + killed.arena.slices[2].offset, 0x77, 100);
	show(&killed, 2);
	load_whole(&next, &options);
	assert_int_equal(next.arena.inode, killed.arena.inode);
	assert_memory_equal(next.checksums, whole.checksums, SLICES * sizeof(uint64_t));
	for (uint64_t i = 0; i < whole.head.n_tensors; i++) {
		const struct arena_tensor *t = &whole.arena.tensors[i];

		assert_memory_equal(next.arena.base + t->offset, whole.arena.base + t->offset,
				    t->bytes);
	}
	assert_true(board_edit(board)->reader->adopted_bytes > 0);
	board_publish(board);
	load_close(&whole);
	load_close(&killed);
	load_close(&next);
}

/* The loader was killed after its last word had been written and before the pinner heard it. */
static void
a_sealed_arena_is_whole_whatever_was_heard(void **state)
{
	struct load_options options = options_of(model, "auto");
	struct load first, second;

	(void)state;
	load_whole(&first, &options);
	show(&first, 3);
	load_whole(&second, &options);
	assert_int_equal(second.arena.inode, first.arena.inode);
	assert_memory_equal(first.checksums, second.checksums, SLICES * sizeof(uint64_t));
	load_close(&first);
	load_close(&second);
}

static void
a_changed_file_is_loaded_anew(void **state)
{
	struct load_options options = options_of(model, "auto");
	struct tiny tiny = tiny_default();
	struct load first, second;

	(void)state;
	load_whole(&first, &options);
	show(&first, SLICES);
	tiny.layers = SLICES - 1;
	tiny.seed = 99;
	tiny_write(&tiny, model);
	load_whole(&second, &options);
	assert_true(second.arena.inode != first.arena.inode);
	assert_true(first.checksums[1] != second.checksums[1]);
	load_close(&first);
	load_close(&second);
}

static void
a_bad_model_is_refused_before_there_is_an_arena(void **state)
{
	struct load_options options = options_of(model, "auto");
	struct builder b;
	struct load load;
	struct error err;

	(void)state;
	builder_open(&b);
	builder_string(&b, "general.architecture", "llama");
	builder_write(&b, model);
	builder_close(&b);
	assert_int_equal(take_arena(&load, &options, &err), -ENOTSUP);
	assert_non_null(strstr(err.text, "supported is \"qwen3moe\""));
	assert_null(load.arena.base);
	load_close(&load);
}

#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

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
