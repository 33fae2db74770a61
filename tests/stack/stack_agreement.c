/* The agreement matrix: whole stacks on the cpu device over {4k, thp, hugetlb} x {GGUF, split GGUF,
 * pack} x {buffered, direct} x {after, before} x {whole, budget} have the same checksums, first
 * logits and tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/pages.h"
#include "loader/io.h"
#include "tests/gguf_builder.h"
#include "tests/gguf_split.h"
#include "tests/knobs.h"
#include "tests/stack_bits.h"
#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define NAME "agree"
#define MAX_PATH 640
#define N(list) (sizeof(list) / sizeof(*(list)))

enum form { FORM_GGUF, FORM_SPLIT, FORM_PACK, N_FORMS };

static const char *const form_words[N_FORMS] = { "gguf", "split", "pack" };
static const char *const readers[] = { "buffered", "direct" };
static const char *const orders[] = { "after", "before" };

/* How much of the model the arena holds: checksums agree within one of these, answers over all. */
static const struct {
	const char *name;
	const char *words[2]; /* of `up` */
} holds[] = {
	{ "whole", { NULL } },
	{ "budget", { "--resident-gib", "0.004" } },
};

static char folder[MAX_PATH]; /* on the drive the build is on: a tmpfs has no direct reads */
static char forms[N_FORMS][MAX_PATH];
static bool has_direct;
static struct bits first[N(holds)]; /* the first cell of each */

struct cell {
	const char *pages, *read, *order;
	enum form form;
	size_t hold;
};

static bool
reads_direct(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), direct;
	uint32_t align = 0;

	assert_true(fd >= 0);
	if (io_system.direct_align(fd, &align) < 0)
		align = 0;
	direct = align ? io_system.open_direct(fd) : -1;
	if (direct >= 0)
		close(direct);
	close(fd);
	return direct >= 0;
}

static void
say(char *ret, size_t room, const struct cell *cell)
{
	snprintf(ret, room, "--pages %s, %s, --read %s, --pin-order %s, %s", cell->pages,
		 form_words[cell->form], cell->read, cell->order, holds[cell->hold].name);
}

static void
up(const struct cell *cell)
{
	const char *words[20] = {
		"up",          forms[cell->form], "--name",    NAME,     "--device",
		"cpu",         "--pages",         cell->pages, "--read", cell->read,
		"--pin-order", cell->order,       "--threads", "2"
	};

	memcpy(words + 14, holds[cell->hold].words, sizeof(holds->words));
	run_do(words);
}

/* The cell is what its name says, and no other one. */
static void
assert_as_asked(const struct bits *bits, const struct cell *cell)
{
	json_int_t huge = bits_number(bits, "loader", "pages", "huge_bytes");
	const json_t *slices = json_object_get(bits->status, "slices");
	const json_t *last = json_array_get(slices, json_array_size(slices) - 1);
	const char *name = json_string_value(json_object_get(last, "name"));

	assert_non_null(name);
	assert_int_equal(strcmp(name, "window") == 0, holds[cell->hold].words[0] != NULL);
	assert_string_equal(bits_text(bits, "loader", "reader", "chosen"), cell->read);
	assert_string_equal(bits_text(bits, "pinner", "order", NULL), cell->order);
	if (strcmp(cell->pages, "hugetlb") == 0)
		assert_int_equal(huge, bits_number(bits, "loader", "pages", "bytes"));
	else
		assert_int_equal(huge > 0, strcmp(cell->pages, "thp") == 0);
}

static void
run_cell(const struct cell *cell)
{
	struct bits bits;
	char what[160];

	say(what, sizeof(what), cell);
	up(cell);
	bits_take(&bits, NAME);
	run_do(WORDS("down", "--name", NAME));
	assert_as_asked(&bits, cell);
	if (!first[cell->hold].ids) {
		first[cell->hold] = bits;
		bits_assert_same_answer(&first[0], &bits, what);
		return;
	}
	bits_assert_same_slices(&first[cell->hold], &bits, what);
	bits_assert_same_answer(&first[0], &bits, what);
	bits_close(&bits);
}

static void
run_cells(const char *pages)
{
	struct cell cell = { .pages = pages };

	for (cell.hold = 0; cell.hold < N(holds); cell.hold++)
		for (cell.form = 0; cell.form < N_FORMS; cell.form++)
			for (size_t r = 0; r < N(readers) - !has_direct; r++)
				for (size_t o = 0; o < N(orders); o++) {
					cell.read = readers[r];
					cell.order = orders[o];
					run_cell(&cell);
				}
	if (!has_direct)
		print_message("skipped: --read direct with --pages %s: %s has no direct reads\n",
			      pages, folder);
}

static void
small_pages_agree(void **state)
{
	(void)state;
	run_cells("4k");
}

static void
transparent_huge_pages_agree(void **state)
{
	(void)state;
	if (!knob_set("/sys/" PAGES_SHMEM_KNOB, "advise") &&
	    strcmp(knob_get("/sys/" PAGES_SHMEM_KNOB), "advise") != 0) {
		print_message("skipped: /sys/%s cannot be set to advise here\n", PAGES_SHMEM_KNOB);
		skip();
	}
	run_cells("thp");
}

/* Pages that others use or have set aside stay theirs; no form's arena is 8 MiB over the first.
 * Room for two: a stack that is down may still be giving its pages back. */
static void
pages_of_the_pool_agree(void **state)
{
	struct pages_kernel kernel;
	uint64_t need;
	char want[24];

	(void)state;
	assert_non_null(first[0].ids); /* of small pages */
	pages_read_kernel(&kernel, "/sys");
	need = pages_needed((uint64_t)bits_number(&first[0], "loader", "arena", "bytes")) + 4;
	need *= 2;
	snprintf(want, sizeof(want), "%" PRIu64, kernel.pool_all - kernel.pool_free + need);
	if (kernel.pool_free < need && !knob_set("/sys/" PAGES_POOL_KNOB, want)) {
		print_message("skipped: /sys/%s cannot be set to %s here\n", PAGES_POOL_KNOB, want);
		skip();
	}
	run_cells("hugetlb");
}

/* -- the three forms of the model, and what is left behind -- */

static void
put_path(enum form form, const char *name)
{
	if (snprintf(forms[form], MAX_PATH, "%.600s/%s", folder, name) >= MAX_PATH)
		fail_msg("%s: too long a path", folder);
}

static void
make_forms(void)
{
	put_path(FORM_SPLIT, "model");
	gguf_split(stack_path(DEMO), forms[FORM_SPLIT]);
	put_path(FORM_SPLIT, "model-00002-of-00003.gguf");
	put_path(FORM_PACK, "model.pack");
	run_do(WORDS("pack", stack_path(DEMO), forms[FORM_PACK]));
	snprintf(forms[FORM_GGUF], MAX_PATH, "%s", stack_path(DEMO));
	has_direct = reads_direct(forms[FORM_GGUF]) && reads_direct(forms[FORM_SPLIT]);
}

static int
remove_forms(void)
{
	static const char *const names[] = { "model-00001-of-00003.gguf",
					     "model-00002-of-00003.gguf",
					     "model-00003-of-00003.gguf", "model.pack" };
	char path[MAX_PATH + 32];

	for (size_t i = 0; i < N(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
		unlink(path);
	}
	return rmdir(folder);
}

static int
setup_all(void **state)
{
	if (stack_setup(state) < 0)
		return -1;
	snprintf(folder, sizeof(folder), "%.500s/agreement-XXXXXX", stack_build);
	if (!mkdtemp(folder))
		return -1;
	make_forms();
	return stack_teardown(state);
}

static int
teardown_all(void **state)
{
	(void)state;
	for (size_t i = 0; i < N(holds); i++)
		bits_close(&first[i]);
	return remove_forms();
}

/* The stack first: a knob is put back when nobody uses what it gave. */
static int
restore(void **state)
{
	int left = stack_teardown(state);

	return knobs_restore(state) < 0 ? -1 : left;
}

#define cells_test(f) cmocka_unit_test_setup_teardown(f, stack_setup, restore)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cells_test(small_pages_agree),
		cells_test(transparent_huge_pages_agree),
		cells_test(pages_of_the_pool_agree),
	};

	return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
