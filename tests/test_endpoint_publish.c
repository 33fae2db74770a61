/* common/endpoint.h: publishing and following. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "tests/endpoint_follow.h"
#include "tests/scratch.h"

static void
a_follower_hears_is_told_of_a_loss_and_comes_back(void **state)
{
	struct endpoint_heard heard = { .messages = GATE_INIT, .losses = GATE_INIT };
	struct endpoint_speaker speaker = { .joined = GATE_INIT };
	struct follower *follower;
	struct error err;

	(void)state;
	assert_int_equal(
	    follower_open(&follower, scratch_of_test.dir, "p", endpoint_hear, &heard, &err), 0);
	for (int round = 1; round <= 3; round++) {
		assert_int_equal(publisher_open(&speaker.publisher, scratch_of_test.dir, "p",
						endpoint_joined, &speaker, &err),
				 0);
		assert_true(gate_wait(&speaker.joined, round));
		publisher_send(speaker.publisher, (const uint8_t *)"news", 4);
		assert_true(gate_wait(&heard.messages, round));
		assert_string_equal(heard.last, "news");
		publisher_close(speaker.publisher);
		assert_true(gate_wait(&heard.losses, round));
	}
	follower_close(follower);
}

#define ENDPOINT_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ENDPOINT_TEST(a_follower_hears_is_told_of_a_loss_and_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
