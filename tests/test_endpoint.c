#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "common/endpoint_nng.h"
#include "proto/limits.h"
#include "tests/scratch.h"

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

/* Keeps every call unanswered. */
struct parking {
	struct gate gate;
	struct call *calls[SERVER_CALLS];
	atomic_int n;
};

static void
park(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	struct parking *parking = arg;

	(void)bytes;
	(void)n;
	parking->calls[atomic_fetch_add(&parking->n, 1)] = call;
	gate_pass(&parking->gate);
}

static int
ask(struct client *client, const char *text, int timeout_ms, char *ret, size_t room)
{
	uint8_t *bytes;
	size_t n;
	int rc = client_ask(client, (const uint8_t *)text, strlen(text), timeout_ms, &bytes, &n);

	if (rc < 0)
		return rc;
	assert_true(n < room);
	memcpy(ret, bytes, n);
	ret[n] = '\0';
	free(bytes);
	return 0;
}

static void
answers_each_question_with_its_own_answer(void **state)
{
	struct server *server;
	struct client *client;
	struct error err;
	char answer[64], question[64];

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	assert_int_equal(client_open(&client, scratch.dir, "a", &err), 0);
	for (int i = 0; i < 200; i++) {
		snprintf(question, sizeof(question), "question %d", i);
		assert_int_equal(ask(client, question, 5000, answer, sizeof(answer)), 0);
		assert_string_equal(answer, question);
	}
	client_close(client);
	server_close(server);
}

static void
nobody_there_is_said_at_once(void **state)
{
	struct client *client;
	struct error err;
	char answer[8];

	(void)state;
	assert_int_equal(client_open(&client, scratch.dir, "nobody", &err), 0);
	assert_int_equal(ask(client, "x", 60000, answer, sizeof(answer)), -ECONNREFUSED);
	client_close(client);
}

static void
a_silent_peer_times_out(void **state)
{
	struct parking parking = { .gate = GATE_INIT };
	struct server *server;
	struct client *client;
	struct error err;
	char answer[8];

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", park, &parking, &err), 0);
	assert_int_equal(client_open(&client, scratch.dir, "a", &err), 0);
	assert_int_equal(ask(client, "x", 50, answer, sizeof(answer)), -ETIMEDOUT);
	client_close(client);
	server_close(server);
}

struct asker {
	struct client *client;
	int rc;
	pthread_t thread;
};

static void *
ask_in_a_thread(void *arg)
{
	struct asker *asker = arg;
	char answer[8];

	asker->rc = ask(asker->client, "x", 20000, answer, sizeof(answer));
	return NULL;
}

static void
the_peers_death_ends_a_question_at_once(void **state)
{
	struct parking parking = { .gate = GATE_INIT };
	struct asker asker;
	struct server *server;
	struct error err;
	char answer[8];

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", park, &parking, &err), 0);
	assert_int_equal(client_open(&asker.client, scratch.dir, "a", &err), 0);
	pthread_create(&asker.thread, NULL, ask_in_a_thread, &asker);
	assert_true(gate_wait(&parking.gate, 1));
	server_close(server);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.rc, -ECONNRESET);
	/* and the same client finds the next server */
	assert_int_equal(ask(asker.client, "x", 1000, answer, sizeof(answer)), -ECONNREFUSED);
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	assert_int_equal(ask(asker.client, "again", 5000, answer, sizeof(answer)), 0);
	assert_string_equal(answer, "again");
	client_close(asker.client);
	server_close(server);
}

static void
parked_calls_are_answered_later(void **state)
{
	enum { N = 16 };
	struct parking parking = { .gate = GATE_INIT };
	struct asker askers[N];
	struct server *server;
	struct error err;

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", park, &parking, &err), 0);
	for (int i = 0; i < N; i++) {
		assert_int_equal(client_open(&askers[i].client, scratch.dir, "a", &err), 0);
		pthread_create(&askers[i].thread, NULL, ask_in_a_thread, &askers[i]);
	}
	assert_true(gate_wait(&parking.gate, N));
	for (int i = 0; i < N; i++)
		call_reply(parking.calls[i], (const uint8_t *)"y", 1);
	for (int i = 0; i < N; i++) {
		pthread_join(askers[i].thread, NULL);
		assert_int_equal(askers[i].rc, 0);
		client_close(askers[i].client);
	}
	server_close(server);
}

static void
not_told(void *arg, int rc, const uint8_t *bytes, size_t n)
{
	(void)arg;
	(void)rc;
	(void)bytes;
	(void)n;
}

static void
a_client_that_left_costs_nothing(void **state)
{
	struct parking parking = { .gate = GATE_INIT };
	struct server *server;
	struct client *client;
	struct error err;

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", park, &parking, &err), 0);
	/* once more than calls can be parked: each is free again when its answer went nowhere */
	for (int i = 0; i < SERVER_CALLS + 1; i++) {
		parking.n = 0;
		assert_int_equal(client_open(&client, scratch.dir, "a", &err), 0);
		assert_int_equal(client_begin(client, (const uint8_t *)"x", 1, not_told, NULL), 0);
		assert_true(gate_wait(&parking.gate, i + 1));
		client_close(client);
		call_reply(parking.calls[0], (const uint8_t *)"y", 1);
	}
	server_close(server);
}

static void
a_message_over_the_limit_is_not_taken(void **state)
{
	struct server *server;
	struct client *client;
	struct error err;
	uint8_t *large = calloc(1, MAX_MESSAGE_BYTES + 1), *bytes;
	size_t n;
	char answer[8];

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	assert_int_equal(client_open(&client, scratch.dir, "a", &err), 0);
	assert_true(client_ask(client, large, MAX_MESSAGE_BYTES + 1, 2000, &bytes, &n) < 0);
	assert_int_equal(ask(client, "small", 5000, answer, sizeof(answer)), 0);
	client_close(client);
	server_close(server);
	free(large);
}

static void
a_file_in_the_place_of_a_socket_is_left_alone(void **state)
{
	struct server *server;
	struct error err;
	char path[128];
	FILE *file;

	(void)state;
	snprintf(path, sizeof(path), "%s/a", scratch.dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), -EEXIST);
	assert_int_equal(access(path, F_OK), 0);
}

static void
a_path_over_the_limit_is_refused(void **state)
{
	char name[MAX_SOCKET_PATH + 1];
	struct server *server;
	struct client *client;
	struct error err;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(server_open(&server, scratch.dir, name, echo, NULL, &err), -EINVAL);
	assert_non_null(strstr(err.text, "107"));
	assert_int_equal(client_open(&client, scratch.dir, name, &err), -EINVAL);
	name[MAX_SOCKET_PATH - strlen(scratch.dir) - 1] = '\0';
	assert_int_equal(server_open(&server, scratch.dir, name, echo, NULL, &err), 0);
	server_close(server);
}

/* Leaves before the handshake is over, which makes a listener of nng 1.5.2 deaf. */
static void
knock_and_run(const char *name)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(to.sun_path, sizeof(to.sun_path), "%s/%s", scratch.dir, name);
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

	assert_int_equal(client_open(&client, scratch.dir, "a", &err), 0);
	rc = ask(client, "x", 5000, answer, sizeof(answer));
	client_close(client);
	return rc == 0;
}

static void
a_client_that_leaves_in_the_handshake_makes_nobody_deaf(void **state)
{
	struct parking parking = { .gate = GATE_INIT };
	struct server *server, *other;
	struct asker asker;
	struct error err;

	(void)state;
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	assert_int_equal(server_open(&other, scratch.dir, "b", park, &parking, &err), 0);
	assert_int_equal(client_open(&asker.client, scratch.dir, "b", &err), 0);
	pthread_create(&asker.thread, NULL, ask_in_a_thread, &asker);
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

/* A stage that dies in the handshake: accepts, and is gone. */
static void
accept_and_run(int times)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s/p", scratch.dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 8), 0);
	while (times--)
		close(accept(fd, NULL, NULL));
	close(fd);
	unlink(at.sun_path);
}

static void hear(void *arg, const uint8_t *bytes, size_t n);
static void somebody_joined(void *arg);

struct heard {
	struct gate messages, losses;
	char last[16];
};

struct speaker {
	struct publisher *publisher;
	struct gate joined;
};

static void
a_listener_that_leaves_in_the_handshake_does_not_end_the_following(void **state)
{
	struct heard heard = { .messages = GATE_INIT, .losses = GATE_INIT };
	struct speaker speaker = { .joined = GATE_INIT };
	struct follower *follower;
	struct error err;

	(void)state;
	assert_int_equal(follower_open(&follower, scratch.dir, "p", hear, &heard, &err), 0);
	accept_and_run(20);
	assert_int_equal(
	    publisher_open(&speaker.publisher, scratch.dir, "p", somebody_joined, &speaker, &err),
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
	assert_int_equal(server_open(&server, scratch.dir, "a", echo, NULL, &err), 0);
	snprintf(to.sun_path, sizeof(to.sun_path), "%s/a", scratch.dir);
	fd = socket(AF_UNIX, SOCK_STREAM, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
	assert_true(is_answered());
	close(fd);
	server_close(server);
}

static void
hear(void *arg, const uint8_t *bytes, size_t n)
{
	struct heard *heard = arg;

	if (!bytes) {
		gate_pass(&heard->losses);
		return;
	}
	memcpy(heard->last, bytes, n);
	heard->last[n] = '\0';
	gate_pass(&heard->messages);
}

static void
somebody_joined(void *arg)
{
	gate_pass(&((struct speaker *)arg)->joined);
}

static void
a_follower_hears_is_told_of_a_loss_and_comes_back(void **state)
{
	struct heard heard = { .messages = GATE_INIT, .losses = GATE_INIT };
	struct speaker speaker = { .joined = GATE_INIT };
	struct follower *follower;
	struct error err;

	(void)state;
	assert_int_equal(follower_open(&follower, scratch.dir, "p", hear, &heard, &err), 0);
	for (int round = 1; round <= 3; round++) {
		assert_int_equal(publisher_open(&speaker.publisher, scratch.dir, "p",
						somebody_joined, &speaker, &err),
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
	assert_int_equal(link_listen(&a.link, scratch.dir, "l", link_event, &a, &err), 0);
	assert_int_equal(link_dial(&b.link, scratch.dir, "l", link_event, &b, &err), 0);
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
	assert_int_equal(link_dial(&b.link, scratch.dir, "l", link_event, &b, &err), 0);
	assert_int_equal(link_send(b.link, (const uint8_t *)&one, sizeof(one)), -ENOTCONN);
	for (int round = 1; round <= 3; round++) {
		assert_int_equal(link_listen(&a.link, scratch.dir, "l", link_event, &a, &err), 0);
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
	assert_int_equal(link_listen(&a.link, scratch.dir, "l", link_event, &a, &err), 0);
	assert_int_equal(link_dial(&b.link, scratch.dir, "l", link_event, &b, &err), 0);
	assert_true(gate_wait(&a.up, 1));
	assert_int_equal(link_dial(&c.link, scratch.dir, "l", link_event, &c, &err), 0);
	link_close(b.link);
	assert_true(gate_wait(&a.down, 1));
	assert_true(gate_wait(&a.up, 2));
	assert_true(gate_wait(&c.up, 1));
	link_close(c.link);
	link_close(a.link);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(answers_each_question_with_its_own_answer, setup,
						teardown),
		cmocka_unit_test_setup_teardown(nobody_there_is_said_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_silent_peer_times_out, setup, teardown),
		cmocka_unit_test_setup_teardown(the_peers_death_ends_a_question_at_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(parked_calls_are_answered_later, setup, teardown),
		cmocka_unit_test_setup_teardown(a_client_that_left_costs_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(a_message_over_the_limit_is_not_taken, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_file_in_the_place_of_a_socket_is_left_alone,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_path_over_the_limit_is_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    a_client_that_leaves_in_the_handshake_makes_nobody_deaf, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    a_listener_that_leaves_in_the_handshake_does_not_end_the_following, setup,
		    teardown),
		cmocka_unit_test_setup_teardown(rubbish_in_the_handshake_makes_nobody_deaf, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_follower_hears_is_told_of_a_loss_and_comes_back,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_link_carries_messages_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(a_link_that_is_lost_says_so_and_comes_back, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
		    a_second_dialer_is_turned_away_until_the_first_leaves, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
