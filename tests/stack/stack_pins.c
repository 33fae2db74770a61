/* Whole stacks on the cpu device under every way of registering: the same checksums, the same bits,
 * and with `before` no slice is read until it and the next are registered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/pages.h"
#include "tests/knobs.h"
#include "tests/stack_run.h"

#define DEMO "tests/data/kjv-16x1m.gguf"
#define SLICES 5u /* the trunk and four layers */

struct bits {
	uint8_t logits[4 * 4096];
	size_t bytes;
	char *text;
	json_t *layers; /* as `report` has them */
};

static void
take_bits(struct bits *ret, const char *name)
{
	char path[128];
	FILE *file;
	json_t *report;

	snprintf(path, sizeof(path), "%s/logits", stack_runtime);
	ret->text =
	    run_text(WORDS("ask", "--name", name, "-n", "48", "--logits", path, "Blessed are the"));
	file = fopen(path, "rb");
	assert_non_null(file);
	ret->bytes = fread(ret->logits, 1, sizeof(ret->logits), file);
	fclose(file);
	unlink(path);
	assert_int_equal(ret->bytes, 2048 * sizeof(float)); /* the demo model's vocabulary */
	report = run_json(WORDS("report", "--name", name, "--json"));
	ret->layers = json_incref(json_object_get(report, "layers"));
	json_decref(report);
	assert_int_equal(json_array_size(ret->layers), SLICES);
}

static void
free_bits(struct bits *bits)
{
	free(bits->text);
	json_decref(bits->layers);
}

static json_t *
layer_of(const struct bits *bits, uint32_t i, const char *key)
{
	return json_object_get(json_array_get(bits->layers, i), key);
}

static void
assert_same(const struct bits *first, const struct bits *now)
{
	assert_memory_equal(first->logits, now->logits, first->bytes);
	assert_string_equal(first->text, now->text);
	for (uint32_t i = 0; i < SLICES; i++)
		assert_true(
		    json_equal(layer_of(first, i, "checksum"), layer_of(now, i, "checksum")));
}

static int64_t
pinning(const char *key)
{
	json_t *figure = stack_figure("pins", "pinner", key);
	int64_t value = json_integer_value(figure);

	json_decref(figure);
	return value;
}

/* Read began no earlier than its own registration and the next one's had ended. */
static void
assert_read_behind_registration(const struct bits *bits)
{
	for (uint32_t i = 0; i < SLICES; i++) {
		for (uint32_t k = i; k < SLICES && k <= i + 1; k++)
			assert_true(json_real_value(layer_of(bits, i, "read_begin")) >=
				    json_real_value(layer_of(bits, k, "register_end")));
	}
}

static void
the_way_of_registering_changes_no_bit(void **state)
{
	static const struct {
		const char *order, *gib, *read;
	} rows[] = {
		{ "after", "auto", "buffered" }, { "before", "auto", "buffered" },
		{ "before", "auto", "direct" },  { "after", "0", "buffered" },
		{ "before", "0", "direct" },     { "before", "1", "auto" },
	};
	struct bits first, now;

	(void)state;
	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		bool none = strcmp(rows[r].gib, "0") == 0;

		run_do(WORDS("up", stack_path(DEMO), "--name", "pins", "--device", "cpu",
			     "--pin-order", rows[r].order, "--pin-gib", rows[r].gib, "--read",
			     rows[r].read));
		take_bits(r ? &now : &first, "pins");
		if (r)
			assert_same(&first, &now);
		assert_int_equal(pinning("registered_bytes") == 0, none);
		assert_int_equal(pinning("over_cap_bytes") != 0, none);
		if (strcmp(rows[r].order, "before") == 0 && !none)
			assert_read_behind_registration(&now);
		run_do(WORDS("verify", "--name", "pins"));
		run_do(WORDS("down", "--name", "pins"));
		if (r)
			free_bits(&now);
	}
	free_bits(&first);
}

/* With `before` each waits for the other: neither may be stuck when one comes back. */
static void
restarts_change_no_bit_with_before(void **state)
{
	static const char *const stages[] = { "pinner", "loader", "worker" };
	struct bits first, now;

	(void)state;
	run_do(WORDS("up", stack_path(DEMO), "--name", "pins", "--device", "cpu", "--pin-order",
		     "before"));
	take_bits(&first, "pins");
	for (uint32_t i = 0; i < 3; i++) {
		run_do(WORDS("restart", stages[i], "--name", "pins"));
		take_bits(&now, "pins");
		assert_same(&first, &now);
		free_bits(&now);
	}
	run_do(WORDS("down", "--name", "pins"));
	free_bits(&first);
}

static int
restore(void **state)
{
	int rc = knobs_restore(state);

	return stack_teardown(state) < 0 ? -1 : rc;
}

/* With `before` the pinner touches the pages first: it asks for what the loader was told to. */
static void
pages_registered_ahead_are_as_asked(void **state)
{
	static const char *const kinds[] = { "4k", "thp" };
	json_t *pages;

	(void)state;
	if (!knob_set("/sys/" PAGES_SHMEM_KNOB, "advise")) {
		print_message("skipped: /sys/%s cannot be set to advise here\n", PAGES_SHMEM_KNOB);
		skip();
	}
	for (uint32_t i = 0; i < 2; i++) {
		run_do(WORDS("up", stack_path(DEMO), "--name", "pins", "--device", "cpu",
			     "--pin-order", "before", "--pages", kinds[i]));
		pages = stack_figure("pins", "loader", "pages");
		assert_string_equal(json_string_value(json_object_get(pages, "wanted")), kinds[i]);
		assert_int_equal(json_integer_value(json_object_get(pages, "huge_bytes")) > 4 << 20,
				 i);
		json_decref(pages);
		run_do(WORDS("down", "--name", "pins"));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		stack_test(the_way_of_registering_changes_no_bit),
		stack_test(restarts_change_no_bit_with_before),
		cmocka_unit_test_setup_teardown(pages_registered_ahead_are_as_asked, stack_setup,
						restore),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
