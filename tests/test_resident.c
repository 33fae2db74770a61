/* loader/resident.h and the layout that comes of it: which experts stay, and where they lie. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loader/io.h"
#include "loader/placement.h"
#include "loader/resident.h"
#include "tests/fake_files.h"

#define LAYERS 2
#define EXPERTS 3
#define ALL (LAYERS * EXPERTS)

static struct model_files files;
static struct model_layer layers[LAYERS];
static struct model model;
static struct resident resident;
static struct error err;

static int
setup(void **state)
{
	(void)state;
	fake_open(&files);
	model = (struct model){ .n_layers = LAYERS, .n_experts = EXPERTS, .layers = layers };
	for (uint64_t i = 0; i < files.n_tensors; i++) {
		enum role role;
		int layer = model_expert_layer(files.tensors[i].name, &role);

		if (layer >= 0)
			layers[layer].role[role].bytes = files.tensors[i].bytes / EXPERTS;
	}
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	resident_close(&resident);
	fake_close(&files);
	return 0;
}

static uint64_t
window_bytes(void)
{
	return resident.window_slots * resident.slot_bytes;
}

/* So large is the smallest budget. */
static uint64_t
least(void)
{
	uint64_t bytes;

	assert_int_equal(resident_open(&resident, &model, UINT64_MAX / 2, NULL, &err), 0);
	bytes = EXPERTS * resident.slot_bytes;
	resident_close(&resident);
	return bytes;
}

static void
less_than_the_window_is_refused_with_what_would_do(void **state)
{
	uint64_t bytes = least();

	(void)state;
	assert_int_equal(resident_open(&resident, &model, bytes - 1, NULL, &err), -EOVERFLOW);
	assert_non_null(strstr(err.text, "--resident-gib"));
	assert_non_null(strstr(err.text, "or more"));
	assert_int_equal(resident_open(&resident, &model, bytes, NULL, &err), 0);
	assert_int_equal(resident.n_in, 0);
	assert_int_equal(resident.window_slots, EXPERTS);
}

static void
the_most_used_stay(void **state)
{
	const uint64_t counts[ALL] = { 0, 0, 0, 1, 9, 8 };

	(void)state;
	assert_int_equal(resident_open(&resident, &model, least() + 100000, counts, &err), 0);
	assert_int_equal(resident.n_in, 2);
	assert_true(resident.in[4] && resident.in[5]);
}

static void
without_a_profile_the_first_of_each_layer_stay(void **state)
{
	(void)state;
	assert_int_equal(resident_open(&resident, &model, least() + 2000000, NULL, &err), 0);
	assert_true(resident.in[0] && resident.in[EXPERTS]);
}

/* Any budget: residents and window stay within it, and the window has room for a whole layer, or
 * for all that is outside. */
static void
layouts_keep_their_rules_at_any_budget(void **state)
{
	uint64_t from = least();

	(void)state;
	for (uint64_t budget = from; budget < from + 6000000; budget += 77777) {
		struct placement p;
		const struct arena_slice *window;

		assert_int_equal(resident_open(&resident, &model, budget, NULL, &err), 0);
		assert_true(resident.bytes_in + window_bytes() <= budget);
		assert_true(resident.window_slots ==
			    (ALL - resident.n_in < EXPERTS ? ALL - resident.n_in : EXPERTS));
		assert_int_equal(placement_open_resident(&p, files.tensors, files.n_tensors, 100,
							 &resident, &err),
				 0);
		assert_int_equal(p.n_slices, 1 + LAYERS + 1);
		window = &p.slices[p.n_slices - 1];
		assert_string_equal(window->name, "window");
		assert_int_equal(window->bytes, window_bytes());
		assert_true(window->offset + window->bytes <= p.bytes);
		assert_int_equal(p.n_experts, ALL);
		for (uint64_t i = 0; i < files.n_tensors; i++) {
			const struct arena_tensor *tensor = &files.tensors[i];
			enum role role;
			int layer = model_expert_layer(tensor->name, &role);

			for (uint32_t e = 0; layer >= 0 && e < EXPERTS; e++) {
				uint64_t which = (uint64_t)layer * EXPERTS + e;
				uint64_t at = p.experts[which].role_offset[role];
				const struct arena_slice *slice = &p.slices[1 + layer];

				assert_int_equal(at != 0, resident.in[which]);
				if (at == 0)
					continue;
				assert_int_equal(at % IO_BLOCK,
						 placement_expert_at(tensor, e) % IO_BLOCK);
				assert_true(at >= slice->offset &&
					    at + tensor->bytes / EXPERTS <=
						slice->offset + slice->bytes);
			}
		}
		/* Runs, and the blocks they touch, are apart. */
		for (uint64_t i = 1; i < p.n_runs; i++)
			assert_true(p.runs[i].arena_offset / IO_BLOCK >
				    (p.runs[i - 1].arena_offset + p.runs[i - 1].bytes - 1) /
					IO_BLOCK);
		placement_close(&p);
		resident_close(&resident);
	}
}

int
main(void)
{
#define RESIDENT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		RESIDENT_TEST(less_than_the_window_is_refused_with_what_would_do),
		RESIDENT_TEST(the_most_used_stay),
		RESIDENT_TEST(without_a_profile_the_first_of_each_layer_stay),
		RESIDENT_TEST(layouts_keep_their_rules_at_any_budget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
