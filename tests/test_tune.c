/* scheduler/tune.h: what is wanted of the kernel, set and put back exactly. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/pages.h"
#include "scheduler/tune.h"
#include "tests/gguf_builder.h"
#include "tests/knobs.h"
#include "tests/machine.h"

#define MIB (1ull << 20)
#define SHMEM "sys/" PAGES_SHMEM_KNOB
#define SHMEM_2MIB "sys/kernel/mm/transparent_hugepage/hugepages-2048kB/shmem_enabled"
#define POOL "sys/" PAGES_POOL_KNOB

static struct error err;

/* A machine of which nothing is tuned. */
static struct machine *
bare_machine(void **state)
{
	struct machine *machine = *state;

	machine_write(machine, SHMEM, "always within_size advise [never] deny force\n");
	machine_write(machine, SHMEM_2MIB, "always [inherit] within_size advise never\n");
	machine_pool(machine, 10, 4, 1);
	machine_write(machine, "run/other", "");
	return machine;
}

static void
what_is_never_is_wanted_as_advise(void **state)
{
	struct machine *machine = bare_machine(state);
	struct tune tune;

	tune_look(&tune, machine->dir, 0);
	assert_string_equal(tune.values[TUNE_SHMEM].now, "never");
	assert_string_equal(tune.values[TUNE_SHMEM].wanted, "advise");
	assert_string_equal(tune.values[TUNE_SHMEM_2MIB].wanted, "");
	assert_string_equal(tune.values[TUNE_POOL].wanted, "");
	assert_false(tune_is_fine(&tune));
	machine_write(machine, SHMEM, "[always] within_size advise never deny force\n");
	tune_look(&tune, machine->dir, 0);
	assert_true(tune_is_fine(&tune));
	machine_write(machine, SHMEM_2MIB, "always inherit within_size advise [never]\n");
	tune_look(&tune, machine->dir, 0);
	assert_string_equal(tune.values[TUNE_SHMEM_2MIB].wanted, "inherit");
}

/* 7 of 10 are in use or set aside; 20 MiB need 10 more. */
static void
the_pool_grows_by_what_is_missing(void **state)
{
	struct machine *machine = bare_machine(state);
	struct tune tune;

	tune_look(&tune, machine->dir, 20 * MIB);
	assert_string_equal(tune.values[TUNE_POOL].now, "10");
	assert_string_equal(tune.values[TUNE_POOL].wanted, "17");
	tune_look(&tune, machine->dir, 6 * MIB);
	assert_string_equal(tune.values[TUNE_POOL].wanted, "");
}

static void
a_kernel_without_them_is_left_alone(void **state)
{
	struct tune tune;

	(void)state;
	tune_look(&tune, "/nonexistent", 20 * MIB);
	assert_true(tune_is_fine(&tune));
	assert_false(tune.values[TUNE_SHMEM].there);
}

static void
undo_puts_back_what_stood_there_first(void **state)
{
	struct machine *machine = bare_machine(state);
	struct tune tune;
	struct stat st;
	uint32_t n;

	tune_look(&tune, machine->dir, 0);
	assert_int_equal(tune_apply(&tune, &err), 0);
	assert_string_equal(machine_read(machine, SHMEM), "advise");
	assert_string_equal(machine_read(machine, POOL), "10");
	tune_look(&tune, machine->dir, 20 * MIB); /* more, later */
	assert_int_equal(tune_apply(&tune, &err), 0);
	assert_string_equal(machine_read(machine, POOL), "17");
	assert_int_equal(stat(machine_path(machine, TUNE_STATE), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(tune_undo(machine->dir, &n, &err), 0);
	assert_int_equal(n, 2);
	assert_string_equal(machine_read(machine, SHMEM), "never");
	assert_string_equal(machine_read(machine, POOL), "10");
	assert_int_equal(access(machine_path(machine, TUNE_STATE), F_OK), -1);
	assert_int_equal(tune_undo(machine->dir, &n, &err), -ENOENT);
}

static void
only_known_switches_are_written_by_undo(void **state)
{
	struct machine *machine = bare_machine(state);
	uint32_t n;

	machine_write(machine, "victim", "untouched\n");
	machine_write(machine, &TUNE_STATE[1],
		      "/victim taken\n/" SHMEM "/../victim taken\n/" SHMEM " advise\nrubbish\n");
	assert_int_equal(tune_undo(machine->dir, &n, &err), 0);
	assert_int_equal(n, 1);
	assert_string_equal(machine_read(machine, "victim"), "untouched");
	assert_string_equal(machine_read(machine, SHMEM), "advise");
}

static void
a_state_file_that_is_a_link_is_refused(void **state)
{
	struct machine *machine = bare_machine(state);
	struct tune tune;
	char target[256];
	uint32_t n;

	snprintf(target, sizeof(target), "%s", machine_path(machine, "run/other"));
	assert_int_equal(symlink(target, machine_path(machine, TUNE_STATE)), 0);
	assert_int_equal(tune_undo(machine->dir, &n, &err), -ELOOP);
	tune_look(&tune, machine->dir, 0);
	assert_int_equal(tune_apply(&tune, &err), -ELOOP);
	assert_int_equal(strncmp(machine_read(machine, SHMEM), "always", 6), 0);
}

static void
nothing_is_set_when_it_could_not_be_undone(void **state)
{
	struct machine *machine = bare_machine(state);
	struct tune tune;

	assert_int_equal(unlink(machine_path(machine, "run/other")), 0);
	assert_int_equal(rmdir(machine_path(machine, "run")), 0);
	tune_look(&tune, machine->dir, 0);
	assert_int_equal(tune_apply(&tune, &err), -ENOENT);
	assert_non_null(strstr(err.text, TUNE_STATE));
	assert_int_equal(strncmp(machine_read(machine, SHMEM), "always", 6), 0);
}

static void
the_running_kernel_is_tuned_and_put_back(void **state)
{
	char shmem[32], pool[32];
	struct tune tune;
	uint32_t n;

	(void)state;
	if (access(TUNE_STATE, F_OK) == 0 || !knob_set("/" SHMEM, "never")) {
		print_message("SKIPPED: want root, huge pages, and a machine that is not tuned\n");
		skip();
	}
	snprintf(shmem, sizeof(shmem), "%s", knob_get("/" SHMEM));
	snprintf(pool, sizeof(pool), "%s", knob_get("/" POOL));
	tune_look(&tune, "", 8 * MIB);
	assert_int_equal(tune_apply(&tune, &err), 0);
	tune_look(&tune, "", 8 * MIB);
	assert_true(tune_is_fine(&tune));
	assert_int_equal(tune_undo("", &n, &err), 0);
	assert_string_equal(knob_get("/" SHMEM), shmem);
	assert_string_equal(knob_get("/" POOL), pool);
	assert_int_equal(access(TUNE_STATE, F_OK), -1);
}

static void
a_models_size_is_that_of_all_its_shards(void **state)
{
	struct machine *machine = *state;
	struct tiny tiny = tiny_default();
	char stem[96], path[128];
	uint64_t whole = 0, bytes = 0, files = 0;
	struct stat st;

	tiny.layers = 4;
	snprintf(path, sizeof(path), "%s/m.gguf", machine->dir);
	tiny_write(&tiny, path);
	assert_int_equal(tune_model_bytes(path, &whole, &err), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(whole, (uint64_t)st.st_size + 14 * MIB);
	snprintf(stem, sizeof(stem), "%s/s", machine->dir);
	tiny_write_split(&tiny, stem, 3);
	for (uint32_t i = 0; i < 3; i++) {
		tiny_split_path(path, sizeof(path), stem, i, 3);
		assert_int_equal(stat(path, &st), 0);
		files += (uint64_t)st.st_size;
	}
	assert_int_equal(tune_model_bytes(path, &bytes, &err), 0); /* from the last one */
	assert_int_equal(bytes, files + 14 * MIB);
}

static void
a_file_that_is_no_model_is_refused(void **state)
{
	struct machine *machine = *state;
	uint64_t bytes;

	assert_int_equal(tune_model_bytes("/nonexistent", &bytes, &err), -ENOENT);
	machine_write(machine, "m.gguf", "no model");
	assert_int_equal(
	    error_exit_code(tune_model_bytes(machine_path(machine, "m.gguf"), &bytes, &err)),
	    EXIT_INPUT);
	machine_write(machine, "m.gguf", "");
	assert_int_equal(tune_model_bytes(machine_path(machine, "m.gguf"), &bytes, &err), -EINVAL);
}

static int
teardown(void **state)
{
	int rc = knobs_restore(state);

	return machine_teardown(state) < 0 ? -1 : rc;
}

#define TUNE_TEST(name) cmocka_unit_test_setup_teardown(name, machine_setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		TUNE_TEST(what_is_never_is_wanted_as_advise),
		TUNE_TEST(the_pool_grows_by_what_is_missing),
		TUNE_TEST(a_kernel_without_them_is_left_alone),
		TUNE_TEST(undo_puts_back_what_stood_there_first),
		TUNE_TEST(only_known_switches_are_written_by_undo),
		TUNE_TEST(a_state_file_that_is_a_link_is_refused),
		TUNE_TEST(nothing_is_set_when_it_could_not_be_undone),
		TUNE_TEST(the_running_kernel_is_tuned_and_put_back),
		TUNE_TEST(a_models_size_is_that_of_all_its_shards),
		TUNE_TEST(a_file_that_is_no_model_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
