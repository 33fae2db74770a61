/* common/endpoint.h: asking without waiting. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "tests/scratch.h"

struct stage {
	struct scratch scratch;
	struct server *server;
	struct client *client;
	struct gate asked; /* the server was, and keeps the call */
	struct call *calls[4];
	int n_calls;
	struct gate told; /* fn came */
	int rc;
	char text[16];
	struct error err;
};

static void
keep(void *arg, struct call *call, const uint8_t *bytes, size_t n)
{
	struct stage *stage = arg;

	(void)bytes;
	(void)n;
	stage->calls[stage->n_calls++] = call;
	gate_pass(&stage->asked);
}

static void
hear(void *arg, int rc, const uint8_t *bytes, size_t n)
{
	struct stage *stage = arg;

	stage->rc = rc;
	if (rc == 0) {
		assert_true(n < sizeof(stage->text));
		memcpy(stage->text, bytes, n);
		stage->text[n] = '\0';
	}
	gate_pass(&stage->told);
}

static struct stage stage;

static void
serve(void)
{
	assert_int_equal(
	    server_open(&stage.server, stage.scratch.dir, "a", keep, &stage, &stage.err), 0);
}

static int
setup(void **state)
{
	(void)state;
	stage = (struct stage){ .asked = GATE_INIT, .told = GATE_INIT };
	scratch_open(&stage.scratch);
	assert_int_equal(client_open(&stage.client, stage.scratch.dir, "a", &stage.err), 0);
	return 0;
}

static int
teardown(void **state)
{
	(void)state;
	client_close(stage.client);
	server_close(stage.server);
	scratch_close(&stage.scratch);
	return 0;
}

static int
begin(const char *text)
{
	return client_begin(stage.client, (const uint8_t *)text, strlen(text), hear, &stage);
}

static void
reply(int i, const char *text)
{
	call_reply(stage.calls[i], (const uint8_t *)text, strlen(text));
}

static void
the_answer_comes_when_it_is_given(void **state)
{
	(void)state;
	serve();
	assert_int_equal(begin("x"), 0);
	assert_true(gate_wait(&stage.asked, 1));
	assert_int_equal(stage.told.count, 0);
	reply(0, "one");
	assert_true(gate_wait(&stage.told, 1));
	assert_int_equal(stage.rc, 0);
	assert_string_equal(stage.text, "one");
}

static void
what_was_dropped_is_not_told_and_the_next_gets_its_own_answer(void **state)
{
	(void)state;
	serve();
	assert_int_equal(begin("x"), 0);
	assert_true(gate_wait(&stage.asked, 1));
	client_drop(stage.client);
	client_drop(stage.client);
	assert_int_equal(begin("y"), 0);
	assert_true(gate_wait(&stage.asked, 2));
	reply(0, "one");
	reply(1, "two");
	assert_true(gate_wait(&stage.told, 1));
	assert_string_equal(stage.text, "two");
	client_drop(stage.client);
	assert_int_equal(stage.told.count, 1);
}

static void
nobody_there_is_said_at_once(void **state)
{
	(void)state;
	assert_int_equal(begin("x"), -ECONNREFUSED);
	client_drop(stage.client);
	assert_int_equal(stage.told.count, 0);
}

static void
the_peers_death_is_told_and_its_successor_is_asked(void **state)
{
	(void)state;
	serve();
	assert_int_equal(begin("x"), 0);
	assert_true(gate_wait(&stage.asked, 1));
	server_close(stage.server);
	stage.server = NULL;
	assert_true(gate_wait(&stage.told, 1));
	assert_int_equal(stage.rc, -ECONNRESET);
	serve();
	assert_int_equal(begin("y"), 0);
	assert_true(gate_wait(&stage.asked, 2));
	reply(1, "two");
	assert_true(gate_wait(&stage.told, 2));
	assert_int_equal(stage.rc, 0);
}

static void
closing_forgets_what_is_asked(void **state)
{
	(void)state;
	serve();
	assert_int_equal(begin("x"), 0);
	assert_true(gate_wait(&stage.asked, 1));
	client_close(stage.client);
	stage.client = NULL;
	reply(0, "one");
	assert_int_equal(stage.told.count, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_answer_comes_when_it_is_given, setup, teardown),
		cmocka_unit_test_setup_teardown(
		    what_was_dropped_is_not_told_and_the_next_gets_its_own_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(nobody_there_is_said_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(the_peers_death_is_told_and_its_successor_is_asked,
						setup, teardown),
		cmocka_unit_test_setup_teardown(closing_forgets_what_is_asked, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
