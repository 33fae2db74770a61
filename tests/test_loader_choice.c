/* loader/load_choice.h: a start chooses its reader from what the machine says, and tells why. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/load_choice.h"
#include "tests/gguf_builder.h"
#include "tests/scratch.h"

#define SMALL "tests/data/cgroup/small" /* 2 GiB available: no margin for a cache */
#define LARGE "tests/data/cgroup/no-limits"

static struct scratch scratch;
static char model[96];
static struct service service;
static struct board *board;
static struct load load;
static struct error err;
static struct io_calls io;
static struct cache_calls cache;
static struct load_options options;
static struct load_budget budget;
static const Hearth__Reader *reader; /* as the board has it */
static bool cold, stood_in;

static int
say_cached(int fd, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	(void)fd;
	(void)offset;
	*ret = cold ? 0 : (bytes + CACHE_PAGE - 1) / CACHE_PAGE;
	return 0;
}

static int
any_align(int fd, uint32_t *ret)
{
	(void)fd;
	*ret = IO_BLOCK;
	return 0;
}

/* Where there is no direct reading, an ordinary descriptor stands in for it. */
static int
open_again(int fd)
{
	int direct = io_system.open_direct(fd);
	char path[64];

	stood_in = direct < 0;
	if (direct >= 0)
		return direct;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	direct = open(path, O_RDONLY | O_CLOEXEC);
	return direct < 0 ? -errno : direct;
}

static int
refuse_direct(int fd)
{
	(void)fd;
	return -EINVAL;
}

static int
setup(void **state)
{
	struct tiny tiny = tiny_default();

	(void)state;
	scratch_open(&scratch);
	snprintf(model, sizeof(model), "%s/m.gguf", scratch.dir);
	tiny_write(&tiny, model);
	service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.wake, NULL);
	io = io_system;
	io.direct_align = any_align;
	io.open_direct = open_again;
	cache = cache_system;
	cache.stat_pages = say_cached;
	cold = true;
	return board_open(&board, scratch.dir, "loader", &err);
}

static int
teardown(void **state)
{
	(void)state;
	board_close(board);
	scratch_close(&scratch);
	return 0;
}

/* To the arena; then `reader` is the board's. */
static int
start(const char *read, const char *root)
{
	int rc;

	options = (struct load_options){ .dir = scratch.dir,
					 .model = model,
					 .read = read,
					 .threads = 2,
					 .io = &io,
					 .cache = &cache,
					 .populate = &populate_system,
					 .root = root };
	load = (struct load){
		.options = &options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
	load.budget = budget;
	rc = load_plan(&load, &err);
	if (rc == 0)
		rc = load_take_arena(&load, &err);
	if (rc == 0) {
		reader = board_edit(board)->reader;
		board_publish(board);
	}
	return rc;
}

static void
expect(const char *root, const char *chosen, const char *part)
{
	if (start("auto", root) != 0)
		fail_msg("%s", err.text);
	assert_string_equal(reader->chosen, chosen);
	if (!strstr(reader->reason, part))
		fail_msg("\"%s\" does not say \"%s\"", reader->reason, part);
	if (load_read(&load, &err) != 0 || load_finish(&load, &err) != 0)
		fail_msg("%s", err.text);
	load_close(&load);
}

static void
cold_without_room_is_read_direct(void **state)
{
	(void)state;
	expect(SMALL, "direct",
	       "the file cache cannot keep them: room 0.00 GiB (2.00 available by "
	       "MemAvailable");
}

static void
cached_files_are_read_buffered_without_room_too(void **state)
{
	(void)state;
	cold = false;
	expect(SMALL, "buffered", "the files are cached (100 %");
}

static void
cold_with_room_is_read_buffered_so_that_the_next_start_is_warm(void **state)
{
	(void)state;
	expect(LARGE, "buffered", "the files are not cached (0 %");
}

static void
unknown_memory_is_read_buffered(void **state)
{
	(void)state;
	expect("/nonexistent", "buffered", "nothing says how much memory is available");
}

static void
the_state_has_the_numbers(void **state)
{
	(void)state;
	assert_int_equal(start("auto", SMALL), 0);
	assert_true(reader->available_bytes == 2ull << 30);
	assert_string_equal(reader->available_limit, "MemAvailable");
	assert_true(reader->arena_bytes == load.head.bytes);
	assert_true(reader->read_bytes == load.pieces.bytes);
	assert_int_equal(reader->room_bytes, 0);
	assert_true(reader->need_bytes == reader->read_bytes);
	assert_string_equal(reader->probe, "cachestat");
	assert_true(reader->looked_bytes >= reader->read_bytes);
	assert_int_equal(reader->cached_bytes, 0);
	assert_false(reader->keeps || reader->cached || reader->built);
	assert_string_equal(reader->fallback, "");
	load_close(&load);
}

static void
auto_falls_back_where_direct_is_refused_and_says_so(void **state)
{
	(void)state;
	io.open_direct = refuse_direct;
	assert_int_equal(start("auto", SMALL), 0);
	assert_string_equal(reader->chosen, "buffered");
	assert_int_equal(strncmp(reader->reason, "auto: direct: ", 14), 0);
	assert_non_null(strstr(reader->fallback, "m.gguf: its file system refuses O_DIRECT"));
	assert_int_equal(load_read(&load, &err), 0);
	load_close(&load);
}

/* As an overlay does that fails at the first read only. */
static int64_t
refuse_direct_reads(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	if (fcntl(fd, F_GETFL) & O_DIRECT)
		return -EINVAL;
	return io_system.read_at(fd, to, bytes, offset);
}

static int64_t
refuse_direct_vectors(int fd, const struct iovec *to, int n, uint64_t offset)
{
	if (fcntl(fd, F_GETFL) & O_DIRECT)
		return -EINVAL;
	return io_system.readv_at(fd, to, n, offset);
}

static void
auto_falls_back_at_the_first_read_too(void **state)
{
	(void)state;
	io.read_at = refuse_direct_reads;
	io.readv_at = refuse_direct_vectors;
	assert_int_equal(start("auto", SMALL), 0);
	assert_string_equal(reader->chosen, "direct");
	assert_int_equal(load_read(&load, &err), 0);
	if (stood_in) {
		print_message("skipped: no direct reading here\n");
		load_close(&load);
		skip();
	}
	reader = board_edit(board)->reader;
	board_publish(board);
	assert_string_equal(reader->chosen, "buffered");
	assert_non_null(strstr(reader->fallback, "m.gguf"));
	load_close(&load);
}

static void
with_a_budget_it_is_decided_twice_and_may_switch(void **state)
{
	/* clang-format off */
	static const struct { const char *before, *built, *first, *then; } cases[] = {
		{ LARGE, SMALL, "buffered", "direct" },
		{ SMALL, LARGE, "direct", "buffered" },
		{ LARGE, LARGE, "buffered", "buffered" },
		{ SMALL, SMALL, "direct", "direct" },
	};
	/* clang-format on */

	(void)state;
	for (int i = 0; i < 4; i++) {
		bool switches = strcmp(cases[i].first, cases[i].then) != 0;

		budget = (struct load_budget){ .set = true, .resident = 1 << 20 };
		budget.outside = 40ull << 30;
		assert_int_equal(start("auto", cases[i].before), 0);
		assert_string_equal(reader->chosen, cases[i].first);
		assert_true(reader->arena_bytes == 1 << 20);
		assert_false(reader->built);
		options.root = cases[i].built;
		assert_int_equal(load_choose_again(&load, 39ull << 30), switches);
		reader = board_edit(board)->reader;
		board_publish(board);
		assert_string_equal(reader->chosen, cases[i].then);
		assert_true(reader->built && reader->arena_bytes == 0);
		assert_true(reader->read_bytes == 39ull << 30);
		load_close(&load);
	}
	budget = (struct load_budget){ 0 };
}

static void
a_forced_reader_is_not_decided_again(void **state)
{
	(void)state;
	budget = (struct load_budget){ .set = true, .resident = 1 << 20, .outside = 1 << 20 };
	assert_int_equal(start("direct", SMALL), 0);
	options.root = LARGE;
	assert_false(load_choose_again(&load, 1 << 20));
	assert_true(load.choice.direct);
	load_close(&load);
	budget = (struct load_budget){ 0 };
}

static void
a_forced_reader_needs_no_reason_and_looks_at_nothing(void **state)
{
	(void)state;
	assert_int_equal(start("direct", LARGE), 0);
	assert_string_equal(reader->chosen, "direct");
	assert_string_equal(reader->reason, "--read direct");
	assert_string_equal(reader->probe, "");
	load_close(&load);
	assert_int_equal(start("buffered", SMALL), 0);
	assert_string_equal(reader->chosen, "buffered");
	load_close(&load);
}

static void
forced_direct_that_cannot_be_had_is_an_error(void **state)
{
	(void)state;
	io.open_direct = refuse_direct;
	assert_int_equal(start("direct", SMALL), -ENOTSUP);
	assert_non_null(strstr(err.text, "refuses O_DIRECT, want --read buffered"));
	assert_null(load.arena.base);
	load_close(&load);
}

#define CHOICE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CHOICE_TEST(cold_without_room_is_read_direct),
		CHOICE_TEST(cached_files_are_read_buffered_without_room_too),
		CHOICE_TEST(cold_with_room_is_read_buffered_so_that_the_next_start_is_warm),
		CHOICE_TEST(unknown_memory_is_read_buffered),
		CHOICE_TEST(the_state_has_the_numbers),
		CHOICE_TEST(auto_falls_back_where_direct_is_refused_and_says_so),
		CHOICE_TEST(auto_falls_back_at_the_first_read_too),
		CHOICE_TEST(with_a_budget_it_is_decided_twice_and_may_switch),
		CHOICE_TEST(a_forced_reader_is_not_decided_again),
		CHOICE_TEST(a_forced_reader_needs_no_reason_and_looks_at_nothing),
		CHOICE_TEST(forced_direct_that_cannot_be_had_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
