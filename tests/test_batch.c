/* loader/batch.h: which reads become one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "loader/batch.h"

#define MIB (1ull << 20)
#define MOST 64

static struct batch_request requests[MOST];

static struct batch_window
window(uint32_t shard, uint64_t offset, uint64_t bytes)
{
	return (struct batch_window){ .shard = shard, .file_offset = offset, .bytes = bytes };
}

static void
nothing_wanted_is_no_request(void **state)
{
	struct batch_window none;

	(void)state;
	assert_int_equal(batch_merge(&none, 0, requests), 0);
}

static void
windows_less_than_a_mib_apart_are_one_request(void **state)
{
	struct batch_window near[] = { window(0, 5000, 100), window(0, 5100 + MIB - 1, 100) };
	struct batch_window far[] = { window(0, 5000, 100), window(0, 5100 + MIB, 100) };

	(void)state;
	assert_int_equal(batch_merge(near, 2, requests), 1);
	assert_int_equal(requests[0].file_offset, 5000);
	assert_int_equal(requests[0].bytes, 100 + MIB - 1 + 100);
	assert_int_equal(requests[0].n, 2);
	assert_int_equal(batch_merge(far, 2, requests), 2);
}

static void
windows_of_two_files_stay_two_requests(void **state)
{
	struct batch_window list[] = { window(1, 0, 100), window(0, 100, 100) };

	(void)state;
	assert_int_equal(batch_merge(list, 2, requests), 2);
	assert_int_equal(requests[0].shard, 0);
	assert_int_equal(requests[1].shard, 1);
}

static void
a_request_ends_at_32_mib(void **state)
{
	struct batch_window fits[] = { window(0, 0, 16 * MIB), window(0, 16 * MIB, 16 * MIB) };
	struct batch_window over[] = { window(0, 0, 16 * MIB), window(0, 16 * MIB, 16 * MIB + 1) };

	(void)state;
	assert_int_equal(batch_merge(fits, 2, requests), 1);
	assert_int_equal(batch_merge(over, 2, requests), 2);
}

static void
a_request_has_no_more_windows_than_one_read_has_places(void **state)
{
	struct batch_window list[2 * BATCH_WINDOWS];
	struct batch_request two[2];

	(void)state;
	for (uint64_t i = 0; i < 2 * BATCH_WINDOWS; i++)
		list[i] = window(0, 300 * i, 100);
	assert_int_equal(batch_merge(list, BATCH_WINDOWS, two), 1);
	assert_int_equal(batch_merge(list, 2 * BATCH_WINDOWS, two), 2);
	assert_int_equal(two[1].first, BATCH_WINDOWS);
}

static void
a_window_longer_than_a_request_stays_whole(void **state)
{
	struct batch_window list[] = { window(0, 0, 40 * MIB), window(0, 40 * MIB, 1) };

	(void)state;
	assert_int_equal(batch_merge(list, 2, requests), 2);
	assert_int_equal(requests[0].bytes, 40 * MIB);
}

/* Whatever their order: each window is in one request, inside of it, and the requests keep the
 * limits. */
static void
each_window_is_in_exactly_one_request(void **state)
{
	struct batch_window list[MOST];
	uint32_t random = 7;

	(void)state;
	for (int round = 0; round < 2000; round++) {
		uint64_t n = round % MOST + 1, seen = 0, n_requests;

		for (uint64_t i = 0; i < n; i++) {
			random = random * 1664525u + 1013904223u;
			list[i] = window(random >> 31, (random >> 4) % (300 * MIB),
					 (random >> 8) % (5 * MIB) + 1);
			list[i].tag = i;
		}
		n_requests = batch_merge(list, n, requests);
		for (uint64_t r = 0; r < n_requests; r++) {
			const struct batch_request *request = &requests[r];

			assert_int_equal(request->first, seen);
			assert_true(request->bytes <= BATCH_REQUEST);
			for (uint64_t i = 0; i < request->n; i++, seen++) {
				assert_int_equal(list[seen].shard, request->shard);
				assert_true(list[seen].file_offset >= request->file_offset);
				assert_true(list[seen].file_offset + list[seen].bytes <=
					    request->file_offset + request->bytes);
			}
		}
		assert_int_equal(seen, n);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_wanted_is_no_request),
		cmocka_unit_test(windows_less_than_a_mib_apart_are_one_request),
		cmocka_unit_test(windows_of_two_files_stay_two_requests),
		cmocka_unit_test(a_request_ends_at_32_mib),
		cmocka_unit_test(a_request_has_no_more_windows_than_one_read_has_places),
		cmocka_unit_test(a_window_longer_than_a_request_stays_whole),
		cmocka_unit_test(each_window_is_in_exactly_one_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
