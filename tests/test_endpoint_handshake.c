/* common/endpoint.h: who leaves or talks rubbish in the handshake costs nobody else anything. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "tests/endpoint_case.h"
#include "tests/endpoint_follow.h"

/* Leaves before the handshake is over, which makes a listener of nng 1.5.2 deaf. */
static void
knock_and_run(const char *name)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s/%s", scratch_of_test.dir, name);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	close(fd);
}

static bool
is_answered(void)
{
	struct client *client;
	struct error err;
	char answer[8];
	int rc;

	assert_int_equal(client_open(&client, scratch_of_test.dir, "a", &err), 0);
	rc = endpoint_ask(client, "x", 5000, answer, sizeof(answer));
	client_close(client);
	return rc == 0;
}

/* A stage that dies in the handshake: accepts, and is gone. */
static void
accept_and_run(int times)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s/p", scratch_of_test.dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	while (times--)
		close(accept(fd, NULL, NULL));
	close(fd);
	unlink(at.sun_path);
}

static void
a_client_that_leaves_in_the_handshake_makes_nobody_deaf(void **state)
{
	struct endpoint_parking parking = { .gate = GATE_INIT };
	struct server *server, *other;
	struct endpoint_asker asker;
	struct error err;

	(void)state;
	assert_int_equal(server_open(&server, scratch_of_test.dir, "a", endpoint_echo, NULL, &err),
			 0);
	assert_int_equal(
	    server_open(&other, scratch_of_test.dir, "b", endpoint_park, &parking, &err), 0);
	assert_int_equal(client_open(&asker.client, scratch_of_test.dir, "b", &err), 0);
	endpoint_asker_start(&asker);
	assert_true(gate_wait(&parking.gate, 1));
	for (int i = 0; i < 100; i++) {
		knock_and_run("a");
		knock_and_run("b");
	}
	assert_true(is_answered());
	/* and who was connected before does not notice */
	call_reply(parking.calls[0], (const uint8_t *)"y", 1);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.rc, 0);
	client_close(asker.client);
	server_close(other);
	server_close(server);
}

static void
a_listener_that_leaves_in_the_handshake_does_not_end_the_following(void **state)
{
	struct endpoint_heard heard = { .messages = GATE_INIT, .losses = GATE_INIT };
	struct endpoint_speaker speaker = { .joined = GATE_INIT };
	struct follower *follower;
	struct error err;

	(void)state;
	assert_int_equal(
	    follower_open(&follower, scratch_of_test.dir, "p", endpoint_hear, &heard, &err), 0);
	accept_and_run(20);
	assert_int_equal(publisher_open(&speaker.publisher, scratch_of_test.dir, "p",
					endpoint_joined, &speaker, &err),
			 0);
	assert_true(gate_wait(&speaker.joined, 1));
	publisher_send(speaker.publisher, (const uint8_t *)"news", 4);
	assert_true(gate_wait(&heard.messages, 1));
	follower_close(follower);
	publisher_close(speaker.publisher);
}

static void
rubbish_in_the_handshake_makes_nobody_deaf(void **state)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	struct server *server;
	struct error err;
	int fd;

	(void)state;
	assert_int_equal(server_open(&server, scratch_of_test.dir, "a", endpoint_echo, NULL, &err),
			 0);
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/a", scratch_of_test.dir);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
	assert_true(is_answered());
	close(fd);
	server_close(server);
}

#define ENDPOINT_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ENDPOINT_TEST(a_client_that_leaves_in_the_handshake_makes_nobody_deaf),
		ENDPOINT_TEST(a_listener_that_leaves_in_the_handshake_does_not_end_the_following),
		ENDPOINT_TEST(rubbish_in_the_handshake_makes_nobody_deaf),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
