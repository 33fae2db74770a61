/* common/endpoint.h: what peers that stall, or died before, cost the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

#define ASK_MS 20000

static struct scratch scratch;

static int
setup(void **state)
{
	(void)state;
	scratch_open(&scratch);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	scratch_close(&scratch);
	return 0;
}

static void
echo(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	(void)arg;
	call_reply(call, bytes, n);
}

static void
assert_answered(const char *name)
{
	struct client *client;
	struct error err;
	uint8_t *answer;
	size_t n;

	assert_int_equal(client_open(&client, scratch.dir, name, &err), 0);
	assert_int_equal(client_ask(client, (const uint8_t *)"hello", 5, ASK_MS, &answer, &n), 0);
	assert_int_equal(n, 5);
	free(answer);
	client_close(client);
}

static struct sockaddr_un
address(const char *name)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", scratch.dir, name);
	return at;
}

/* As SIGKILL leaves it: the socket's name is there and nobody behind it. */
static void
what_a_killed_process_left_is_taken_over(void **state)
{
	struct sockaddr_un at = address("a");
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	struct server *server;
	struct error err;

	(void)state;
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	close(fd);
	assert_int_equal(access(at.sun_path, F_OK), 0);
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	assert_answered("a");
	server_close(server);
}

static int
connect_and_say(const void *bytes, size_t n)
{
	struct sockaddr_un to = address("a");
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, bytes, n, MSG_NOSIGNAL), n);
	return fd;
}

/* Before the handshake, in it, and in the middle of a message that is never whole. */
static void
a_client_that_stalls_costs_nobody_anything(void **state)
{
	/* The handshake of a REQ, and the head of a message of 1 MiB with its first bytes. */
	static const uint8_t said[] = { 0, 'S', 'P', 0, 0, 0x30, 0, 0, 1,
					0, 0,   0,   0, 0, 0x10, 0, 0, 'x' };
	static const size_t parts[] = { 0, 3, 8, 12, sizeof(said) };
	int fds[5];
	struct server *server;
	struct error err;

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	for (int i = 0; i < 5; i++)
		fds[i] = connect_and_say(said, parts[i]);
	for (int i = 0; i < 20; i++)
		assert_answered("a");
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	assert_answered("a");
	server_close(server);
}

/* Takes its first message and stalls until the test lets it go on. */
struct slow {
	struct gate stalled, go_on, heard_last;
	bool stalls;
};

static void
hear_slowly(void *arg, const uint8_t *bytes, size_t n)
{
	struct slow *slow = arg;

	if (!bytes)
		return;
	if (slow->stalls) {
		slow->stalls = false;
		gate_pass(&slow->stalled);
		gate_wait(&slow->go_on, 1);
	}
	if (n == 4 && memcmp(bytes, "last", 4) == 0)
		gate_pass(&slow->heard_last);
}

static void
somebody_joined(void *arg)
{
	gate_pass(arg);
}

/* What lay between may be lost; a state message holds everything. */
static void
a_follower_that_stalls_hears_the_last_word(void **state)
{
	struct slow slow = {
		.stalled = GATE_INIT, .go_on = GATE_INIT, .heard_last = GATE_INIT, .stalls = true
	};
	struct gate joined = GATE_INIT;
	struct publisher *publisher;
	struct follower *follower;
	struct error err;

	(void)state;
	assert_int_equal(
	    publisher_open(&publisher, scratch.dir, "p", somebody_joined, &joined, &err), 0);
	assert_int_equal(follower_open(&follower, scratch.dir, "p", hear_slowly, &slow, &err), 0);
	assert_true(gate_wait(&joined, 1));
	publisher_send(publisher, (const uint8_t *)"first", 5);
	assert_true(gate_wait(&slow.stalled, 1));
	for (int i = 0; i < 5000; i++)
		publisher_send(publisher, (const uint8_t *)"between", 7);
	publisher_send(publisher, (const uint8_t *)"last", 4);
	gate_pass(&slow.go_on);
	assert_true(gate_wait(&slow.heard_last, 1));
	follower_close(follower);
	publisher_close(publisher);
}

#define RULE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(what_a_killed_process_left_is_taken_over),
		RULE(a_client_that_stalls_costs_nobody_anything),
		RULE(a_follower_that_stalls_hears_the_last_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
