#include "tests/front_stage.h"

#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/gguf.h"
#include "scheduler/front.h"
#include "scheduler/work.h"
#include "tests/quiet_service.h"

#define LIMIT_SECONDS 30
#define ASK_MS 20000

struct tokenizer *
front_stage_tokenizer(void)
{
	const char *path = "tests/data/kjv-16x1m.gguf";
	struct tokenizer *tokenizer = NULL;
	struct gguf gguf = { 0 };
	struct error err;
	struct stat about;
	void *bytes;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &about), 0);
	bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(bytes != MAP_FAILED);
	assert_int_equal(
	    gguf_parse(&gguf, bytes, (uint64_t)about.st_size, (uint64_t)about.st_size, path, &err),
	    0);
	assert_int_equal(tokenizer_open(&tokenizer, &gguf, &err), 0);
	gguf_close(&gguf);
	munmap(bytes, (size_t)about.st_size);
	close(fd);
	return tokenizer;
}

static void *
stage_main(void *arg)
{
	struct front_stage *stage = arg;
	uint64_t seen = 0, deadline;

	do
		deadline = front_expire(&stage->serving, clock_ns());
	while (service_wait(&stage->service, &seen, deadline));
	return NULL;
}

void
front_stage_start(struct front_stage *stage)
{
	struct error err;

	quiet_service_open(&stage->service, "scheduler");
	assert_int_equal(board_open(&stage->board, stage->scratch.dir, "scheduler", &err), 0);
	assert_int_equal(
	    serving_open(&stage->serving, &stage->service, stage->board, stage->queue_limit, &err),
	    0);
	assert_int_equal(work_open(&stage->serving, stage->scratch.dir, &err), 0);
	assert_int_equal(front_open(&stage->front, &stage->serving, stage->scratch.dir, &err), 0);
	assert_int_equal(pthread_create(&stage->main, NULL, stage_main, stage), 0);
}

void
front_stage_open(struct front_stage *stage, uint32_t queue_limit)
{
	memset(stage, 0, sizeof(*stage));
	stage->queue_limit = queue_limit;
	scratch_open(&stage->scratch);
	front_stage_start(stage);
}

void
front_stage_decide(struct front_stage *stage, struct tokenizer *tokenizer)
{
	serving_decide(&stage->serving, tokenizer, tokenizer ? "qwen2" : "this file has none");
}

void
front_stage_stop(struct front_stage *stage)
{
	service_leave(&stage->service);
	pthread_join(stage->main, NULL);
	server_close(stage->front);
	work_close(&stage->serving);
	serving_close(&stage->serving);
	board_close(stage->board);
	quiet_service_close(&stage->service);
}

void
front_stage_close(struct front_stage *stage)
{
	front_stage_stop(stage);
	scratch_close(&stage->scratch);
}

void
front_stage_wait_parked(struct front_stage *stage, uint32_t n)
{
	uint64_t limit = clock_ns() + LIMIT_SECONDS * NS_PER_SECOND;
	uint32_t parked;

	do {
		pthread_mutex_lock(&stage->serving.lock);
		parked = stage->serving.parked.n;
		pthread_mutex_unlock(&stage->serving.lock);
		sched_yield();
	} while (parked != n && clock_ns() < limit);
	assert_int_equal(parked, n);
}

void
front_stage_wait_unlinked(struct front_stage *stage)
{
	uint64_t limit = clock_ns() + LIMIT_SECONDS * NS_PER_SECOND;
	bool linked;

	do {
		pthread_mutex_lock(&stage->serving.lock);
		linked = stage->serving.linked;
		pthread_mutex_unlock(&stage->serving.lock);
		sched_yield();
	} while (linked && clock_ns() < limit);
	assert_false(linked);
}

/* -- the client -- */

Hearth__FrontReply *
front_ask(struct front_stage *stage, const Hearth__FrontRequest *request)
{
	size_t n = hearth__front_request__get_packed_size(request), n_answer;
	uint8_t *bytes = malloc(n + 1), *answer;
	Hearth__FrontReply *reply;
	struct client *client;
	struct error err;

	assert_non_null(bytes);
	hearth__front_request__pack(request, bytes);
	assert_int_equal(client_open(&client, stage->scratch.dir, "front", &err), 0);
	assert_int_equal(client_ask(client, bytes, n, ASK_MS, &answer, &n_answer), 0);
	client_close(client);
	reply = hearth__front_reply__unpack(NULL, n_answer, answer);
	assert_non_null(reply);
	free(answer);
	free(bytes);
	return reply;
}

Hearth__FrontReply *
front_submit_message(struct front_stage *stage, Hearth__Submit *submit)
{
	Hearth__FrontRequest request = HEARTH__FRONT_REQUEST__INIT;

	request.what_case = HEARTH__FRONT_REQUEST__WHAT_SUBMIT;
	request.submit = submit;
	return front_ask(stage, &request);
}

static Hearth__FrontError
error_of(Hearth__FrontReply *reply)
{
	Hearth__FrontError error = reply->error;

	hearth__front_reply__free_unpacked(reply, NULL);
	return error;
}

Hearth__FrontError
front_submit(struct front_stage *stage, uint64_t request, uint32_t n_prompt, uint32_t max_tokens)
{
	Hearth__Submit submit = HEARTH__SUBMIT__INIT;
	uint32_t ids[256];

	assert_true(n_prompt <= 256);
	for (uint32_t i = 0; i < n_prompt; i++)
		ids[i] = i + 1;
	submit.request = request;
	submit.prompt_ids = ids;
	submit.n_prompt_ids = n_prompt;
	submit.max_tokens = max_tokens;
	return error_of(front_submit_message(stage, &submit));
}

Hearth__FrontReply *
front_read(struct front_stage *stage, uint64_t request, uint32_t from_index, uint64_t from_byte,
	   uint32_t wait_ms)
{
	Hearth__FrontRequest message = HEARTH__FRONT_REQUEST__INIT;
	Hearth__Read read = HEARTH__READ__INIT;

	read.request = request;
	read.from_index = from_index;
	read.from_byte = from_byte;
	read.wait_ms = wait_ms;
	message.what_case = HEARTH__FRONT_REQUEST__WHAT_READ;
	message.read = &read;
	return front_ask(stage, &message);
}

Hearth__FrontError
front_cancel(struct front_stage *stage, uint64_t request)
{
	Hearth__FrontRequest message = HEARTH__FRONT_REQUEST__INIT;
	Hearth__Cancel cancel = HEARTH__CANCEL__INIT;

	cancel.request = request;
	message.what_case = HEARTH__FRONT_REQUEST__WHAT_CANCEL;
	message.cancel = &cancel;
	return error_of(front_ask(stage, &message));
}

void
front_assert_refused(Hearth__FrontReply *reply, Hearth__FrontError error, const char *said)
{
	assert_int_equal(reply->error, error);
	if (!strstr(reply->error_text, said))
		fail_msg("'%s' does not say '%s'", reply->error_text, said);
	hearth__front_reply__free_unpacked(reply, NULL);
}

void
front_assert_finish(struct front_stage *stage, uint64_t request, const char *finish, uint32_t n)
{
	Hearth__FrontReply *reply = front_read(stage, request, 0, 0, 0);

	/* Every read from the last token on waits for what comes next. */
	while (reply->error == HEARTH__FRONT_ERROR__FRONT_OK && !reply->finish[0]) {
		uint32_t have = (uint32_t)reply->n_ids;

		hearth__front_reply__free_unpacked(reply, NULL);
		reply = front_read(stage, request, have, 0, 10000);
		hearth__front_reply__free_unpacked(reply, NULL);
		reply = front_read(stage, request, 0, 0, 0);
		assert_true(reply->finish[0] || reply->n_ids > have);
	}
	assert_int_equal(reply->error, HEARTH__FRONT_ERROR__FRONT_OK);
	assert_string_equal(reply->finish, finish);
	assert_int_equal(reply->n_ids, n);
	hearth__front_reply__free_unpacked(reply, NULL);
}

uint32_t
front_token(struct front_stage *stage, uint64_t request, uint32_t index)
{
	Hearth__FrontReply *reply = front_read(stage, request, index, 0, 10000);
	uint32_t id;

	assert_int_equal(reply->error, HEARTH__FRONT_ERROR__FRONT_OK);
	assert_true(reply->n_ids > 0);
	id = reply->ids[0];
	hearth__front_reply__free_unpacked(reply, NULL);
	return id;
}
