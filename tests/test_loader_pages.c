/* loader/load_pages.h: whole loads on each kind of pages: the same bytes, what was got is what
 * smaps tells, and what was not got is said with what would help. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/shared_memory.h"
#include "loader/load.h"
#include "loader/load_pages.h"
#include "tests/gguf_builder.h"
#include "tests/knobs.h"
#include "tests/scratch.h"

#define SHMEM "/sys/" PAGES_SHMEM_KNOB
#define POOL "/sys/" PAGES_POOL_KNOB
#define SLICES 5
#define CHUNKS 6 /* 2 MiB pages of the arena: the directory and the slices */

static struct scratch scratch;
static char model[96];
static struct service service;
static struct board *board, *pinner;
static struct error err;

static int
setup(void **state)
{
	struct tiny tiny = tiny_default();

	(void)state;
	scratch_open(&scratch);
	tiny.layers = SLICES - 1;
	snprintf(model, sizeof(model), "%s/m.gguf", scratch.dir);
	tiny_write(&tiny, model);
	service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.wake, NULL);
	if (board_open(&pinner, scratch.dir, "pinner", &err) < 0)
		return -1;
	return board_open(&board, scratch.dir, "loader", &err);
}

static int
teardown(void **state)
{
	board_close(board);
	board_close(pinner);
	scratch_close(&scratch);
	return knobs_restore(state);
}

static struct load_options
options_of(enum arena_pages pages)
{
	return (struct load_options){ .dir = scratch.dir,
				      .model = model,
				      .read = "buffered",
				      .threads = 3,
				      .pages = pages,
				      .numa_node = NUMA_NODE_AUTO,
				      .io = &io_system,
				      .cache = &cache_system,
				      .populate = &populate_system,
				      .root = "" };
}

static struct load
new_load(const struct load_options *options)
{
	return (struct load){
		.options = options, .service = &service, .board = board, .arena = { .fd = -1 }
	};
}

static int
run(struct load *load)
{
	int rc = load_plan(load, &err);

	if (rc == 0)
		rc = load_take_arena(load, &err);
	if (rc == 0)
		rc = load_read(load, &err);
	if (rc == 0)
		rc = load_finish(load, &err);
	return rc;
}

/* The state's pages are `got`; returns the arena's checksum. */
static uint64_t
loads_with(enum arena_pages pages, const char *got)
{
	struct load_options options = options_of(pages);
	struct load load = new_load(&options);
	const Hearth__Pages *said;
	uint64_t checksum;

	if (run(&load) < 0)
		fail_msg("%s", err.text);
	checksum = checksum_whole(load.checksums, load.placement.n_slices);
	said = board_edit(board)->pages;
	assert_string_equal(said->wanted, pages_word(pages));
	assert_string_equal(said->got, got);
	assert_int_equal(said->bytes, load.arena.bytes);
	assert_int_equal(said->huge_bytes, strcmp(got, "4k") == 0 ? 0 : said->bytes);
	assert_true((said->advice[0] == '\0') == (said->huge_bytes == said->bytes));
	assert_true(said->numa_note[0] != '\0');
	board_publish(board);
	assert_int_equal(load.arena.bytes, CHUNKS * PAGES_HUGE_BYTES);
	/* Sealed: nobody can get a writable mapping of it any more. */
	assert_ptr_equal(
	    mmap(NULL, load.arena.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, load.arena.fd, 0),
	    MAP_FAILED);
	load_close(&load);
	return checksum;
}

static void
need_knob(const char *path, const char *value)
{
	if (knob_set(path, value))
		return;
	print_message(
	    "SKIPPED: %s cannot be set to %s here (want root, and a kernel that has it)\n", path,
	    value);
	skip();
}

static void
all_kinds_of_pages_hold_the_same_bytes(void **state)
{
	uint64_t checksum = loads_with(ARENA_PAGES_4K, "4k");

	(void)state;
	need_knob(SHMEM, "advise");
	assert_true(loads_with(ARENA_PAGES_THP, "thp") == checksum);
	need_knob(POOL, "6");
	assert_true(loads_with(ARENA_PAGES_HUGETLB, "hugetlb") == checksum);
}

static void
auto_takes_the_best_there_is(void **state)
{
	(void)state;
	need_knob(SHMEM, "advise");
	need_knob(POOL, "6");
	loads_with(ARENA_PAGES_AUTO, "hugetlb");
	need_knob(POOL, "5"); /* one short */
	loads_with(ARENA_PAGES_AUTO, "thp");
	need_knob(SHMEM, "never");
	loads_with(ARENA_PAGES_AUTO, "4k");
}

static void
refuses(enum arena_pages pages, const char *part)
{
	struct load_options options = options_of(pages);
	struct load load = new_load(&options);

	assert_int_equal(error_exit_code(run(&load)), EXIT_INPUT);
	assert_non_null(strstr(err.text, part));
	load_close(&load);
}

static void
a_kind_that_was_forced_and_is_not_there_is_refused(void **state)
{
	(void)state;
	need_knob(SHMEM, "never");
	refuses(ARENA_PAGES_THP, "shmem_enabled is never: as root echo advise > it");
	need_knob(POOL, "5");
	refuses(ARENA_PAGES_HUGETLB, "needs 6 pages of 2 MiB, 5 of 5 are free: as root echo 6 >");
}

static void
small_pages_stay_small_though_the_kernel_gives_huge_ones_unasked(void **state)
{
	(void)state;
	need_knob(SHMEM, "always");
	loads_with(ARENA_PAGES_4K, "4k");
}

/* The pinner tells of the arena, and that all of it is filled. */
static void
show(const struct load *load)
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
	for (uint32_t i = 0; i < SLICES; i++) {
		state->slices[i]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
		state->slices[i]->checksum = load->checksums[i];
	}
	board_publish(pinner);
}

static void
a_warm_arena_has_the_pages_it_was_made_of(void **state)
{
	struct load_options small = options_of(ARENA_PAGES_4K), huge = options_of(ARENA_PAGES_THP);
	struct load first = new_load(&huge), second = new_load(&small);
	const Hearth__Pages *said;

	(void)state;
	need_knob(SHMEM, "advise");
	assert_int_equal(run(&first), 0);
	show(&first);
	assert_int_equal(run(&second), 0);
	assert_true(second.adopted);
	said = board_edit(board)->pages;
	assert_string_equal(said->wanted, "4k");
	assert_string_equal(said->got, "thp");
	assert_int_equal(said->huge_bytes, first.arena.bytes);
	assert_int_equal(said->numa_node, NUMA_NODE_NONE);
	board_publish(board);
	load_close(&second);
	load_close(&first);
}

/* A container whose control group allows fewer huge pages than the pool has. */
static atomic_int pool_pages;

static int
populate_until_refused(void *at, uint64_t bytes)
{
	if (atomic_fetch_sub(&pool_pages, (int)(bytes / PAGES_HUGE_BYTES)) <= 0)
		return -EFAULT;
	return populate_system.populate(at, bytes);
}

static void
a_pool_that_ends_at_the_touch_is_done_without(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = options_of(ARENA_PAGES_AUTO);
	struct load load = new_load(&options);

	(void)state;
	need_knob(SHMEM, "never");
	need_knob(POOL, "6");
	calls.populate = populate_until_refused;
	options.populate = &calls;
	atomic_store(&pool_pages, 2);
	assert_int_equal(run(&load), -ENOMEM);
	assert_non_null(strstr(err.text, "no memory for"));
	assert_true(load_pages_ran_out(&load));
	load_start_over(&load);
	atomic_store(&pool_pages, CHUNKS + 1);
	options.populate = &populate_system;
	assert_int_equal(run(&load), 0);
	assert_false(load_pages_ran_out(&load));
	assert_string_equal(board_edit(board)->pages->got, "4k");
	board_publish(board);
	load_close(&load);
}

static void
a_forced_pool_that_ends_at_the_touch_says_what_to_do(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = options_of(ARENA_PAGES_HUGETLB);
	struct load load = new_load(&options);
	int rc;

	(void)state;
	need_knob(POOL, "6");
	calls.populate = populate_until_refused;
	options.populate = &calls;
	atomic_store(&pool_pages, 2);
	rc = run(&load);
	assert_int_equal(rc, -ENOMEM);
	assert_false(load_pages_ran_out(&load));
	load_pages_explain(&load, rc, &err);
	assert_non_null(strstr(err.text, "no memory for"));
	assert_non_null(strstr(err.text, "want --pages auto"));
	load_close(&load);
}

static void
memory_that_is_not_there_is_a_line_and_no_signal(void **state)
{
	struct populate_calls calls = populate_system;
	struct load_options options = options_of(ARENA_PAGES_4K);
	struct load load = new_load(&options);

	(void)state;
	calls.populate = populate_until_refused;
	options.populate = &calls;
	atomic_store(&pool_pages, 0); /* not even for the directory */
	assert_int_equal(run(&load), -ENOMEM);
	assert_non_null(strstr(err.text, "no memory for the arena's directory (4k pages)"));
	load_close(&load);
	load = new_load(&options);
	atomic_store(&pool_pages, 3);
	assert_int_equal(run(&load), -ENOMEM);
	assert_non_null(strstr(err.text, "no memory for"));
	assert_false(load_pages_ran_out(&load));
	load_close(&load);
}

/* The group's folder, or NULL: this process may not make one. */
static const char *
limited_group(const char *bytes)
{
	static const char *const roots[][2] = {
		{ "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
		{ "/sys/fs/cgroup", "memory.max" },
	};
	static char group[96];
	char path[160];

	for (uint32_t i = 0; i < 2; i++) {
		FILE *file;

		snprintf(group, sizeof(group), "%s/hearth-test-%d", roots[i][0], (int)getpid());
		if (mkdir(group, 0700) < 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", group, roots[i][1]);
		file = fopen(path, "r+");
		if (file && fputs(bytes, file) >= 0 && fclose(file) == 0)
			return group;
		rmdir(group);
	}
	return NULL;
}

static bool
join(const char *group)
{
	char path[160];
	FILE *file;

	snprintf(path, sizeof(path), "%s/cgroup.procs", group);
	file = fopen(path, "w");
	return file && fprintf(file, "%d", (int)getpid()) > 0 && fclose(file) == 0;
}

static void
a_control_group_too_small_is_refused_before_anything_is_reserved(void **state)
{
	struct load_options options = options_of(ARENA_PAGES_4K);
	struct load load = new_load(&options);
	const char *group = limited_group("8388608");
	int status;
	pid_t child;

	(void)state;
	if (!group) {
		print_message("SKIPPED: no control group can be made here (want root)\n");
		skip();
	}
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		/* nng must not be used here. */
		if (!join(group) || load_plan(&load, &err) < 0)
			_exit(2);
		available_read(&load.available, "");
		_exit(load_reserve(&load, &err) == -EOVERFLOW &&
			      strstr(err.text, "needs 12 MiB of memory") &&
			      strstr(err.text, "hearth-test-") && load.arena.fd < 0
			  ? 0
			  : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(rmdir(group), 0);
	assert_int_equal(status, 0);
}

/* In a child, so that the limit ends with it. */
static void
too_little_address_space_is_a_line(void **state)
{
	const struct rlimit limit = { 1 << 20, 1 << 20 };
	struct arena arena;
	int status;
	pid_t child;

	(void)state;
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		int rc = setrlimit(RLIMIT_AS, &limit);

		if (rc == 0)
			rc = arena_create(&arena, 1ull << 40, ARENA_PAGES_4K, &err);
		_exit(rc == -ENOMEM && strstr(err.text, "address space") ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

#define LOAD_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		LOAD_TEST(all_kinds_of_pages_hold_the_same_bytes),
		LOAD_TEST(auto_takes_the_best_there_is),
		LOAD_TEST(a_kind_that_was_forced_and_is_not_there_is_refused),
		LOAD_TEST(small_pages_stay_small_though_the_kernel_gives_huge_ones_unasked),
		LOAD_TEST(a_warm_arena_has_the_pages_it_was_made_of),
		LOAD_TEST(a_pool_that_ends_at_the_touch_is_done_without),
		LOAD_TEST(a_forced_pool_that_ends_at_the_touch_says_what_to_do),
		LOAD_TEST(memory_that_is_not_there_is_a_line_and_no_signal),
		LOAD_TEST(a_control_group_too_small_is_refused_before_anything_is_reserved),
		cmocka_unit_test(too_little_address_space_is_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
