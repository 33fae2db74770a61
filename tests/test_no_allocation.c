/* The token loop's own part - a forward, what it asks for, the pick, the journal - takes no memory
 * on the thread that computes.  (What is left is nng's: one message for each token.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/forward_copy.h"
#include "tests/need_stage.h"
#include "worker/journal.h"
#include "worker/sample.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
int
main(void)
{
	fprintf(stderr, "a sanitizer has its own malloc: its calls cannot be counted\n");
	return 77;
}
#else

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *at, size_t bytes);

/* The compiler takes it that malloc touches no variable. */
static _Thread_local volatile bool counting;
static _Thread_local volatile uint32_t calls;

void *
malloc(size_t bytes)
{
	calls = calls + counting;
	return __libc_malloc(bytes);
}

void *
calloc(size_t n, size_t bytes)
{
	calls = calls + counting;
	return __libc_calloc(n, bytes);
}

void *
realloc(void *at, size_t bytes)
{
	calls = calls + counting;
	return __libc_realloc(at, bytes);
}

#define TOKENS 8u

static struct need_stage stage;

/* As serve.c does it, but for sending. */
static void
one_token(struct journal *journal, struct sample_scratch *scratch, uint32_t pos, uint32_t *id)
{
	const struct sampling sampling = { .temperature = 0.8f, .top_k = 20, .top_p = 0.9f };
	uint32_t vocabulary = stage.model.vocabulary;

	assert_int_equal(upstream_look(&stage.upstream, &stage.err), 0);
	assert_false(table_choose(&stage.table, SLOT_POLICY_MAX));
	assert_int_equal(table_moved(&stage.table, &stage.err), 0);
	assert_int_equal(forward_copy(&compute_cpu, stage.compute, &stage.model, id, 1, pos,
				      stage.logits, &stage.err),
			 0);
	journal_append(journal, id, 1);
	*id = sample(stage.logits, vocabulary, &sampling, pos, scratch);
}

static void
run(bool from_host)
{
	struct journal_identity identity = { .context = NEED_CONTEXT };
	struct sample_scratch *scratch;
	struct journal journal;
	uint32_t id = 5;
	void *page;

	need_open(&stage, from_host, 24);
	for (uint32_t layer = 0; layer < stage.model.n_layers; layer++)
		need_publish(&stage, layer, true);
	while (table_look(&stage.table) < stage.model.n_layers)
		assert_int_equal(upstream_wait(&stage.upstream, &stage.err), 0);
	/* A state that came while the one before was taken is taken twice. */
	assert_int_equal(upstream_look(&stage.upstream, &stage.err), 0);
	page = calloc(1, journal_bytes(NEED_CONTEXT));
	journal_open(&journal, page, &identity, true);
	assert_int_equal(sample_scratch_open(&scratch, stage.model.vocabulary), 0);
	calls = 0;
	counting = true;
	for (uint32_t pos = 0; pos < TOKENS; pos++)
		one_token(&journal, scratch, pos, &id);
	counting = false;
	assert_int_equal(calls, 0);
	assert_int_equal(stage.table.staged_experts != 0, !from_host);
	sample_scratch_close(scratch);
	free(page);
	need_close(&stage);
}

static void
a_token_computed_in_place_takes_no_memory(void **state)
{
	(void)state;
	run(true);
}

static void
a_token_whose_experts_are_staged_takes_no_memory(void **state)
{
	(void)state;
	run(false);
}

static void
what_is_taken_is_counted(void **state)
{
	void *volatile taken; /* else the compiler does without */

	(void)state;
	calls = 0;
	counting = true;
	taken = malloc(1);
	counting = false;
	free(taken);
	assert_int_equal(calls, 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_taken_is_counted),
		cmocka_unit_test(a_token_computed_in_place_takes_no_memory),
		cmocka_unit_test(a_token_whose_experts_are_staged_takes_no_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
