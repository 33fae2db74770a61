/* The life of a stack: what is refused, what a death does, and that nothing is ever left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"

static void
up(const char *name)
{
	run_do(WORDS("up", stack_path(DEMO), "--name", name, "--device", "cpu"));
}

static uint64_t
arena_inode(const char *name)
{
	json_t *arena = stack_figure(name, "loader", "arena");
	uint64_t inode = (uint64_t)json_integer_value(json_object_get(arena, "inode"));

	json_decref(arena);
	assert_true(inode > 0);
	return inode;
}

static void
down_leaves_nothing(void **state)
{
	uint64_t inode;
	json_t *pid;

	(void)state;
	up("down");
	inode = arena_inode("down");
	pid = stack_figure("down", "worker", "pid");
	assert_int_equal(json_integer_value(pid), stack_pid("down", "worker"));
	json_decref(pid);
	assert_true(stack_count_holders(inode) >= 2);
	assert_true(stack_count_processes() >= 5);
	run_do(WORDS("ask", "--name", "down", "-n", "4", "And"));
	run_do(WORDS("down", "--name", "down"));
	assert_int_equal(stack_count_holders(inode), 0);
	stack_assert_nothing_left();
}

static void
a_killed_supervisor_leaves_nothing(void **state)
{
	uint64_t inode;
	int folder;

	(void)state;
	up("killed");
	inode = arena_inode("killed");
	folder = stack_open_folder("killed");
	stack_kill(stack_supervisor("killed"));
	stack_wait_left(folder);
	assert_int_equal(stack_count_holders(inode), 0);
	assert_int_equal(stack_count_files(), 0);
}

/* Supervisor and keepers at once, as a killer by name does it: the folder may stay, and the next
 * `up` takes it. */
static void
a_killed_run_sh_is_followed_by_a_new_stack(void **state)
{
	int folder;

	(void)state;
	up("all");
	folder = stack_open_folder("all");
	stack_kill_run_sh("all");
	stack_wait_left(folder);
	assert_int_equal(stack_count_processes(), 0);
	up("all");
	run_do(WORDS("down", "--name", "all"));
	stack_assert_nothing_left();
}

static void
a_second_up_of_one_name_is_refused(void **state)
{
	struct run second;
	pid_t worker;

	(void)state;
	up("twice");
	worker = stack_pid("twice", "worker");
	run_words(&second, 100, WORDS("up", stack_path(DEMO), "--name", "twice"));
	stack_assert_one_line(second.err, "twice is up");
	run_close(&second);
	assert_int_equal(stack_pid("twice", "worker"), worker);
	run_do(WORDS("down", "--name", "twice"));
	stack_assert_nothing_left();
}

static void
what_is_not_up_is_said(void **state)
{
	static const char *const commands[] = { "ask", "status", "report", "verify", "down" };
	struct run run;

	(void)state;
	for (uint32_t i = 0; i < 5; i++) {
		run_words(&run, 100, WORDS(commands[i], "--name", "none", i == 0 ? "And" : NULL));
		stack_assert_one_line(run.err, "none is not up");
		run_close(&run);
	}
	stack_assert_nothing_left();
}

/* A link to another folder stands where the stack's would be: nothing in there is touched. */
static void
a_folder_that_is_not_ours_is_left_alone(void **state)
{
	static const char *const commands[] = { "up", "ask", "status", "down" };
	char link[128], folder[128], file[160];
	struct run run;

	(void)state;
	snprintf(link, sizeof(link), "%s/hearth-link", stack_runtime);
	snprintf(folder, sizeof(folder), "%s/other", stack_runtime);
	snprintf(file, sizeof(file), "%s/log", folder);
	assert_int_equal(mkdir(folder, 0700), 0);
	assert_int_equal(symlink(folder, link), 0);
	close(open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	for (uint32_t i = 0; i < 4; i++) {
		run_words(&run, 100,
			  WORDS(commands[i], "--name", "link", i == 0 ? stack_path(DEMO) : NULL));
		stack_assert_one_line(run.err, "not a folder of yours");
		run_close(&run);
	}
	assert_int_equal(unlink(file), 0);
	assert_int_equal(rmdir(folder), 0);
	assert_int_equal(unlink(link), 0);
	stack_assert_nothing_left();
}

/* The demo model's first `n` bytes, with `value` put at `at`. */
static void
write_damaged(const char *path, size_t n, size_t at, uint64_t value)
{
	int from = open(stack_path(DEMO), O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint8_t *bytes = malloc(n + 1);

	assert_true(from >= 0 && to >= 0 && bytes);
	assert_int_equal(read(from, bytes, n), n);
	if (at + sizeof(value) <= n)
		memcpy(bytes + at, &value, sizeof(value));
	assert_int_equal(write(to, bytes, n), n);
	free(bytes);
	close(from);
	close(to);
}

static void
damaged_files_are_refused_with_one_line(void **state)
{
	static const struct {
		size_t n, at;
		uint64_t value;
	} damages[] = {
		{ 0, 0, 0 },                         /* empty */
		{ 24, 100, 0 },                      /* a header and nothing else */
		{ 4000, 4000, 0 },                   /* cut in the metadata */
		{ 6000000, 6000000, 0 },             /* cut in the tensors */
		{ 11823232, 0, 0x0000000346554748 }, /* another magic */
		{ 11823232, 4, 0x3300000001 },       /* version 1 */
		{ 11823232, 8, UINT64_MAX },         /* tensors without end */
		{ 11823232, 16, 1ull << 62 },        /* keys without end */
		{ 11823232, 24, UINT64_MAX - 7 },    /* a key's length near the limit */
	};
	char path[128];
	struct run run;

	(void)state;
	snprintf(path, sizeof(path), "/tmp/%s.gguf", strrchr(stack_runtime, '/') + 1);
	for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
		write_damaged(path, damages[i].n, damages[i].at, damages[i].value);
		run_words(&run, 100, WORDS("up", path, "--name", "damaged", "--device", "cpu"));
		stack_assert_one_line(run.err, path);
		run_close(&run);
		stack_assert_nothing_left();
	}
	unlink(path);
	run_words(&run, 100, WORDS("up", path, "--name", "damaged", "--device", "cpu"));
	stack_assert_one_line(run.err, "No such file");
	run_close(&run);
	snprintf(path, sizeof(path), "%s/x.gguf", stack_path(DEMO));
	run_words(&run, 100, WORDS("up", path, "--name", "damaged", "--device", "cpu"));
	stack_assert_one_line(run.err, "Not a directory");
	run_close(&run);
	run_words(&run, 100, WORDS("up", "/tmp", "--name", "damaged", "--device", "cpu"));
	stack_assert_one_line(run.err, "/tmp");
	run_close(&run);
	stack_assert_nothing_left();
}

static void
a_cap_too_small_for_the_keys_and_values_is_said_once(void **state)
{
	struct run run;

	(void)state;
	run_words(&run, 100,
		  WORDS("up", stack_path("tests/data/kjv-16x1m.gguf"), "--name", "capped",
			"--device", "cpu", "--vram-mib", "4"));
	assert_non_null(strstr(run.err, "kv: 8 MiB"));
	assert_non_null(strstr(run.err, "--vram-mib 4"));
	run_close(&run);
	stack_assert_nothing_left();
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(down_leaves_nothing),
		stack_test(a_killed_supervisor_leaves_nothing),
		stack_test(a_killed_run_sh_is_followed_by_a_new_stack),
		stack_test(a_second_up_of_one_name_is_refused),
		stack_test(what_is_not_up_is_said),
		stack_test(a_folder_that_is_not_ours_is_left_alone),
		stack_test(damaged_files_are_refused_with_one_line),
		stack_test(a_cap_too_small_for_the_keys_and_values_is_said_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
