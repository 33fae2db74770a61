#include "tests/bench_stack.h"

#include <stdbool.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "tests/stack_run.h"

#define MAX_TRIES 10u

Hearth__State *
bench_ask_board(const char *dir, const char *stage)
{
	Hearth__State *state;
	struct error err;

	if (board_ask(dir, stage, 5000, &state, &err) == 0)
		return state;
	log_error("%s", err.text);
	exit(EXIT_SYSTEM);
}

static double
seconds_between(uint64_t from, uint64_t to)
{
	return ((double)to - (double)from) / (double)NS_PER_SECOND;
}

/* False: the whole answer was there before the worker was dead. */
static bool
die_once(const char *dir, const char *name, const char *prompt_ids, const char *tokens,
	 size_t after, struct bench_death *ret)
{
	pid_t pid = stack_pid(name, "worker");
	Hearth__State *worker;
	struct run run;
	uint64_t begin;
	bool counts;

	run_start(&run, WORDS("ask", "--name", name, "--ids", "--ignore-stop", "-n", tokens,
			      "--prompt-ids", prompt_ids));
	run_read(&run, after);
	begin = clock_ns();
	stack_kill(pid);
	if (run_finish(&run) != 0)
		log_warn("the answer failed: %s", run.err);
	run_close(&run);
	stack_wait_answering(name);
	worker = bench_ask_board(dir, "worker");
	counts = worker->computing && worker->computing->first_token_ns > begin;
	if (counts)
		*ret = (struct bench_death){
			seconds_between(begin, worker->computing->first_token_ns),
			seconds_between(begin, worker->since_ns),
			seconds_between(begin, worker->computing->attach_begin_ns),
			seconds_between(begin, worker->computing->attach_end_ns)
		};
	hearth__state__free_unpacked(worker, NULL);
	return counts;
}

struct bench_death
bench_die(const char *dir, const char *name, const char *prompt_ids, const char *tokens,
	  size_t after)
{
	struct bench_death death;

	for (uint32_t i = 0; i < MAX_TRIES; i++)
		if (die_once(dir, name, prompt_ids, tokens, after, &death))
			return death;
	log_error("%s tokens are too few: the answer is there before the worker is killed", tokens);
	exit(EXIT_SYSTEM);
}
