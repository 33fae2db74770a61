/* worker/serve.h: workers and schedulers come and go, and no token is lost or another. */
#include <errno.h>
#include <poll.h>
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

#include "tests/serve_stage.h"

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
	fake_scheduler_restart(&stage->scheduler, stage->scratch.dir);
	wait_for_order(stage);
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
	listener = raw_listen(stage->scratch.dir);
	first = raw_accept(listener);
	raw_send(first, &generate);
	second = raw_accept(listener);
	assert_true(tally_when_idle(stage).tokens_out >= LINK_QUEUE);
	close(first);
	close(second);
	close(listener);
	fake_scheduler_listen(&stage->scheduler, stage->scratch.dir);
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
	struct text text = text_make(200, 21);

	/* In the middle of a prompt: a token might be on its way when the link is closed. */
	fake_compute_gate(&stage->compute, true);
	send_ask(stage, &text, 1, 30);
	fake_compute_wait_entered(&stage->compute, 1);
	stage->upkeep_code = -ECANCELED;
	fake_compute_gate(&stage->compute, false);
	assert_int_equal(worker_join(stage), -ECANCELED);
	assert_int_equal(stage->compute.forwards, 1);
	fake_scheduler_wait_down(&stage->scheduler, 1);
	stage->upkeep_code = 0;
	worker_start(stage);
}

/* What waits for the end of an answer begins then, and not with the next one. */
static void
upkeep_comes_once_more_when_an_answer_is_through(void **state)
{
	struct stage *stage = *state;
	struct text text = text_make(5, 22);

	send_ask(stage, &text, 1, 2);
	read_tokens(stage, &text, 1, 2);
	assert_int_equal(fake_scheduler_finish(&stage->scheduler, 1, "length"), 2);
	wait_for_upkeep_after(stage);
}

#define RULE(name) cmocka_unit_test_setup_teardown(name, serve_setup, serve_teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		RULE(a_successor_goes_on_with_the_next_token),
		RULE(sampled_tokens_do_not_depend_on_the_worker),
		RULE(a_lost_scheduler_stops_it_and_the_next_gets_the_same_tokens),
		RULE(a_scheduler_that_does_not_take_its_tokens_is_left),
		RULE(told_to_leave_it_leaves_before_the_next_batch),
		RULE(a_failed_forward_ends_the_worker_and_the_request_is_kept_for_the_next),
		RULE(upkeep_can_end_it),
		RULE(upkeep_comes_once_more_when_an_answer_is_through),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
