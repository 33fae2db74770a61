/* Whole stacks on the cpu device whose system calls go wrong (tests/shim/faults.c): each ends in
 * the fallback that is meant for it, with the right bytes and answer, or in one clear line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/pages.h"
#include "tests/knobs.h"
#include "tests/stack_bits.h"
#include "tests/stack_files.h"
#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define NAME "faults"
#define POOR "poor=1073741824,cold" /* so that --read auto chooses direct */
#define MIDDLE "6000000"            /* of the demo model, among its experts */
#define N(list) (sizeof(list) / sizeof(*(list)))

static struct bits right; /* of a stack without faults */
static char seen_path[96];

/* -- stacks with faults -- */

/* Comes back when it is started: the environment of this test is as it was. */
static void
start_up(struct run *run, const char *faults, const char *model, const char *const *options)
{
	const char *words[20] = { "up", model, "--name", NAME, "--device", "cpu" };
	char shim[600];
	size_t n = 6;

	for (size_t i = 0; options[i]; i++)
		words[n++] = options[i];
	snprintf(shim, sizeof(shim), "%s/lib/faults.so", stack_build);
	assert_int_equal(access(shim, R_OK), 0);
	snprintf(seen_path, sizeof(seen_path), "%s/seen", stack_runtime);
	setenv("LD_PRELOAD", shim, 1);
	setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 0);
	setenv("HEARTH_FAULTS", faults, 1);
	setenv("HEARTH_FAULTS_SEEN", seen_path, 1);
	run_start(run, words);
	unsetenv("LD_PRELOAD");
	unsetenv("HEARTH_FAULTS");
	unsetenv("HEARTH_FAULTS_SEEN");
}

/* Every fault was put in at least once: none of these tests passes because nothing happened. */
static void
assert_all_seen(const char *faults)
{
	char text[512] = "\n", name[48];
	size_t n, length;
	FILE *file;

	if (!*faults)
		return;
	file = fopen(seen_path, "r");
	if (!file)
		fail_msg("%s: no fault was put in", faults);
	n = fread(text + 1, 1, sizeof(text) - 2, file);
	text[n + 1] = '\0';
	fclose(file);
	unlink(seen_path);
	for (; *faults; faults += length + (faults[length] == ',')) {
		length = strcspn(faults, ",");
		snprintf(name, sizeof(name), "\n%.*s\n", (int)strcspn(faults, "=,"), faults);
		if (!strstr(text, name))
			fail_msg("%s was not put in", name);
	}
}

static void
take_right(void)
{
	if (right.ids)
		return;
	run_do(WORDS("up", stack_path(DEMO), "--name", NAME, "--device", "cpu", "--pages", "4k"));
	bits_take(&right, NAME);
	run_do(WORDS("down", "--name", NAME));
}

/* It comes up and has the right bytes; the caller closes *ret. */
static void
survive(struct bits *ret, const char *faults, const char *model, const char *const *options)
{
	struct run run;
	int status;

	take_right();
	start_up(&run, faults, model, options);
	status = run_finish(&run);
	if (status != 0)
		fail_msg("%s: exit code %d, want 0: %s", faults, status, run.err);
	run_close(&run);
	bits_take(ret, NAME);
	run_do(WORDS("verify", "--name", NAME));
	run_do(WORDS("down", "--name", NAME));
	assert_all_seen(faults);
	bits_assert_same_slices(&right, ret, faults);
	bits_assert_same_answer(&right, ret, faults);
}

/* It does not: `up` leaves with `code`, one line that says `part`, and nothing behind. */
static void
end_with(const char *faults, const char *model, const char *const *options, int code,
	 const char *part)
{
	struct run run;
	int status;

	start_up(&run, faults, model, options);
	status = run_finish(&run);
	if (status != code || !strstr(run.err, part) ||
	    strchr(run.err, '\n') != run.err + run.err_n - 1)
		fail_msg("%s: exit code %d, want %d and one line with \"%s\": %s", faults, status,
			 code, part, run.err);
	run_close(&run);
	assert_all_seen(faults);
	stack_assert_nothing_left();
}

static void
has_part(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* -- reading -- */

static void
short_and_interrupted_reads_go_on(void **state)
{
	static const struct {
		const char *faults, *read;
	} rows[] = {
		{ "short", "buffered" },
		{ "eintr", "buffered" },
		{ "short,eintr", "direct" },
	};
	struct bits bits;

	(void)state;
	for (size_t i = 0; i < N(rows); i++) {
		survive(&bits, rows[i].faults, stack_path(DEMO), WORDS("--read", rows[i].read));
		assert_string_equal(bits_text(&bits, "loader", "reader", "chosen"), rows[i].read);
		bits_close(&bits);
	}
}

static void
direct_reads_that_are_refused_fall_back_where_nobody_forced_them(void **state)
{
	const json_t *choice;
	struct bits bits;

	(void)state;
	survive(&bits, POOR, stack_path(DEMO), WORDS("--read", "auto"));
	assert_string_equal(bits_text(&bits, "loader", "reader", "chosen"), "direct");
	bits_close(&bits);
	survive(&bits, POOR ",einval", stack_path(DEMO), WORDS("--read", "auto"));
	assert_string_equal(bits_text(&bits, "loader", "reader", "chosen"), "buffered");
	choice = bits_figure(&bits, "loader", "reader", "choice");
	has_part(json_string_value(json_object_get(choice, "fallback")), "refuses the read");
	bits_close(&bits);
	end_with("einval", stack_path(DEMO), WORDS("--read", "direct"), 100,
		 "want --read buffered");
}

static void
a_failed_read_ends_with_its_tensor(void **state)
{
	(void)state;
	end_with("eio=" MIDDLE, stack_path(DEMO), WORDS("--read", "buffered"), 111,
		 "_exps.weight: reading");
	end_with("eio=" MIDDLE, stack_path(DEMO), WORDS("--read", "direct"), 111,
		 "Input/output error");
}

static void
a_file_that_ends_early_ends_with_its_tensor(void **state)
{
	(void)state;
	end_with("ends=" MIDDLE, stack_path(DEMO), WORDS("--read", "buffered"), 111,
		 "the file ends there");
	end_with("ends=" MIDDLE, stack_path(DEMO), WORDS("--read", "direct"), 111,
		 "the file ends there");
}

static void
copy_demo(char *ret_path, size_t room)
{
	snprintf(ret_path, room, "%s/copy.gguf", stack_runtime);
	file_copy(stack_path(DEMO), ret_path);
}

/* Cut off below the loader that reads it: the one after it finds a file that is too short. */
static void
a_file_that_is_cut_off_is_wrong_input(void **state)
{
	struct run run;
	char path[96];
	int status;

	(void)state;
	copy_demo(path, sizeof(path));
	start_up(&run, "truncate=" MIDDLE, path, WORDS("--read", "buffered"));
	status = run_finish(&run);
	unlink(path);
	if (status != 100 || strchr(run.err, '\n') != run.err + run.err_n - 1)
		fail_msg("exit code %d, want 100 and one line: %s", status, run.err);
	has_part(run.err, "copy.gguf");
	run_close(&run);
	assert_all_seen("truncate");
	stack_assert_nothing_left();
}

/* -- looking at the cache -- */

static void
the_cache_is_looked_at_by_the_next_best_call(void **state)
{
	static const struct {
		const char *faults, *probe;
	} rows[] = {
		{ "nocachestat", "preadv2" },
		{ "nocachestat,nonowait", "mincore" },
		{ "nocachestat,nonowait,nocore", "timed reads" },
	};
	struct bits bits;
	char path[96];

	(void)state;
	copy_demo(path, sizeof(path)); /* mincore answers the owner alone */
	for (size_t i = 0; i < N(rows); i++) {
		const json_t *choice;

		survive(&bits, rows[i].faults, path, WORDS("--read", "auto"));
		choice = bits_figure(&bits, "loader", "reader", "choice");
		assert_string_equal(json_string_value(json_object_get(choice, "probe")),
				    rows[i].probe);
		bits_close(&bits);
	}
	unlink(path);
}

/* -- locking and memory -- */

/* The arena has five slices.  On the cpu registering is locking: the rest is not locked either. */
static void
what_is_not_registered_serves_all_the_same(void **state)
{
	static const struct {
		const char *faults, *order;
		bool some;
	} rows[] = {
		{ "mlock=3", "after", true },
		{ "mlock=1", "after", false },
		{ "mlock=3", "before", true },
		{ "mlock=1", "before", false },
	};
	struct bits bits;

	(void)state;
	for (size_t i = 0; i < N(rows); i++) {
		survive(&bits, rows[i].faults, stack_path(DEMO),
			WORDS("--pin-order", rows[i].order));
		has_part(bits_text(&bits, "pinner", "refusal", NULL), "mlock of");
		assert_true(bits_number(&bits, "pinner", "refused_bytes", NULL) > 0);
		assert_int_equal(bits_number(&bits, "pinner", "registered_bytes", NULL) > 0,
				 rows[i].some);
		assert_int_equal(bits_number(&bits, "pinner", "locked_bytes", NULL), 0);
		bits_close(&bits);
	}
}

/* What would be a SIGBUS, were it not touched by a call that can fail. */
static void
memory_that_is_not_there_ends_with_a_line(void **state)
{
	(void)state;
	end_with("populate=1", stack_path(DEMO), WORDS("--pages", "4k"), 111,
		 "no memory for the arena's directory");
	end_with("populate_threads", stack_path(DEMO), WORDS("--pages", "4k", "--read", "buffered"),
		 111, "no memory for");
	end_with("populate_threads", stack_path(DEMO), WORDS("--pages", "4k", "--read", "direct"),
		 111, "no memory for");
}

/* -- the pool of huge pages -- */

static bool others_have_pages; /* who may give them back */

/* A pool with `less` pages fewer than the model takes; what others use stays theirs. */
static void
make_pool(uint64_t less)
{
	struct pages_kernel kernel;
	uint64_t need;
	char want[24];

	take_right();
	pages_read_kernel(&kernel, "/sys");
	others_have_pages = kernel.pool_all > kernel.pool_free;
	need = pages_needed((uint64_t)bits_number(&right, "loader", "arena", "bytes"));
	snprintf(want, sizeof(want), "%" PRIu64, kernel.pool_all - kernel.pool_free + need - less);
	if (!knob_set("/sys/" PAGES_POOL_KNOB, want)) {
		print_message("skipped: /sys/%s cannot be set to %s here\n", PAGES_POOL_KNOB, want);
		skip();
	}
}

static void
a_pool_one_page_short_is_refused_or_left_alone(void **state)
{
	struct bits bits;

	(void)state;
	make_pool(1);
	run_do(WORDS("up", stack_path(DEMO), "--name", NAME, "--device", "cpu", "--pages", "auto"));
	bits_take(&bits, NAME);
	run_do(WORDS("down", "--name", NAME));
	assert_null(strstr(bits_text(&bits, "loader", "pages", "got"), "hugetlb"));
	bits_assert_same_slices(&right, &bits, "--pages auto");
	bits_assert_same_answer(&right, &bits, "--pages auto");
	bits_close(&bits);
	end_with("", stack_path(DEMO), WORDS("--pages", "hugetlb"), others_have_pages ? 111 : 100,
		 "--pages hugetlb: needs ");
}

static void
a_pool_that_does_not_keep_its_word_is_given_up(void **state)
{
	struct bits bits;

	(void)state;
	make_pool(0);
	end_with("populate=1", stack_path(DEMO), WORDS("--pages", "hugetlb"), 111,
		 "no memory for the arena's directory (hugetlb pages)");
	survive(&bits, "populate_once=4", stack_path(DEMO), WORDS("--pages", "auto"));
	assert_null(strstr(bits_text(&bits, "loader", "pages", "got"), "hugetlb"));
	bits_close(&bits);
}

static int
restore(void **state)
{
	int left = stack_teardown(state);

	return knobs_restore(state) < 0 ? -1 : left;
}

static int
forget(void **state)
{
	(void)state;
	bits_close(&right);
	return 0;
}

#define pool_test(f) cmocka_unit_test_setup_teardown(f, stack_setup, restore)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(short_and_interrupted_reads_go_on),
		stack_test(direct_reads_that_are_refused_fall_back_where_nobody_forced_them),
		stack_test(a_failed_read_ends_with_its_tensor),
		stack_test(a_file_that_ends_early_ends_with_its_tensor),
		stack_test(a_file_that_is_cut_off_is_wrong_input),
		stack_test(the_cache_is_looked_at_by_the_next_best_call),
		stack_test(what_is_not_registered_serves_all_the_same),
		stack_test(memory_that_is_not_there_ends_with_a_line),
		pool_test(a_pool_one_page_short_is_refused_or_left_alone),
		pool_test(a_pool_that_does_not_keep_its_word_is_given_up),
	};

	return cmocka_run_group_tests(tests, NULL, forget);
}
