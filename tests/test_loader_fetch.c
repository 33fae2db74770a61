/* loader/load.h and `loader.fetch`: the desk of a real start, from its files to its end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/endpoint.h"
#include "loader/load.h"
#include "proto/fetch.pb-c.h"
#include "tests/gguf_builder.h"
#include "tests/scratch.h"

#define LAYER 1
#define EXPERT 5

static struct scratch scratch;
static char model[96];
static struct service service;
static struct load load;
static struct load_options options;

static int
setup(void **state)
{
	struct tiny tiny = tiny_default();
	struct error err;
	int rc;

	(void)state;
	scratch_open(&scratch);
	snprintf(model, sizeof(model), "%s/m.gguf", scratch.dir);
	tiny_write(&tiny, model);
	service = (struct service){ .stage = "loader" };
	pthread_mutex_init(&service.lock, NULL);
	pthread_cond_init(&service.wake, NULL);
	options = (struct load_options){ .dir = scratch.dir,
					 .model = model,
					 .read = "buffered",
					 .threads = 2,
					 .numa_node = NUMA_NODE_AUTO,
					 .io = &io_system,
					 .cache = &cache_system,
					 .populate = &populate_system,
					 .root = "" };
	load = (struct load){ .options = &options, .service = &service, .arena = { .fd = -1 } };
	rc = board_open(&load.board, scratch.dir, "loader", &err);
	if (rc == 0)
		rc = load_plan(&load, &err);
	if (rc == 0)
		rc = load_take_arena(&load, &err);
	if (rc == 0)
		rc = load_open_desk(&load, &err);
	return rc;
}

static int
teardown(void **state)
{
	(void)state;
	load_close(&load);
	board_close(load.board);
	scratch_close(&scratch);
	return 0;
}

/* *(Hearth__FetchReply **)arg is the answer to it, which is asked in the test's thread or another.
 */
static void *
ask(void *arg)
{
	Hearth__Fetch fetch = HEARTH__FETCH__INIT;
	Hearth__FetchReply **ret = arg;
	uint32_t expert = EXPERT;
	uint8_t bytes[64], *answer;
	struct client *client;
	struct error err;
	size_t n;

	fetch.layer = LAYER;
	fetch.n_experts = 1;
	fetch.experts = &expert;
	*ret = NULL;
	if (client_open(&client, scratch.dir, "loader.fetch", &err) < 0)
		return NULL;
	n = hearth__fetch__pack(&fetch, bytes);
	if (client_ask(client, bytes, n, GATE_SECONDS * 1000, &answer, &n) == 0) {
		*ret = hearth__fetch_reply__unpack(NULL, n, answer);
		free(answer);
	}
	client_close(client);
	return NULL;
}

/* Where the arena's own table has it; frees the reply. */
static void
expect_place(Hearth__FetchReply *reply)
{
	const struct arena_tensor *down =
	    arena_find_tensor(&load.arena, "blk.1.ffn_down_exps.weight");

	if (!reply || !down) {
		fail_msg("no answer");
		return;
	}
	assert_int_equal(reply->error, 0);
	assert_int_equal(reply->n_experts, 1);
	assert_int_equal(reply->experts[0]->expert, EXPERT);
	assert_int_equal(reply->experts[0]->offset_down,
			 down->offset + EXPERT * (down->bytes / down->dims[2]));
	hearth__fetch_reply__free_unpacked(reply, NULL);
}

static void
who_asks_before_the_load_is_answered_by_it_and_later_at_once(void **state)
{
	Hearth__FetchReply *early, *late;
	struct error err;
	pthread_t asker;

	(void)state;
	assert_int_equal(pthread_create(&asker, NULL, ask, &early), 0);
	assert_int_equal(load_read(&load, &err), 0);
	assert_int_equal(load_finish(&load, &err), 0);
	pthread_join(asker, NULL);
	expect_place(early);
	ask(&late);
	expect_place(late);
}

static void
a_failed_load_says_why_to_who_asks(void **state)
{
	Hearth__FetchReply *reply;
	struct error err;

	(void)state;
	error_set(&err, -EIO, "layer 1: the drive is gone");
	load_fail(&load, -EIO, &err);
	ask(&reply);
	if (!reply) {
		fail_msg("no answer");
		return;
	}
	assert_int_equal(reply->error, -EIO);
	assert_string_equal(reply->text, "layer 1: the drive is gone");
	hearth__fetch_reply__free_unpacked(reply, NULL);
	assert_int_equal(board_edit(load.board)->phase, HEARTH__PHASE__PHASE_FAILED);
	board_publish(load.board);
}

#define FETCH_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		FETCH_TEST(who_asks_before_the_load_is_answered_by_it_and_later_at_once),
		FETCH_TEST(a_failed_load_says_why_to_who_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
