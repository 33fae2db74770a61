#include "tests/fetch_stage.h"

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

#define ASK_MS (GATE_SECONDS * 1000)
#define TRUNK_BYTES 20000000u /* the trunk's large tensor, at the begin of file 0 */

struct fetch_stage fetching;

/* Reads of the trunk's large tensor from `until` on wait. */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	uint64_t until;
} trunk = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static int64_t
read_within(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	if (fd == 0 && offset < TRUNK_BYTES) {
		pthread_mutex_lock(&trunk.lock);
		if (offset >= trunk.until)
			gate_pass(&fetching.at_trunk);
		while (offset >= trunk.until)
			pthread_cond_wait(&trunk.changed, &trunk.lock);
		pthread_mutex_unlock(&trunk.lock);
	}
	return fake_io.read_at(fd, to, bytes, offset);
}

void
fetch_stage_let_trunk(uint64_t until)
{
	pthread_mutex_lock(&trunk.lock);
	trunk.until = until;
	pthread_cond_broadcast(&trunk.changed);
	pthread_mutex_unlock(&trunk.lock);
}

static int
bring_and_tell(void *arg, struct fetch_wish *wish, struct error *err)
{
	int rc = fetching.source.bring(arg, wish, err);

	gate_pass(&fetching.brought);
	return rc;
}

static void
on_demanded(void *arg)
{
	(void)arg;
	demand_look(fetching.demand);
}

void
fetch_stage_open(const bool *skip)
{
	struct fetch_source source;
	struct error err;

	scratch_open(&fetching.scratch);
	read_case_open(&fetching.load, skip);
	fetching.brought = (struct gate)GATE_INIT;
	fetching.at_trunk = (struct gate)GATE_INIT;
	trunk.until = 0;
	fetching.reader = NULL;
	assert_int_equal(demand_open(&fetching.demand, &fetching.load.plan,
				     fetching.load.files.tensors, &fetching.load.pieces,
				     fetching.load.queue, &err),
			 0);
	source = fetching.source = demand_source(fetching.demand);
	source.bring = bring_and_tell;
	assert_int_equal(fetch_desk_open(&fetching.desk, fetching.scratch.dir, &source, &err), 0);
}

void
fetch_stage_start_reader(uint32_t threads)
{
	static struct io_calls io;
	struct reader_config config = read_case_config(&fetching.load, threads, false);
	struct error err;

	io = fake_io;
	io.read_at = read_within;
	config.io = &io;
	config.events.demanded = on_demanded;
	assert_int_equal(reader_open(&fetching.reader, &config, &err), 0);
}

void
fetch_stage_close(void)
{
	struct error why;

	fetch_stage_let_trunk(TRUNK_ALL);
	reader_close(fetching.reader);
	error_set(&why, -ECANCELED, "the test ends");
	demand_end(fetching.demand, -ECANCELED, &why);
	fetch_desk_close(fetching.desk);
	demand_close(fetching.demand);
	read_case_close(&fetching.load);
	scratch_close(&fetching.scratch);
}

Hearth__FetchReply *
fetch_ask_bytes(const uint8_t *bytes, size_t n)
{
	Hearth__FetchReply *reply;
	struct client *client;
	struct error err;
	uint8_t *answer;
	size_t n_answer;

	assert_int_equal(client_open(&client, fetching.scratch.dir, "loader.fetch", &err), 0);
	assert_int_equal(client_ask(client, bytes, n, ASK_MS, &answer, &n_answer), 0);
	client_close(client);
	reply = hearth__fetch_reply__unpack(NULL, n_answer, answer);
	assert_non_null(reply);
	free(answer);
	return reply;
}

Hearth__FetchReply *
fetch_ask(uint32_t layer, const uint32_t *experts, uint32_t n)
{
	Hearth__Fetch fetch = HEARTH__FETCH__INIT;
	uint8_t bytes[256];

	fetch.layer = layer;
	fetch.n_experts = n;
	fetch.experts = (uint32_t *)experts;
	return fetch_ask_bytes(bytes, hearth__fetch__pack(&fetch, bytes));
}

static void *
asker_thread(void *arg)
{
	struct asker *asker = arg;

	asker->reply = fetch_ask(asker->layer, asker->experts, asker->n);
	return NULL;
}

void
asker_start(struct asker *asker)
{
	assert_int_equal(pthread_create(&asker->thread, NULL, asker_thread, asker), 0);
}

/* The tensor's bytes in the file are those at the place that the answer names. */
static void
expect_role(uint32_t layer, const char *role, uint32_t expert, uint64_t offset)
{
	char name[64];

	snprintf(name, sizeof(name), "blk.%u.ffn_%s_exps.weight", layer, role);
	for (uint64_t i = 0; i < fetching.load.files.n_tensors; i++) {
		const struct arena_tensor *t = &fetching.load.files.tensors[i];
		uint64_t each = t->bytes / 3;

		if (strcmp(t->name, name) != 0)
			continue;
		assert_int_equal(offset, t->offset + expert * each);
		assert_memory_equal(fetching.load.arena + offset,
				    fake.bytes[t->shard] + t->file_offset + expert * each, each);
		return;
	}
	fail_msg("no %s", name);
}

/* Frees the reply. */
void
fetch_expect_in_place(Hearth__FetchReply *reply, uint32_t layer, const uint32_t *experts,
		      uint32_t n)
{
	assert_int_equal(reply->error, 0);
	assert_int_equal(reply->n_experts, n);
	for (uint32_t i = 0; i < n; i++) {
		const Hearth__FetchedExpert *one = reply->experts[i];

		assert_int_equal(one->expert, experts[i]);
		expect_role(layer, "gate", one->expert, one->offset_gate);
		expect_role(layer, "up", one->expert, one->offset_up);
		expect_role(layer, "down", one->expert, one->offset_down);
	}
	hearth__fetch_reply__free_unpacked(reply, NULL);
}

void
asker_join(struct asker *asker)
{
	pthread_join(asker->thread, NULL);
}

void
asker_expect(struct asker *asker)
{
	asker_join(asker);
	fetch_expect_in_place(asker->reply, asker->layer, asker->experts, asker->n);
}

void
fetch_expect_refused(Hearth__FetchReply *reply, int code, const char *part)
{
	assert_int_equal(reply->error, code);
	assert_int_equal(reply->n_experts, 0);
	if (!strstr(reply->text, part))
		fail_msg("\"%s\" does not say \"%s\"", reply->text, part);
	hearth__fetch_reply__free_unpacked(reply, NULL);
}
