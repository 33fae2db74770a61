/* worker/serve.h against a scheduler over a real link and arithmetic that tells on a wrong cache.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
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

#include "tests/fake_compute.h"
#include "tests/fake_scheduler.h"
#include "worker/serve.h"

#define CONTEXT 4096u

struct stage {
	char dir[32];
	struct fake_scheduler scheduler;
	uint64_t kv[CONTEXT];
	void *page; /* the journal's, as lent */
	/* one worker's life */
	struct service service;
	struct requests requests;
	struct journal journal;
	struct compute compute;
	struct serve *serve;
	pthread_t thread;
	int upkeep_code;
	pthread_mutex_t lock; /* for what follows */
	pthread_cond_t told;
	struct serve_tally tally;
	struct error err;
};

static const struct journal_identity identity = { 1, 2, 3, CONTEXT };

static void
take_tally(void *arg, const struct serve_tally *tally, bool now)
{
	struct stage *stage = arg;

	(void)now;
	pthread_mutex_lock(&stage->lock);
	stage->tally = *tally;
	pthread_cond_broadcast(&stage->told);
	pthread_mutex_unlock(&stage->lock);
}

static int
upkeep(void *arg, bool woken, struct error *err)
{
	struct stage *stage = arg;

	(void)woken;
	if (stage->upkeep_code < 0)
		return error_set(err, stage->upkeep_code, "as told");
	return 0;
}

static void *
worker_thread(void *arg)
{
	struct stage *stage = arg;

	return (void *)(intptr_t)serve_run(stage->serve, &stage->err);
}

/* A new process on the memory that is there. */
static void
worker_start(struct stage *stage)
{
	struct serve_config config = {
		.service = &stage->service,
		.requests = &stage->requests,
		.dir = stage->dir,
		.ops = &fake_compute_ops,
		.compute = &stage->compute,
		.journal = &stage->journal,
		.vocabulary = FAKE_VOCABULARY,
		.context = CONTEXT,
		.upkeep = upkeep,
		.report = take_tally,
		.arg = stage,
	};

	stage->service = (struct service){ .stage = "worker" };
	pthread_mutex_init(&stage->service.lock, NULL);
	pthread_cond_init(&stage->service.wake, NULL);
	requests_open(&stage->requests, &stage->service);
	journal_open(&stage->journal, stage->page, &identity, false);
	fake_compute_init(&stage->compute, stage->kv, CONTEXT);
	memset(&stage->tally, 0, sizeof(stage->tally));
	assert_int_equal(serve_open(&stage->serve, &config, &stage->err), 0);
	assert_int_equal(pthread_create(&stage->thread, NULL, worker_thread, stage), 0);
	assert_int_equal(fake_scheduler_hello(&stage->scheduler), CONTEXT);
}

static int
worker_join(struct stage *stage)
{
	void *rc;

	pthread_join(stage->thread, &rc);
	serve_close(stage->serve);
	requests_close(&stage->requests);
	fake_compute_done(&stage->compute);
	pthread_cond_destroy(&stage->service.wake);
	pthread_mutex_destroy(&stage->service.lock);
	return (int)(intptr_t)rc;
}

/* Ends without a word to the scheduler, as one that is killed; at the gate if it stands there. */
static void
worker_end(struct stage *stage)
{
	uint32_t downs = stage->scheduler.downs;

	service_leave(&stage->service);
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(worker_join(stage), 0);
	fake_scheduler_wait_down(&stage->scheduler, downs + 1);
}

static int
setup(void **state)
{
	struct stage *stage = calloc(1, sizeof(*stage));

	strcpy(stage->dir, "/tmp/hearth-serve-XXXXXX");
	if (mkdtemp(stage->dir) == NULL)
		return -1;
	stage->page = calloc(1, journal_bytes(CONTEXT));
	pthread_mutex_init(&stage->lock, NULL);
	pthread_cond_init(&stage->told, NULL);
	fake_scheduler_open(&stage->scheduler, stage->dir);
	worker_start(stage);
	*state = stage;
	return 0;
}

static void
stage_remove(struct stage *stage)
{
	char path[64];

	fake_scheduler_close(&stage->scheduler);
	snprintf(path, sizeof(path), "%s/work", stage->dir);
	unlink(path);
	rmdir(stage->dir);
	free(stage->page);
	pthread_cond_destroy(&stage->told);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

static int
teardown(void **state)
{
	struct stage *stage = *state;

	worker_end(stage);
	stage_remove(stage);
	return 0;
}

/* -- requests -- */

struct text {
	uint32_t ids[CONTEXT];
	uint32_t n;
	uint32_t prompt;
};

static struct text
text_make(uint32_t n, uint32_t seed)
{
	struct text text = { .n = n, .prompt = n };

	for (uint32_t i = 0; i < n; i++)
		text.ids[i] = (i * 7 + seed) % FAKE_VOCABULARY;
	return text;
}

/* Adds what the arithmetic gives. */
static uint32_t
text_grow(struct text *text)
{
	text->ids[text->n] = fake_compute_next(text->ids, text->n, FAKE_VOCABULARY);
	return text->ids[text->n++];
}

static Hearth__Generate
ask(const struct text *text, uint64_t request, uint32_t max_tokens)
{
	Hearth__Generate generate = HEARTH__GENERATE__INIT;

	generate.request = request;
	generate.ids = (uint32_t *)text->ids;
	generate.n_ids = text->n;
	generate.prompt_tokens = text->prompt;
	generate.max_tokens = max_tokens;
	return generate;
}

static void
send_ask(struct stage *stage, const struct text *text, uint64_t request, uint32_t max_tokens)
{
	Hearth__Generate generate = ask(text, request, max_tokens);

	fake_scheduler_send(&stage->scheduler, &generate);
}

/* Reads tokens until the text has `until` generated ones; each must be the arithmetic's. */
static void
read_tokens(struct stage *stage, struct text *text, uint64_t request, uint32_t until)
{
	for (uint32_t index = text->n - text->prompt; index < until; index++) {
		uint32_t id = fake_scheduler_token(&stage->scheduler, request, index);

		assert_int_equal(id, text_grow(text));
	}
}

static struct serve_tally
tally_when_idle(struct stage *stage)
{
	struct serve_tally tally;

	pthread_mutex_lock(&stage->lock);
	while (stage->tally.request != 0)
		pthread_cond_wait(&stage->told, &stage->lock);
	tally = stage->tally;
	pthread_mutex_unlock(&stage->lock);
	return tally;
}

/* -- the rules -- */

static void
gives_tokens_in_order_and_ends_at_max_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 1);

	send_ask(stage, &text, 77, 20);
	read_tokens(stage, &text, 77, 20);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 77, "length"), 20);
}

static void
a_prompt_of_many_batches_gives_the_same_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(3 * COMPUTE_BATCH + 1, 2);

	send_ask(stage, &text, 1, 3);
	read_tokens(stage, &text, 1, 3);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.forwards, 4 + 2);
}

static void
a_stop_id_is_sent_and_is_the_last(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 3), ahead = text;
	Hearth__Generate generate = ask(&text, 5, 100);
	uint32_t stops[2] = { FAKE_VOCABULARY + 5, 0 }, index = 0;

	stops[1] = text_grow(&ahead);
	for (index = 1; stops[1] == ahead.ids[5] && index < 6; index++)
		stops[1] = text_grow(&ahead);
	generate.n_stop_ids = 2;
	generate.stop_ids = stops;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 5, index);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 5, "stop"), index);
}

static void
a_stop_id_in_the_prompt_stops_nothing(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 3);
	Hearth__Generate generate = ask(&text, 5, 1);
	uint32_t stop = text.ids[4];

	generate.n_stop_ids = 1;
	generate.stop_ids = &stop;
	fake_scheduler_send(&stage->scheduler, &generate);
	read_tokens(stage, &text, 5, 1);
}

static void
a_full_context_ends_it(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(CONTEXT - 3, 4);

	send_ask(stage, &text, 6, 100);
	read_tokens(stage, &text, 6, 3);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 6, "length"), 3);
	text = text_make(CONTEXT, 4);
	send_ask(stage, &text, 7, 100);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 7, "length"), 0);
}

static void
what_comes_with_its_last_token_only_wants_its_finish(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 5);
	Hearth__Generate generate;
	uint32_t stop;

	text_grow(&text);
	stop = text_grow(&text);
	send_ask(stage, &text, 8, 2);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 8, "length"), 2);
	generate = ask(&text, 9, 100);
	generate.n_stop_ids = 1;
	generate.stop_ids = &stop;
	fake_scheduler_send(&stage->scheduler, &generate);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 9, "stop"), 2);
	assert_int_equal(stage->compute.forwards, 0);
}

static void
a_request_that_cannot_be_ends_with_a_line_and_the_next_is_served(void **state)
{
	struct stage *stage = *state;
	struct text good = text_make(4, 6), text;
	Hearth__Generate generate;
	uint32_t many[CONTEXT + 1] = { 0 };

	text = good;
	text.ids[2] = FAKE_VOCABULARY;
	send_ask(stage, &text, 1, 5);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "error"), 0);
	text = good;
	text.n = text.prompt = 0;
	send_ask(stage, &text, 2, 5);
	fake_scheduler_finish(&stage->scheduler, 2, "error");
	text = good;
	text.prompt = 5;
	send_ask(stage, &text, 3, 5);
	fake_scheduler_finish(&stage->scheduler, 3, "error");
	text.prompt = 0;
	send_ask(stage, &text, 4, 5);
	fake_scheduler_finish(&stage->scheduler, 4, "error");
	generate = ask(&good, 5, 5);
	generate.ids = many;
	generate.n_ids = CONTEXT + 1;
	fake_scheduler_send(&stage->scheduler, &generate);
	fake_scheduler_finish(&stage->scheduler, 5, "error");
	assert_int_equal(stage->compute.entered, 0);
	send_ask(stage, &good, 6, 2);
	read_tokens(stage, &good, 6, 2);
}

static void
rubbish_on_the_link_is_ignored(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(4, 7);
	const uint8_t rubbish[] = { 0xff, 0xff, 0xff, 0x07 };

	fake_scheduler_send_bytes(&stage->scheduler, rubbish, sizeof(rubbish));
	fake_scheduler_send_bytes(&stage->scheduler, rubbish, 0);
	send_ask(stage, &text, 0, 5); /* no id */
	fake_scheduler_cancel(&stage->scheduler, 12345);
	send_ask(stage, &text, 6, 2);
	read_tokens(stage, &text, 6, 2);
	fake_scheduler_finish(&stage->scheduler, 6, "length");
}

static void
logits_come_with_token_0_if_wanted(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(4, 8);
	Hearth__Generate generate = ask(&text, 3, 2);
	Hearth__FromWorker *message;
	float best;

	generate.want_logits = true;
	fake_scheduler_send(&stage->scheduler, &generate);
	message = fake_scheduler_next(&stage->scheduler);
	assert_int_equal(message->token->logits.len, FAKE_VOCABULARY * sizeof(float));
	memcpy(&best, message->token->logits.data + text_grow(&text) * sizeof(float), sizeof(best));
	assert_true(best == 20.0f);
	hearth__from_worker__free_unpacked(message, NULL);
	message = fake_scheduler_next(&stage->scheduler);
	assert_int_equal(message->token->index, 1);
	assert_int_equal(message->token->logits.len, 0);
	hearth__from_worker__free_unpacked(message, NULL);
}

static void
a_shared_prefix_is_not_computed_again(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(100, 9), other = text;

	send_ask(stage, &text, 1, 1);
	read_tokens(stage, &text, 1, 1);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(stage->compute.tokens, 100);
	other.ids[90] = (other.ids[90] + 1) % FAKE_VOCABULARY;
	send_ask(stage, &other, 2, 1);
	read_tokens(stage, &other, 2, 1);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, 110);
	assert_int_equal(tally_when_idle(stage).tokens_kept, 90);
	assert_int_equal(tally_when_idle(stage).tokens_in, 110);
	assert_int_equal(tally_when_idle(stage).tokens_out, 2);
}

static void
a_successor_goes_on_with_the_next_token(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(100, 10);

	for (uint32_t life = 0; life < 5; life++) {
		fake_compute_gate(&stage->compute, true);
		send_ask(stage, &text, 1, 60);
		/* Dies with a forward begun whose token nobody gets. */
		fake_compute_let(&stage->compute, life == 0 ? 2 + 9 : 10);
		read_tokens(stage, &text, 1, (life + 1) * 10);
		fake_compute_wait_entered(&stage->compute, life == 0 ? 12 : 11);
		service_leave(&stage->service);
		stage->compute.fails = -ECANCELED;
		worker_end(stage);
		worker_start(stage);
		assert_int_equal(stage->compute.tokens, 0);
	}
	send_ask(stage, &text, 1, 60);
	read_tokens(stage, &text, 1, 60);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 60);
	assert_int_equal(stage->compute.tokens, 10); /* and nothing again */
	assert_int_equal(tally_when_idle(stage).tokens_kept, 100 + 50 - 1);
}

static void
sampled_tokens_do_not_depend_on_the_worker(void **state)
{
	struct stage *stage = *state;
	Hearth__Sampling sampling = HEARTH__SAMPLING__INIT;
	struct text text = text_make(10, 11);
	Hearth__Generate generate;
	uint32_t whole[12];

	sampling.temperature = 30; /* flat: any token may come */
	sampling.top_p = 1;
	sampling.seed = 99;
	generate = ask(&text, 1, 12);
	generate.sampling = &sampling;
	fake_scheduler_send(&stage->scheduler, &generate);
	for (uint32_t i = 0; i < 12; i++)
		whole[i] = fake_scheduler_token(&stage->scheduler, 1, i);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	memcpy(text.ids + 10, whole, 5 * sizeof(*whole));
	text.n = 15;
	worker_end(stage);
	worker_start(stage);
	generate = ask(&text, 1, 12);
	generate.sampling = &sampling;
	fake_scheduler_send(&stage->scheduler, &generate);
	for (uint32_t i = 5; i < 12; i++)
		assert_int_equal(fake_scheduler_token(&stage->scheduler, 1, i), whole[i]);
}

static void
the_same_request_again_goes_on_from_its_ids(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(10, 12), again = text;

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 8);
	fake_compute_let(&stage->compute, 4);
	read_tokens(stage, &text, 1, 4);
	fake_compute_wait_entered(&stage->compute, 5);
	text_grow(&again); /* the scheduler knows of one token only */
	send_ask(stage, &again, 1, 8);
	while (!requests_waiting(&stage->requests))
		sched_yield();
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &text, 1, 5); /* of the forward that had begun */
	read_tokens(stage, &again, 1, 8);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 8);
	assert_int_equal(stage->compute.tokens, 10 + 4 + 7);
}

static void
another_request_takes_the_place_of_the_one_at_work(void **state)
{
	struct stage *stage = *state;
	struct text first = text_make(200, 13), second = text_make(6, 14);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &first, 1, 50);
	fake_compute_wait_entered(&stage->compute, 1);
	send_ask(stage, &second, 2, 3);
	while (!requests_waiting(&stage->requests))
		sched_yield();
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &second, 2, 3);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, COMPUTE_BATCH + 6 + 2);
}

static void
a_cancel_ends_it_between_the_batches_of_a_prompt(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(200, 15);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 50);
	fake_compute_wait_entered(&stage->compute, 1);
	fake_scheduler_cancel(&stage->scheduler, 1);
	while (!requests_waiting(&stage->requests))
		sched_yield();
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "cancelled"), 0);
	assert_int_equal(stage->compute.forwards, 1);
	tally_when_idle(stage); /* which the board shows */
	/* What was computed is kept. */
	send_ask(stage, &text, 2, 1);
	read_tokens(stage, &text, 2, 1);
	fake_scheduler_finish(&stage->scheduler, 2, "length");
	assert_int_equal(stage->compute.tokens, 200);
}

static void
a_cancel_ends_it_between_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 16);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 50);
	fake_compute_let(&stage->compute, 3);
	read_tokens(stage, &text, 1, 3);
	fake_compute_wait_entered(&stage->compute, 4);
	fake_scheduler_cancel(&stage->scheduler, 1);
	while (!requests_waiting(&stage->requests))
		sched_yield();
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &text, 1, 4);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "cancelled"), 4);
}

static void
a_cancel_of_another_request_changes_nothing(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 17);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 10);
	fake_compute_wait_entered(&stage->compute, 1);
	fake_scheduler_cancel(&stage->scheduler, 2);
	fake_compute_gate(&stage->compute, false);
	read_tokens(stage, &text, 1, 10);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 10);
}

static void
a_lost_scheduler_stops_it_and_the_next_gets_the_same_tokens(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(100, 18);
	uint32_t entered;

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 30);
	fake_compute_let(&stage->compute, 6);
	read_tokens(stage, &text, 1, 5);
	fake_compute_wait_entered(&stage->compute, 7);
	fake_scheduler_restart(&stage->scheduler, stage->dir);
	while (!requests_waiting(&stage->requests))
		sched_yield();
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(fake_scheduler_hello(&stage->scheduler), CONTEXT);
	entered = stage->compute.entered;
	assert_int_equal(entered, 7); /* nothing more was computed for nobody */
	send_ask(stage, &text, 1, 30);
	read_tokens(stage, &text, 1, 30);
	fake_scheduler_finish(&stage->scheduler, 1, "length");
	assert_int_equal(tally_when_idle(stage).tokens_kept, 100 + 5 - 1);
}

/* A peer that speaks nng's ipc framing by hand, since it must be able not to read. */
static int
raw_listen(const char *dir)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/work", dir);
	unlink(address.sun_path);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static int
raw_accept(int listener)
{
	const uint8_t pair[8] = { 0, 'S', 'P', 0, 0, 0x10, 0, 0 };
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	uint8_t theirs[8];
	int fd;

	assert_int_equal(poll(&wait, 1, 30000), 1);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, pair, sizeof(pair)), sizeof(pair));
	assert_int_equal(recv(fd, theirs, sizeof(theirs), MSG_WAITALL), sizeof(theirs));
	assert_memory_equal(theirs, pair, sizeof(pair));
	return fd;
}

static void
raw_send(int fd, Hearth__Generate *generate)
{
	Hearth__ToWorker message = HEARTH__TO_WORKER__INIT;
	uint8_t bytes[1024] = { 1 };
	size_t n;

	message.what_case = HEARTH__TO_WORKER__WHAT_GENERATE;
	message.generate = generate;
	n = hearth__to_worker__get_packed_size(&message);
	assert_true(n <= sizeof(bytes) - 9);
	bytes[7] = (uint8_t)(n >> 8); /* the length, most significant byte first */
	bytes[8] = (uint8_t)n;
	hearth__to_worker__pack(&message, bytes + 9);
	assert_int_equal(write(fd, bytes, 9 + n), 9 + n);
}

static void
a_scheduler_that_does_not_take_its_tokens_is_left(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(10, 22);
	Hearth__Generate generate = ask(&text, 1, CONTEXT);
	int listener, first, second;

	link_close(stage->scheduler.link);
	listener = raw_listen(stage->dir);
	first = raw_accept(listener);
	raw_send(first, &generate);
	second = raw_accept(listener);
	assert_true(tally_when_idle(stage).tokens_out >= LINK_QUEUE);
	close(first);
	close(second);
	close(listener);
	fake_scheduler_listen(&stage->scheduler, stage->dir);
	fake_scheduler_hello(&stage->scheduler);
	send_ask(stage, &text, 1, 100);
	read_tokens(stage, &text, 1, 100);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 100);
}

static void
told_to_leave_it_leaves_before_the_next_batch(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(200, 19);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 30);
	fake_compute_wait_entered(&stage->compute, 1);
	worker_end(stage); /* which lets the first one through */
	assert_int_equal(((struct journal_page *)stage->page)->count, COMPUTE_BATCH);
	worker_start(stage);
}

static void
a_failed_forward_ends_the_worker_and_the_request_is_kept_for_the_next(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(100, 20);

	stage->compute.fails = -EIO;
	send_ask(stage, &text, 1, 3);
	assert_int_equal(worker_join(stage), -EIO);
	assert_string_equal(stage->err.text, "the fake device fails");
	fake_scheduler_wait_down(&stage->scheduler, 1);
	worker_start(stage);
	send_ask(stage, &text, 1, 3);
	read_tokens(stage, &text, 1, 3); /* and no "error" before them */
}

static void
upkeep_can_end_it(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 21);

	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 30);
	fake_compute_wait_entered(&stage->compute, 1);
	stage->upkeep_code = -ECANCELED;
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(worker_join(stage), -ECANCELED);
	fake_scheduler_wait_down(&stage->scheduler, 1);
	read_tokens(stage, &text, 1, 1);
	stage->upkeep_code = 0;
	worker_start(stage);
}

/* nng 1.5.2 forgets a message that is just being handed to a connection when that is closed. */
const char *__lsan_default_suppressions(void);
const char *
__lsan_default_suppressions(void)
{
	return "leak:link_send\n";
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(gives_tokens_in_order_and_ends_at_max_tokens),
		RULE(a_prompt_of_many_batches_gives_the_same_tokens),
		RULE(a_stop_id_is_sent_and_is_the_last),
		RULE(a_stop_id_in_the_prompt_stops_nothing),
		RULE(a_full_context_ends_it),
		RULE(what_comes_with_its_last_token_only_wants_its_finish),
		RULE(a_request_that_cannot_be_ends_with_a_line_and_the_next_is_served),
		RULE(rubbish_on_the_link_is_ignored),
		RULE(logits_come_with_token_0_if_wanted),
		RULE(a_shared_prefix_is_not_computed_again),
		RULE(a_successor_goes_on_with_the_next_token),
		RULE(sampled_tokens_do_not_depend_on_the_worker),
		RULE(the_same_request_again_goes_on_from_its_ids),
		RULE(another_request_takes_the_place_of_the_one_at_work),
		RULE(a_cancel_ends_it_between_the_batches_of_a_prompt),
		RULE(a_cancel_ends_it_between_tokens),
		RULE(a_cancel_of_another_request_changes_nothing),
		RULE(a_lost_scheduler_stops_it_and_the_next_gets_the_same_tokens),
		RULE(a_scheduler_that_does_not_take_its_tokens_is_left),
		RULE(told_to_leave_it_leaves_before_the_next_batch),
		RULE(a_failed_forward_ends_the_worker_and_the_request_is_kept_for_the_next),
		RULE(upkeep_can_end_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
