#include "tests/bench_stack.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"
#include "tests/stack_run.h"

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

struct bench_death
bench_die(const char *dir, const char *name, const char *prompt_ids, const char *tokens,
	  size_t after)
{
	pid_t pid = stack_pid(name, "worker");
	struct bench_death death;
	Hearth__State *worker;
	struct run run;
	uint64_t begin;

	run_start(&run, WORDS("ask", "--name", name, "--ids", "--ignore-stop", "-n", tokens,
			      "--prompt-ids", prompt_ids));
	run_read(&run, after);
	begin = clock_ns();
	stack_kill(pid);
	if (run_finish(&run) != 0)
		log_warn("the answer failed: %s", run.err);
	run_close(&run);
	worker = bench_ask_board(dir, "worker");
	death.seconds = seconds_between(begin, worker->computing->first_token_ns);
	death.started = seconds_between(begin, worker->since_ns);
	death.attaching = seconds_between(begin, worker->computing->attach_begin_ns);
	death.attached = seconds_between(begin, worker->computing->attach_end_ns);
	hearth__state__free_unpacked(worker, NULL);
	return death;
}
