/* What the benches ask of a running stack and do to it.  They end the bench when it cannot be had.
 */
#ifndef HEARTH_TESTS_BENCH_STACK_H
#define HEARTH_TESTS_BENCH_STACK_H

#include <stddef.h>

#include "common/board.h"

/* The caller frees it with hearth__state__free_unpacked. */
Hearth__State *bench_ask_board(const char *dir, const char *stage);

/* A worker's death: seconds from the SIGKILL to the first token that the next one gave, and of them
 * until it was started, began to attach, had attached. */
struct bench_death {
	double seconds;
	double started, attaching, attached;
};

/* Kills the worker once `after` bytes of an answer of `tokens` tokens have come. */
struct bench_death bench_die(const char *dir, const char *name, const char *prompt_ids,
			     const char *tokens, size_t after);

#endif
