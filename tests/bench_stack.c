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

double
bench_death_seconds(const char *dir, const char *name, const char *prompt_ids, const char *tokens,
		    size_t after)
{
	pid_t pid = stack_pid(name, "worker");
	Hearth__State *worker;
	struct run run;
	uint64_t begin;
	double seconds;

	run_start(&run, WORDS("ask", "--name", name, "--ids", "--ignore-stop", "-n", tokens,
			      "--prompt-ids", prompt_ids));
	run_read(&run, after);
	begin = clock_ns();
	stack_kill(pid);
	if (run_finish(&run) != 0)
		log_warn("the answer failed: %s", run.err);
	run_close(&run);
	worker = bench_ask_board(dir, "worker");
	seconds = ((double)worker->computing->first_token_ns - (double)begin) / 1e9;
	hearth__state__free_unpacked(worker, NULL);
	return seconds;
}
