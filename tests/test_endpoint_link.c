/* common/endpoint.h: a link, one message after the other, both ways. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

struct end {
	struct link *link;
	struct gate up, down, messages;
	int last;
	bool in_order;
};

static void
link_event(void *arg, enum link_event event, const uint8_t *bytes, size_t n)
{
	struct end *end = arg;
	int number;

	if (event == LINK_UP)
		gate_pass(&end->up);
	if (event == LINK_DOWN)
		gate_pass(&end->down);
	if (event != LINK_MESSAGE)
		return;
	assert_int_equal(n, sizeof(number));
	memcpy(&number, bytes, sizeof(number));
	end->in_order = end->in_order && number == end->last + 1;
	end->last = number;
	gate_pass(&end->messages);
}

#define END_INIT                                                                            \
	{                                                                                   \
		.up = GATE_INIT, .down = GATE_INIT, .messages = GATE_INIT, .in_order = true \
	}

static void
a_link_carries_messages_in_order(void **state)
{
	struct end a = END_INIT, b = END_INIT;
	struct error err;
	int sent = 0;

	(void)state;
	assert_int_equal(link_listen(&a.link, scratch_of_test.dir, "l", link_event, &a, &err), 0);
	assert_int_equal(link_dial(&b.link, scratch_of_test.dir, "l", link_event, &b, &err), 0);
	assert_true(gate_wait(&a.up, 1) && gate_wait(&b.up, 1));
	while (sent < LINK_QUEUE) {
		sent++;
		assert_int_equal(link_send(a.link, (const uint8_t *)&sent, sizeof(sent)), 0);
	}
	assert_true(gate_wait(&b.messages, sent));
	assert_true(b.in_order);
	link_close(b.link);
	link_close(a.link);
}

static void
a_link_that_is_lost_says_so_and_comes_back(void **state)
{
	struct end a = END_INIT, b = END_INIT;
	struct error err;
	int one = 1;

	(void)state;
	assert_int_equal(link_dial(&b.link, scratch_of_test.dir, "l", link_event, &b, &err), 0);
	assert_int_equal(link_send(b.link, (const uint8_t *)&one, sizeof(one)), -ENOTCONN);
	for (int round = 1; round <= 3; round++) {
		assert_int_equal(
		    link_listen(&a.link, scratch_of_test.dir, "l", link_event, &a, &err), 0);
		assert_true(gate_wait(&b.up, round) && gate_wait(&a.up, round));
		a.last = 0;
		assert_int_equal(link_send(b.link, (const uint8_t *)&one, sizeof(one)), 0);
		assert_true(gate_wait(&a.messages, round));
		link_close(a.link);
		assert_true(gate_wait(&b.down, round));
	}
	link_close(b.link);
}

static void
a_second_dialer_is_turned_away_until_the_first_leaves(void **state)
{
	struct end a = END_INIT, b = END_INIT, c = END_INIT;
	struct error err;

	(void)state;
	assert_int_equal(link_listen(&a.link, scratch_of_test.dir, "l", link_event, &a, &err), 0);
	assert_int_equal(link_dial(&b.link, scratch_of_test.dir, "l", link_event, &b, &err), 0);
	assert_true(gate_wait(&a.up, 1));
	assert_int_equal(link_dial(&c.link, scratch_of_test.dir, "l", link_event, &c, &err), 0);
	link_close(b.link);
	assert_true(gate_wait(&a.down, 1));
	assert_true(gate_wait(&a.up, 2));
	assert_true(gate_wait(&c.up, 1));
	link_close(c.link);
	link_close(a.link);
}

#define ENDPOINT_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ENDPOINT_TEST(a_link_carries_messages_in_order),
		ENDPOINT_TEST(a_link_that_is_lost_says_so_and_comes_back),
		ENDPOINT_TEST(a_second_dialer_is_turned_away_until_the_first_leaves),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
