/* The CPU's forward pass against itself: the bits of logits and cache depend on tokens and
 * positions only. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/forward_copy.h"
#include "tests/golden.h"
#include "worker/cpu_compute.h"

#define CONTEXT 200u
#define TOKENS 150u
#define MODEL "tests/data/odd-shapes.gguf" /* all block types, rows that fill no vector */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS_ALLOCATIONS 0
#else
#define COUNTS_ALLOCATIONS 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *at, size_t n);
static atomic_ulong allocations;

/* In place of the C library's, for this program: they count. */
void *
malloc(size_t n)
{
	allocations++;
	return __libc_malloc(n);
}

void *
calloc(size_t n, size_t size)
{
	allocations++;
	return __libc_calloc(n, size);
}

void *
realloc(void *at, size_t n)
{
	allocations++;
	return __libc_realloc(at, n);
}
#endif

static struct golden_model golden;
static uint32_t ids[TOKENS];

struct run {
	struct compute_config config;
	struct compute *compute;
	uint64_t kv_bytes;
	float *logits;
};

static void
run_open(struct run *run, const char *kernels, uint32_t threads)
{
	const struct model *model = &golden.model;
	const struct cpu_kernels *set = kernels ? cpu_kernels_find(kernels) : cpu_kernels_best();
	struct error err = { "" };

	run->kv_bytes = compute_cpu.kv_bytes(model, CONTEXT);
	run->logits = calloc(model->vocabulary, sizeof(*run->logits));
	run->config = (struct compute_config){ .model = model,
					       .arena = golden.bytes,
					       .trunk = golden.bytes,
					       .kv = calloc(1, run->kv_bytes),
					       .context = CONTEXT,
					       .threads = threads,
					       .places = golden.places };
	assert_true(run->logits && run->config.kv);
	if (cpu_compute_open(&run->compute, &run->config, set, &err) < 0)
		fail_msg("%s", err.text);
}

static void
run_close(struct run *run)
{
	compute_cpu.close(run->compute);
	free(run->config.kv);
	free(run->logits);
}

/* All tokens, `step` a call (the last call what is left). */
static void
feed(struct run *run, uint32_t from, uint32_t to, uint32_t step)
{
	struct error err = { "" };

	for (uint32_t at = from; at < to; at += step) {
		uint32_t n = to - at < step ? to - at : step;

		if (forward_copy(&compute_cpu, run->compute, &golden.model, ids + at, n, at,
				 run->logits, &err) < 0)
			fail_msg("%s", err.text);
	}
}

static void
assert_same(const struct run *a, const struct run *b)
{
	assert_memory_equal(a->config.kv, b->config.kv, a->kv_bytes);
	assert_memory_equal(a->logits, b->logits, golden.model.vocabulary * sizeof(float));
}

static void
batches_and_threads_change_no_bit(void **state)
{
	static const char *const sets[] = { "avx512vnni", "avx512", "avxvnni", "avx2", "c" };
	static const uint32_t steps[] = { 64, 2, 7, 33, 64 }, threads[] = { 1, 3, 3, 2, 5 };

	(void)state;
	for (int s = 0; s < 5; s++) {
		uint32_t n = s == 4 ? 70 : TOKENS; /* plain C takes its time */
		struct run one;

		if (!cpu_kernels_find(sets[s]))
			continue;
		run_open(&one, sets[s], 1);
		feed(&one, 0, n, 1);
		for (int i = 0; i < 5; i++) {
			struct run other;

			run_open(&other, sets[s], threads[i]);
			assert_string_equal(compute_cpu.kernels(other.compute), sets[s]);
			feed(&other, 0, n, steps[i]);
			assert_same(&one, &other);
			run_close(&other);
		}
		run_close(&one);
	}
}

static void
a_successor_goes_on_from_the_cache_with_the_same_bits(void **state)
{
	struct run whole, first, second;

	(void)state;
	run_open(&whole, NULL, 2);
	feed(&whole, 0, 90, 64);
	run_open(&first, NULL, 3);
	feed(&first, 0, 61, 30);
	run_open(&second, NULL, 1);
	memcpy(second.config.kv, first.config.kv, first.kv_bytes);
	run_close(&first);
	feed(&second, 61, 90, 13);
	assert_same(&whole, &second);
	run_close(&second);
	run_close(&whole);
}

static void
computing_positions_again_changes_nothing(void **state)
{
	struct run once, again;

	(void)state;
	run_open(&once, NULL, 2);
	feed(&once, 0, 50, 64);
	run_open(&again, NULL, 2);
	memset(again.config.kv, 0x7f, again.kv_bytes); /* what another request left */
	feed(&again, 0, 50, 9);
	feed(&again, 20, 50, 17);
	assert_memory_equal(once.logits, again.logits, golden.model.vocabulary * sizeof(float));
	run_close(&again);
	run_close(&once);
}

static void
logits_can_be_left_out(void **state)
{
	struct error err = { "" };
	struct run with, without;

	(void)state;
	run_open(&with, NULL, 2);
	run_open(&without, NULL, 2);
	feed(&with, 0, 20, 20);
	assert_int_equal(compute_cpu.forward(without.compute, ids, 20, 0, NULL, NULL, &err), 0);
	assert_memory_equal(with.config.kv, without.config.kv, with.kv_bytes);
	run_close(&without);
	run_close(&with);
}

/* Experts somewhere else, at odd addresses. */
static void
where_an_expert_lies_changes_no_bit(void **state)
{
	const struct model *model = &golden.model;
	uint32_t n = model->n_layers * model->n_experts;
	struct expert_place *moved = calloc(n, sizeof(*moved));
	struct run here, there;
	struct error err = { "" };

	(void)state;
	run_open(&here, NULL, 2);
	feed(&here, 0, 40, 40);
	for (uint32_t i = 0; i < n; i++)
		for (int r = 0; r < N_ROLES; r++) {
			uint64_t bytes = model->layers[i / model->n_experts].role[r].bytes;
			uint8_t *copy = malloc(bytes + 1);

			memcpy(copy + 1, golden.places[i].role[r], bytes);
			moved[i].role[r] = copy + 1;
		}
	run_open(&there, NULL, 2);
	compute_cpu.close(there.compute);
	there.config.places = moved;
	assert_int_equal(compute_cpu.open(&there.compute, &there.config, &err), 0);
	assert_int_equal(compute_cpu.places_changed(there.compute, &err), 0);
	feed(&there, 0, 40, 3);
	assert_same(&here, &there);
	run_close(&there);
	run_close(&here);
	for (uint32_t i = 0; i < n; i++)
		for (int r = 0; r < N_ROLES; r++)
			free((uint8_t *)moved[i].role[r] - 1);
	free(moved);
}

struct needs {
	struct run *run;
	uint32_t n, fail_at;
	bool in_order;
};

/* Until an expert is needed, its place leads nowhere. */
static int
give_needed(void *arg, uint32_t layer, const uint32_t *experts, uint32_t n)
{
	struct needs *needs = arg;
	size_t n_experts = golden.model.n_experts;

	needs->in_order = needs->in_order && layer == needs->n && n > 0;
	needs->n++;
	if (layer == needs->fail_at)
		return -ECANCELED;
	for (uint32_t i = 0; i < n; i++) {
		if (i > 0 && experts[i] <= experts[i - 1])
			needs->in_order = false;
		needs->run->config.places[layer * n_experts + experts[i]] =
		    golden.places[layer * n_experts + experts[i]];
	}
	return 0;
}

static void
asks_for_the_chosen_experts_and_touches_no_other(void **state)
{
	const struct model *model = &golden.model;
	size_t n = (size_t)model->n_layers * model->n_experts;
	uint64_t *counts = calloc(n, sizeof(*counts)), sum = 0;
	struct run run;
	struct needs needs = { .run = &run, .fail_at = UINT32_MAX, .in_order = true };
	struct error err = { "" };

	(void)state;
	run_open(&run, NULL, 2);
	compute_cpu.close(run.compute);
	run.config.places = calloc(n, sizeof(struct expert_place));
	run.config.need_experts = give_needed;
	run.config.need_arg = &needs;
	assert_int_equal(compute_cpu.open(&run.compute, &run.config, &err), 0);
	feed(&run, 0, 5, 5);
	assert_int_equal(needs.n, model->n_layers);
	assert_true(needs.in_order);
	/* What was used is what was asked for. */
	assert_int_equal(compute_cpu.usage(run.compute, counts), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(counts[i] != 0, run.config.places[i].role[0] != NULL);
		sum += counts[i];
	}
	assert_int_equal(sum, 5 * model->n_layers * model->top_k);
	assert_int_equal(compute_cpu.usage(run.compute, counts), 0);
	for (size_t i = 0; i < n; i++)
		sum -= counts[i];
	assert_int_equal(sum, 0); /* each is told once */

	needs.n = 0;
	needs.fail_at = model->n_layers - 1;
	assert_int_equal(compute_cpu.forward(run.compute, ids, 5, 0, NULL, NULL, &err), -ECANCELED);
	assert_non_null(strstr(err.text, "layer"));
	/* The places of these five tokens are right by now. */
	compute_cpu.ask(run.compute, false);
	needs.n = 0;
	assert_int_equal(compute_cpu.forward(run.compute, ids, 5, 0, NULL, NULL, &err), 0);
	assert_int_equal(needs.n, 0);
	free(counts);
	free(run.config.places);
	run_close(&run);
}

static void
refuses_a_call_that_makes_no_sense(void **state)
{
	uint32_t vocabulary = golden.model.vocabulary;
	uint32_t bad[2] = { 0, vocabulary };
	struct error err = { "" };
	struct run run;

	(void)state;
	run_open(&run, NULL, 1);
	assert_int_equal(compute_cpu.forward(run.compute, ids, 0, 0, NULL, NULL, &err), -EINVAL);
	assert_int_equal(
	    compute_cpu.forward(run.compute, ids, COMPUTE_BATCH + 1, 0, NULL, NULL, &err), -EINVAL);
	assert_int_equal(compute_cpu.forward(run.compute, ids, 2, CONTEXT - 1, NULL, NULL, &err),
			 -EINVAL);
	assert_int_equal(compute_cpu.forward(run.compute, ids, 1, UINT32_MAX, NULL, NULL, &err),
			 -EINVAL);
	assert_int_equal(compute_cpu.forward(run.compute, bad, 2, 0, NULL, NULL, &err), -EINVAL);
	assert_string_equal(err.text, "token id 517, want below 517");
	assert_int_equal(compute_cpu.forward(run.compute, ids, 1, CONTEXT - 1, NULL, NULL, &err),
			 0);
	run_close(&run);
}

static void
forward_allocates_nothing(void **state)
{
	(void)state;
#if COUNTS_ALLOCATIONS
	struct run run;
	unsigned long before;

	run_open(&run, NULL, 3);
	before = allocations;
	assert_true(before > 0);
	feed(&run, 0, 80, 64);
	feed(&run, 80, 90, 1);
	assert_int_equal(allocations, before);
	run_close(&run);
#else
	skip(); /* the sanitizer has its own */
#endif
}

static void
the_cache_holds_keys_and_values_of_every_position(void **state)
{
	const struct model *model = &golden.model;

	(void)state;
	assert_int_equal(compute_cpu.kv_bytes(model, 10),
			 10ull * model->n_layers * model->kv_heads * model->head_dim * 8);
	assert_true(compute_cpu.own_bytes(model, 10) > 0);
}

static int
set_up(void **state)
{
	uint32_t seed = 1;

	(void)state;
	golden_model_open(&golden, MODEL);
	for (uint32_t i = 0; i < TOKENS; i++) {
		seed = seed * 1664525 + 1013904223;
		ids[i] = (seed >> 8) % golden.model.vocabulary;
	}
	return 0;
}

static int
tear_down(void **state)
{
	(void)state;
	golden_model_close(&golden);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(batches_and_threads_change_no_bit),
		cmocka_unit_test(a_successor_goes_on_from_the_cache_with_the_same_bits),
		cmocka_unit_test(computing_positions_again_changes_nothing),
		cmocka_unit_test(logits_can_be_left_out),
		cmocka_unit_test(where_an_expert_lies_changes_no_bit),
		cmocka_unit_test(asks_for_the_chosen_experts_and_touches_no_other),
		cmocka_unit_test(refuses_a_call_that_makes_no_sense),
		cmocka_unit_test(forward_allocates_nothing),
		cmocka_unit_test(the_cache_holds_keys_and_values_of_every_position),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
