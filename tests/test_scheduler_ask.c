/* hearth ask: its words, and a request that outlives its scheduler. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "scheduler/ask_options.h"
#include "scheduler/asking.h"
#include "tests/front_stage.h"

/* -- words -- */

#define MAX_WORDS 12

static int
parse(struct ask_options *ret, struct error *err, const char *const *words)
{
	char *argv[MAX_WORDS + 1] = { (char *)"ask" };
	int argc = 1;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)words[argc - 1];
	return ask_options_parse(ret, argc, argv, err);
}

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void
a_prompt_is_asked_greedily_for_128_tokens(void **state)
{
	struct ask_options options;
	struct error err;

	(void)state;
	assert_int_equal(parse(&options, &err, WORDS("--dir", "/tmp", "hello")), 0);
	assert_string_equal(options.text, "hello");
	assert_int_equal(options.max_tokens, 128);
	assert_true(options.temperature == 0);
	assert_false(options.json);
	ask_options_close(&options);
}

static void
every_option_is_taken(void **state)
{
	struct ask_options options;
	struct error err;

	(void)state;
	assert_int_equal(
	    parse(&options, &err,
		  WORDS("--dir=/tmp", "-n", "7", "--temp=0.5", "--top-k=4", "--top-p=0.9",
			"--seed=18446744073709551615", "--json", "--ids", "--ignore-stop",
			"--logits=f", "--prompt-ids=0,1048575,7")),
	    0);
	assert_int_equal(options.max_tokens, 7);
	assert_true(options.temperature == 0.5 && options.top_p == 0.9);
	assert_int_equal(options.top_k, 4);
	assert_true(options.seed == UINT64_MAX);
	assert_true(options.json && options.ids && options.ignore_stop);
	assert_string_equal(options.logits, "f");
	assert_null(options.text);
	assert_int_equal(options.n_prompt_ids, 3);
	assert_int_equal(options.prompt_ids[1], 1048575);
	ask_options_close(&options);
}

static void
wrong_words_are_quoted(void **state)
{
	const struct {
		const char *const *words;
		const char *said;
	} cases[] = {
		{ WORDS("--dir", "/tmp"), "no prompt: want PROMPT, - (stdin) or --prompt-ids" },
		{ WORDS("hello"), "--dir DIR is missing" },
		{ WORDS("--dir", "/nowhere/at/all", "x"), "/nowhere/at/all: is the stack up?" },
		{ WORDS("--dir", "/tmp", "-n", "0", "x"), "-n 0" },
		{ WORDS("--dir", "/tmp", "--top-p", "1.5", "x"), "--top-p 1.5: want 0 to 1" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1,,3"), "number 2 is ''" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1,2,"), "number 3 is ''" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", ""), "number 1 is ''" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "4,-1"), "number 2 is '-1'" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1048576"), "number 1 is '1048576'" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "99999999999999999999"), "number 1" },
		{ WORDS("--dir", "/tmp", "--prompt-ids", "1", "x"), "both a prompt and" },
		{ WORDS("--dir", "/tmp", "a", "b"), "b: one word too many" },
	};
	struct ask_options options;
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int code = parse(&options, &err, cases[i].words);

		assert_true(code < 0);
		assert_int_equal(error_exit_code(code), EXIT_INPUT);
		if (!strstr(err.text, cases[i].said))
			fail_msg("'%s' does not say '%s'", err.text, cases[i].said);
	}
}

/* -- a request -- */

static struct front_stage stage;
static struct fake_worker worker;

static int
open_all(void **state)
{
	(void)state;
	front_stage_open(&stage, 2);
	return 0;
}

static int
close_all(void **state)
{
	(void)state;
	front_stage_close(&stage);
	return 0;
}

struct asker {
	struct asking asking;
	struct error err;
	int code;
	pthread_t thread;
	uint32_t prompt[2];
	struct gate gate; /* passed at each token */
	char shown[64];   /* what a user would have read */
	size_t n_shown;
	int refuse; /* what take answers */
};

static int
take(void *arg, const uint32_t *ids, size_t n_ids, const uint8_t *text, size_t n_text)
{
	struct asker *asker = arg;

	(void)ids;
	assert_true(asker->n_shown + n_text < sizeof(asker->shown));
	if (n_text)
		memcpy(asker->shown + asker->n_shown, text, n_text);
	asker->n_shown += n_text;
	for (size_t i = 0; i < n_ids; i++)
		gate_pass(&asker->gate);
	return asker->refuse;
}

static void *
run(void *arg)
{
	struct asker *asker = arg;

	asker->code = asking_run(&asker->asking, &asker->err);
	return NULL;
}

static void
start_asking(struct asker *asker, uint32_t n_prompt, int refuse)
{
	*asker = (struct asker){ .gate = GATE_INIT, .prompt = { 1, 2 }, .refuse = refuse };
	hearth__submit__init(&asker->asking.submit);
	asker->asking.dir = stage.scratch.dir;
	asker->asking.take = take;
	asker->asking.arg = asker;
	asker->asking.submit.prompt_ids = asker->prompt;
	asker->asking.submit.n_prompt_ids = n_prompt;
	asker->asking.submit.max_tokens = 8;
	assert_int_equal(asking_open(&asker->asking, &asker->err), 0);
	assert_int_equal(pthread_create(&asker->thread, NULL, run, asker), 0);
}

static void
finish_asking(struct asker *asker, const char *finish)
{
	pthread_join(asker->thread, NULL);
	if (asker->code < 0)
		fail_msg("%s", asker->err.text);
	assert_string_equal(asker->asking.finish, finish);
}

static void
hello(void)
{
	fake_worker_open(&worker, stage.scratch.dir, 64, 2048);
}

/* "Hello world", as the demo model's reference has it. */
static const uint32_t hello_ids[] = { 39, 578, 78, 1180 };

static void
a_request_outlives_its_scheduler(void **state)
{
	struct asker asker;
	uint64_t request;

	(void)state;
	front_stage_decide(&stage, front_stage_tokenizer());
	hello();
	start_asking(&asker, 2, 0);
	request = asker.asking.submit.request;
	assert_true(request != 0);
	fake_worker_assert_asked(&worker, request, 2);
	fake_worker_token(&worker, request, 0, hello_ids[0]);
	fake_worker_token(&worker, request, 1, hello_ids[1]);
	assert_true(gate_wait(&asker.gate, 2));
	fake_worker_close(&worker);
	front_stage_stop(&stage);
	front_stage_start(&stage); /* knows nothing, and is not ready at first */
	hello();
	front_stage_decide(&stage, front_stage_tokenizer());
	fake_worker_assert_asked(&worker, request, 4); /* with the tokens it has read */
	fake_worker_token(&worker, request, 2, hello_ids[2]);
	fake_worker_token(&worker, request, 3, hello_ids[3]);
	fake_worker_finish(&worker, request, "stop", 4);
	finish_asking(&asker, "stop");
	assert_int_equal(asker.asking.n_ids, 4);
	assert_memory_equal(asker.asking.ids, hello_ids, sizeof(hello_ids));
	assert_int_equal(asker.n_shown, strlen("Hello world")); /* nothing twice */
	assert_memory_equal(asker.shown, "Hello world", asker.n_shown);
	assert_int_equal(asker.asking.n_prompt_ids, 2);
	assert_true(asker.asking.compute_s > 3.9e-6 && asker.asking.compute_s < 4.1e-6);
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
it_waits_while_the_scheduler_starts(void **state)
{
	struct asker asker;

	(void)state;
	start_asking(&asker, 2, 0); /* the model is not known yet */
	hello();
	front_stage_decide(&stage, NULL);
	fake_worker_assert_asked(&worker, asker.asking.submit.request, 2);
	fake_worker_finish(&worker, asker.asking.submit.request, "length", 0);
	finish_asking(&asker, "length");
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
an_interrupt_cancels_the_request(void **state)
{
	Hearth__ToWorker *message;
	struct asker asker;

	(void)state;
	front_stage_decide(&stage, NULL);
	hello();
	start_asking(&asker, 2, 0);
	fake_worker_assert_asked(&worker, asker.asking.submit.request, 2);
	fake_worker_token(&worker, asker.asking.submit.request, 0, 70);
	assert_true(gate_wait(&asker.gate, 1));
	assert_int_equal(kill(getpid(), SIGINT), 0);
	finish_asking(&asker, "cancelled");
	assert_int_equal(asker.asking.n_ids, 1);
	message = fake_worker_next(&worker);
	assert_int_equal(message->what_case, HEARTH__TO_WORKER__WHAT_CANCEL);
	hearth__to_worker__free_unpacked(message, NULL);
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
an_interrupt_ends_the_wait_for_a_scheduler(void **state)
{
	struct asker asker;

	(void)state;
	start_asking(&asker, 2, 0); /* never ready */
	assert_int_equal(kill(getpid(), SIGINT), 0);
	finish_asking(&asker, "cancelled");
	asking_close(&asker.asking);
}

static void
an_answer_nobody_takes_is_cancelled(void **state)
{
	struct asker asker;
	uint64_t request;

	(void)state;
	front_stage_decide(&stage, NULL);
	hello();
	start_asking(&asker, 2, -EPIPE);
	request = asker.asking.submit.request;
	fake_worker_assert_asked(&worker, request, 2);
	fake_worker_token(&worker, request, 0, 70);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -EPIPE);
	front_assert_finish(&stage, request, "cancelled", 1);
	asking_close(&asker.asking);
	fake_worker_close(&worker);
}

static void
what_the_scheduler_refuses_is_said(void **state)
{
	struct asker asker;

	(void)state;
	front_stage_decide(&stage, NULL);
	start_asking(&asker, 0, 0);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -EINVAL);
	assert_non_null(strstr(asker.err.text, "an empty prompt"));
	asking_close(&asker.asking);
	for (uint64_t i = 1; i <= 3; i++)
		front_submit(&stage, i, 1, 8);
	start_asking(&asker, 2, 0);
	pthread_join(asker.thread, NULL);
	assert_int_equal(asker.code, -EBUSY);
	assert_int_equal(error_exit_code(asker.code), EXIT_SYSTEM);
	assert_non_null(strstr(asker.err.text, "the queue is full"));
	asking_close(&asker.asking);
}

#define RULE(test) cmocka_unit_test_setup_teardown(test, open_all, close_all)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_prompt_is_asked_greedily_for_128_tokens),
		cmocka_unit_test(every_option_is_taken),
		cmocka_unit_test(wrong_words_are_quoted),
		RULE(a_request_outlives_its_scheduler),
		RULE(it_waits_while_the_scheduler_starts),
		RULE(an_interrupt_cancels_the_request),
		RULE(an_interrupt_ends_the_wait_for_a_scheduler),
		RULE(an_answer_nobody_takes_is_cancelled),
		RULE(what_the_scheduler_refuses_is_said),
	};
	sigset_t interrupt;

	/* As in the hearth command, where every thread is born behind interrupt_open. */
	sigemptyset(&interrupt);
	sigaddset(&interrupt, SIGINT);
	pthread_sigmask(SIG_BLOCK, &interrupt, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
