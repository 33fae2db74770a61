/* common/endpoint.h: questions and answers. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "proto/limits.h"
#include "tests/endpoint_case.h"

static void
answers_each_question_with_its_own_answer(void **state)
{
	struct server *server;
	struct client *client;
	struct error err;
	char answer[64], question[64];

	(void)state;
	assert_int_equal(server_open(&server, scratch_of_test.dir, "a", endpoint_echo, NULL, &err),
			 0);
	assert_int_equal(client_open(&client, scratch_of_test.dir, "a", &err), 0);
	for (int i = 0; i < 200; i++) {
		snprintf(question, sizeof(question), "question %d", i);
		assert_int_equal(endpoint_ask(client, question, 5000, answer, sizeof(answer)), 0);
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
	assert_int_equal(client_open(&client, scratch_of_test.dir, "nobody", &err), 0);
	assert_int_equal(endpoint_ask(client, "x", 60000, answer, sizeof(answer)), -ECONNREFUSED);
	client_close(client);
}

static void
a_silent_peer_times_out(void **state)
{
	struct endpoint_parking parking = { .gate = GATE_INIT };
	struct server *server;
	struct client *client;
	struct error err;
	char answer[8];

	(void)state;
	assert_int_equal(
	    server_open(&server, scratch_of_test.dir, "a", endpoint_park, &parking, &err), 0);
	assert_int_equal(client_open(&client, scratch_of_test.dir, "a", &err), 0);
	assert_int_equal(endpoint_ask(client, "x", 50, answer, sizeof(answer)), -ETIMEDOUT);
	client_close(client);
	server_close(server);
}

static void
the_peers_death_ends_a_question_at_once(void **state)
{
	struct endpoint_parking parking = { .gate = GATE_INIT };
	struct endpoint_asker asker;
	struct server *server;
	struct error err;
	char answer[8];

	(void)state;
	assert_int_equal(
	    server_open(&server, scratch_of_test.dir, "a", endpoint_park, &parking, &err), 0);
	assert_int_equal(client_open(&asker.client, scratch_of_test.dir, "a", &err), 0);
	endpoint_asker_start(&asker);
	assert_true(gate_wait(&parking.gate, 1));
	server_close(server);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.rc, -ECONNRESET);
	/* and the same client finds the next server */
	assert_int_equal(endpoint_ask(asker.client, "x", 1000, answer, sizeof(answer)),
			 -ECONNREFUSED);
	assert_int_equal(server_open(&server, scratch_of_test.dir, "a", endpoint_echo, NULL, &err),
			 0);
	assert_int_equal(endpoint_ask(asker.client, "again", 5000, answer, sizeof(answer)), 0);
	assert_string_equal(answer, "again");
	client_close(asker.client);
	server_close(server);
}

static void
parked_calls_are_answered_later(void **state)
{
	enum { N = 16 };
	struct endpoint_parking parking = { .gate = GATE_INIT };
	struct endpoint_asker askers[N];
	struct server *server;
	struct error err;

	(void)state;
	assert_int_equal(
	    server_open(&server, scratch_of_test.dir, "a", endpoint_park, &parking, &err), 0);
	for (int i = 0; i < N; i++) {
		assert_int_equal(client_open(&askers[i].client, scratch_of_test.dir, "a", &err), 0);
		endpoint_asker_start(&askers[i]);
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
	struct endpoint_parking parking = { .gate = GATE_INIT };
	struct server *server;
	struct client *client;
	struct error err;

	(void)state;
	assert_int_equal(
	    server_open(&server, scratch_of_test.dir, "a", endpoint_park, &parking, &err), 0);
	/* once more than calls can be parked: each is free again when its answer went nowhere */
	for (int i = 0; i < SERVER_CALLS + 1; i++) {
		parking.n = 0;
		assert_int_equal(client_open(&client, scratch_of_test.dir, "a", &err), 0);
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
	assert_int_equal(server_open(&server, scratch_of_test.dir, "a", endpoint_echo, NULL, &err),
			 0);
	assert_int_equal(client_open(&client, scratch_of_test.dir, "a", &err), 0);
	assert_true(client_ask(client, large, MAX_MESSAGE_BYTES + 1, 2000, &bytes, &n) < 0);
	assert_int_equal(endpoint_ask(client, "small", 5000, answer, sizeof(answer)), 0);
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
	snprintf(path, sizeof(path), "%s/a", scratch_of_test.dir);
	file = fopen(path, "w");
	assert_non_null(file);
	fclose(file);
	assert_int_equal(server_open(&server, scratch_of_test.dir, "a", endpoint_echo, NULL, &err),
			 -EEXIST);
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
	assert_int_equal(server_open(&server, scratch_of_test.dir, name, endpoint_echo, NULL, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "107"));
	assert_int_equal(client_open(&client, scratch_of_test.dir, name, &err), -EINVAL);
	name[MAX_SOCKET_PATH - strlen(scratch_of_test.dir) - 1] = '\0';
	assert_int_equal(server_open(&server, scratch_of_test.dir, name, endpoint_echo, NULL, &err),
			 0);
	server_close(server);
}

#define ENDPOINT_TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		ENDPOINT_TEST(answers_each_question_with_its_own_answer),
		ENDPOINT_TEST(nobody_there_is_said_at_once),
		ENDPOINT_TEST(a_silent_peer_times_out),
		ENDPOINT_TEST(the_peers_death_ends_a_question_at_once),
		ENDPOINT_TEST(parked_calls_are_answered_later),
		ENDPOINT_TEST(a_client_that_left_costs_nothing),
		ENDPOINT_TEST(a_message_over_the_limit_is_not_taken),
		ENDPOINT_TEST(a_file_in_the_place_of_a_socket_is_left_alone),
		ENDPOINT_TEST(a_path_over_the_limit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
