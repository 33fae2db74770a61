/* The journal's word holds whatever happens: another model, a corrupt page, a worker killed at any
 * instruction. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "worker/journal.h"

#define CONTEXT 24u

static const struct journal_identity identity = { 0x1111, 0x2222, 0x3333, CONTEXT };

static struct journal_page *
page_make(void)
{
	return calloc(1, journal_bytes(CONTEXT));
}

static const uint32_t some[] = { 7, 8, 9, 10, 11 };

static struct journal_page *
page_with_some(void)
{
	struct journal_page *page = page_make();
	struct journal journal;

	journal_open(&journal, page, &identity, true);
	journal_append(&journal, some, 5);
	return page;
}

static void
keeps_the_longest_common_prefix(void **state)
{
	struct journal_page *page = page_with_some();
	struct journal journal;
	const uint32_t ids[] = { 7, 8, 9, 1, 11, 12 };

	(void)state;
	journal_open(&journal, page, &identity, false);
	assert_int_equal(journal_keep(&journal, ids, 6), 3);
	assert_int_equal(page->count, 3);
	free(page);
}

static void
keeps_at_most_all_but_the_last_id(void **state)
{
	struct journal_page *page = page_with_some();
	struct journal journal;

	(void)state;
	journal_open(&journal, page, &identity, false);
	assert_int_equal(journal_keep(&journal, some, 5), 4);
	assert_int_equal(journal_keep(&journal, some, 1), 0);
	free(page);
}

static void
counts_down_before_and_up_after_a_forward(void **state)
{
	struct journal_page *page = page_with_some();
	struct journal journal;
	const uint32_t other[] = { 7, 8, 50, 51 };

	(void)state;
	journal_open(&journal, page, &identity, false);
	assert_int_equal(journal_keep(&journal, other, 4), 2);
	assert_int_equal(page->count, 2);
	journal_append(&journal, other + 2, 2);
	assert_int_equal(page->count, 4);
	assert_memory_equal(page->ids, other, sizeof(other));
	free(page);
}

static void
a_fresh_cache_empties_it(void **state)
{
	struct journal_page *page = page_with_some();
	struct journal journal;

	(void)state;
	journal_open(&journal, page, &identity, true);
	assert_int_equal(page->count, 0);
	free(page);
}

static void
another_identity_empties_it(void **state)
{
	for (int field = 0; field < 4; field++) {
		struct journal_page *page = page_with_some();
		struct journal_identity other = identity;
		struct journal journal;

		if (field == 0)
			other.stamp++;
		if (field == 1)
			other.layout_hash++;
		if (field == 2)
			other.kernels = journal_kernels("cpu", "avx2");
		if (field == 3)
			other.context--;
		journal_open(&journal, page, &other, false);
		assert_int_equal(page->count, 0);
		/* And it is not the old one's any more. */
		journal_append(&journal, some, 2);
		journal_open(&journal, page, &identity, false);
		assert_int_equal(page->count, 0);
		free(page);
	}
	(void)state;
}

static void
device_and_kernels_both_name_the_bits(void **state)
{
	uint64_t cpu = journal_kernels("cpu", "avx512");

	(void)state;
	assert_int_equal(cpu, journal_kernels("cpu", "avx512"));
	assert_int_not_equal(cpu, journal_kernels("cpu", "avx2"));
	assert_int_not_equal(cpu, journal_kernels("cuda:0", "avx512"));
}

static void
a_corrupt_page_is_an_empty_one(void **state)
{
	struct journal_page *page = page_with_some();
	struct journal journal;

	(void)state;
	page->count = CONTEXT + 1;
	journal_open(&journal, page, &identity, false);
	assert_int_equal(page->count, 0);
	journal_append(&journal, some, 5);
	page->magic ^= 1;
	journal_open(&journal, page, &identity, false);
	assert_int_equal(page->count, 0);
	memset(page, 0xff, journal_bytes(CONTEXT));
	journal_open(&journal, page, &identity, false);
	assert_int_equal(page->count, 0);
	free(page);
}

static void
clear_empties_whatever_is_there(void **state)
{
	struct journal_page *page = page_with_some();
	struct journal journal;

	(void)state;
	journal_clear(page);
	journal_open(&journal, page, &identity, false);
	assert_int_equal(page->count, 0);
	free(page);
}

/* -- a worker that dies at any instruction -- */

/* A KV cache whose entries say what they were computed from: the hash of all ids up to there. */
struct shared {
	uint64_t kv[CONTEXT];
	uint64_t page[(sizeof(struct journal_page) + CONTEXT * sizeof(uint32_t)) / 8 + 1];
};

static uint64_t
kv_entry(const uint32_t *ids, uint32_t n)
{
	uint64_t hash = 1469598103934665603ull;

	for (uint32_t i = 0; i < n; i++)
		hash = (hash ^ (ids[i] + 1)) * 1099511628211ull;
	return hash;
}

/* Half of each entry at a time, as a real forward is not at once either. */
static void
fake_forward(volatile uint64_t *kv, const uint32_t *ids, uint32_t n, uint32_t pos)
{
	for (uint32_t i = pos; i < pos + n; i++) {
		kv[i] = 0;
		kv[i] = kv_entry(ids, i + 1);
	}
}

static void
fake_answer(struct shared *shared, struct journal *journal, const uint32_t *ids, uint32_t n,
	    uint32_t batch)
{
	uint32_t done = journal_keep(journal, ids, n);

	while (done < n) {
		uint32_t take = n - done < batch ? n - done : batch;

		fake_forward(shared->kv, ids, take, done);
		journal_append(journal, ids + done, take);
		done += take;
	}
}

/* Three requests that share a prefix, grow, and have nothing in common. */
static void
fake_worker(struct shared *shared)
{
	uint32_t ids[CONTEXT];
	struct journal journal;

	journal_open(&journal, shared->page, &identity, false);
	for (uint32_t i = 0; i < CONTEXT; i++)
		ids[i] = i * i + 3;
	fake_answer(shared, &journal, ids, 9, 4);
	ids[5] = 1000;
	fake_answer(shared, &journal, ids, 12, 3);
	ids[0] = 2000;
	fake_answer(shared, &journal, ids, 6, 8);
}

static void
check_journal_speaks_true(const struct shared *shared)
{
	const struct journal_page *page = (const void *)shared->page;
	uint32_t count = page->count;

	assert_true(count <= CONTEXT);
	for (uint32_t i = 0; i < count; i++)
		if (shared->kv[i] != kv_entry(page->ids, i + 1))
			fail_msg("position %u of %u is not what the journal says", i, count);
}

static void
holds_when_the_worker_dies_at_any_instruction(void **state)
{
	struct shared *shared =
	    mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned long steps = 0;
	struct shared before;
	pid_t child;
	int status;

	(void)state;
	assert_ptr_not_equal(shared, MAP_FAILED);
	/* Keys and values of an older worker, of another kind: never to be trusted. */
	memset(shared, 0xa5, sizeof(*shared));
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(77);
		raise(SIGSTOP);
		fake_worker(shared);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip(); /* tracing is forbidden here */
	((struct journal_page *)shared->page)->count = 0;
	before = *shared;
	while (WIFSTOPPED(status)) {
		if (memcmp(&before, shared, sizeof(before)) != 0) {
			check_journal_speaks_true(shared);
			before = *shared;
		}
		steps++;
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(steps > 1000);
	assert_int_equal(((struct journal_page *)shared->page)->count, 6);
	munmap(shared, sizeof(*shared));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keeps_the_longest_common_prefix),
		cmocka_unit_test(keeps_at_most_all_but_the_last_id),
		cmocka_unit_test(counts_down_before_and_up_after_a_forward),
		cmocka_unit_test(a_fresh_cache_empties_it),
		cmocka_unit_test(another_identity_empties_it),
		cmocka_unit_test(device_and_kernels_both_name_the_bits),
		cmocka_unit_test(a_corrupt_page_is_an_empty_one),
		cmocka_unit_test(clear_empties_whatever_is_there),
		cmocka_unit_test(holds_when_the_worker_dies_at_any_instruction),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
