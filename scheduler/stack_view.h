/* A running stack as its stages tell it: all four asked at once, and told apart where one does not
 * answer.  The view owns the states. */
#ifndef HEARTH_SCHEDULER_STACK_VIEW_H
#define HEARTH_SCHEDULER_STACK_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "proto/state.pb-c.h"

#define N_STAGES 4

enum stage_index { LOADER, PINNER, WORKER, SCHEDULER };
extern const char *const stage_names[N_STAGES];

struct stack_view {
	char name[64];                  /* of the stack */
	Hearth__State *state[N_STAGES]; /* NULL: no answer */
	const char *word[N_STAGES];     /* "ready", "loading", ..., or why there is no answer:
					 * "stopped" (no socket: not started, or left in good order),
					 * "crashed" (nobody behind its socket), "wedged" (silent) */
	uint64_t asked_ns;
};

/* -ENOENT: there is no such runtime folder, the stack is not up.  Stages that do not answer within
 * ASK_TIMEOUT_MS are no error. */
#define ASK_TIMEOUT_MS 2000
int stack_view_ask(struct stack_view *ret, const char *dir, struct error *err);
void stack_view_close(struct stack_view *view); /* of a zeroed one is fine */

/* The word for a stage's phase; "stalled" when it loads and has not moved for seconds. */
const char *stack_phase_word(const Hearth__State *state, uint64_t now_ns);
const char *stack_slice_word(Hearth__SliceState state);

/* The slices as far as any stage has brought them. */
struct slice_view {
	const char *name;
	Hearth__SliceState state;
	uint64_t bytes;
	uint64_t checksum; /* 0: none yet */
};
uint32_t stack_slices(const struct stack_view *view); /* how many */
struct slice_view stack_slice(const struct stack_view *view, uint32_t i);

/* The path of the model, or "". */
const char *stack_model(const struct stack_view *view);

/* `--dir D` and `--json`, and further flags of a command that takes no words; prints what is wrong.
 * 0 or an exit code. */
struct stack_options {
	const char *dir;
	bool json;
	bool watch;
	const char *svg, *trace; /* files to write; NULL: none */
};
int stack_options_parse(struct stack_options *ret, int argc, char **argv, const char *command);

#endif
