#include "tests/stack_bits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/stack_run.h"

void
bits_take(struct bits *ret, const char *name)
{
	char path[128];
	json_t *answer;
	FILE *file;

	snprintf(path, sizeof(path), "%s/logits", stack_runtime);
	answer = run_json(WORDS("ask", "--name", name, "--json", "-n", "48", "--logits", path,
				"Blessed are the"));
	*ret = (struct bits){ .ids = json_incref(json_object_get(answer, "ids")) };
	json_decref(answer);
	file = fopen(path, "rb");
	assert_non_null(file);
	ret->n_logits = fread(ret->logits, sizeof(float), 4096, file);
	fclose(file);
	unlink(path);
	ret->status = run_json(WORDS("status", "--json", "--name", name));
	assert_in_range(ret->n_logits, 1, 4095);
	assert_int_equal(json_array_size(ret->ids), 48);
}

void
bits_close(struct bits *bits)
{
	json_decref(bits->ids);
	json_decref(bits->status);
	*bits = (struct bits){ 0 };
}

void
bits_assert_same_answer(const struct bits *first, const struct bits *now, const char *what)
{
	if (first->n_logits != now->n_logits ||
	    memcmp(first->logits, now->logits, now->n_logits * sizeof(float)) != 0)
		fail_msg("%s: other first logits", what);
	if (!json_equal(first->ids, now->ids))
		fail_msg("%s: other tokens", what);
}

void
bits_assert_again(const struct bits *first, const char *name)
{
	struct bits now;

	bits_take(&now, name);
	bits_assert_same_answer(first, &now, name);
	bits_close(&now);
}

void
bits_assert_same_slices(const struct bits *first, const struct bits *now, const char *what)
{
	const json_t *slices = json_object_get(first->status, "slices");
	const json_t *others = json_object_get(now->status, "slices");

	assert_true(json_array_size(slices) > 1);
	assert_int_equal(json_array_size(slices), json_array_size(others));
	for (size_t i = 0; i < json_array_size(slices); i++) {
		const json_t *slice = json_array_get(slices, i);
		const json_t *other = json_array_get(others, i);
		const char *name = json_string_value(json_object_get(slice, "name"));
		const char *sum = json_string_value(json_object_get(slice, "checksum"));
		const char *now_sum = json_string_value(json_object_get(other, "checksum"));

		assert_non_null(name);
		if (strcmp(name, "window") == 0)
			continue; /* of a budget: others' bytes pass through it */
		if (!sum || !now_sum || strcmp(sum, now_sum) != 0)
			fail_msg("%s: %s has the checksum %s, want %s", what, name,
				 now_sum ? now_sum : "none", sum ? sum : "one");
	}
}

const json_t *
bits_figure(const struct bits *bits, const char *stage, const char *key, const char *below)
{
	const json_t *figure =
	    json_object_get(json_object_get(json_object_get(bits->status, "stages"), stage), key);

	if (below)
		figure = json_object_get(figure, below);
	if (!figure)
		fail_msg("status --json: no %s.%s.%s", stage, key, below ? below : "");
	return figure;
}

const char *
bits_text(const struct bits *bits, const char *stage, const char *key, const char *below)
{
	const char *text = json_string_value(bits_figure(bits, stage, key, below));

	assert_non_null(text);
	return text;
}

json_int_t
bits_number(const struct bits *bits, const char *stage, const char *key, const char *below)
{
	return json_integer_value(bits_figure(bits, stage, key, below));
}
