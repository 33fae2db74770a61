/* scheduler: gets requests from clients on `front` and tokens from the worker on `work`, gives each
 * what the other has; leaves when it is told to, or when the loader comes back with another model.
 */
#include <errno.h>
#include <inttypes.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"
#include "common/service.h"
#include "proto/limits.h"
#include "scheduler/away.h"
#include "scheduler/front.h"
#include "scheduler/serving.h"
#include "scheduler/source.h"
#include "scheduler/work.h"

#define MAX_QUEUE_LIMIT 65536u /* each waiting request may hold a prompt of megabytes */

struct scheduler {
	struct service service;
	struct board *board;
	struct serving serving;
	struct server *front;
	struct watch *watches[N_STAGES]; /* of the others; the scheduler's own is NULL */
	uint64_t restarts;               /* of this stage, so far */
	uint64_t stamp; /* of the model that the tokenizer is of; valid once decided */
	bool decided;
};

static bool
names_arena(const Hearth__State *state)
{
	return state && state->arena && state->arena->path[0];
}

/* From the board of the loader, or of the pinner while the loader stays away. */
static void
scheduler_decide(struct scheduler *scheduler, const Hearth__State *from)
{
	struct tokenizer *tokenizer = NULL;
	struct error note = { "" }, err;
	Hearth__State *state;

	if (source_read(from, &tokenizer, &note, &err) < 0) {
		log_warn("%s: waiting for the loader to name it again", err.text);
		return;
	}
	if (tokenizer)
		error_set(&note, 0, "%s, %" PRIu32 " tokens", tokenizer_name(tokenizer),
			  tokenizer_vocabulary(tokenizer));
	scheduler->stamp = from->arena->stamp;
	scheduler->decided = true;
	state = board_edit(scheduler->board);
	board_text(&state->model, "%s", from->model);
	board_text(&state->model_name, "%s", from->model_name);
	board_publish(scheduler->board);
	log_info("tokenizer: %s", note.text);
	serving_decide(&scheduler->serving, tokenizer, note.text);
	service_ready(&scheduler->service);
}

/* Looks at the boards of the others.  False: the loader has another model now. */
static bool
scheduler_follow(struct scheduler *scheduler)
{
	Hearth__State *states[N_STAGES] = { NULL };
	const Hearth__State *from;
	struct error why = { "" };
	bool same = true;

	for (uint32_t i = 0; i < SCHEDULER; i++)
		states[i] = watch_get(scheduler->watches[i]);
	from = names_arena(states[LOADER]) ? states[LOADER] : states[PINNER];
	if (names_arena(from)) {
		if (!scheduler->decided)
			scheduler_decide(scheduler, from);
		else
			same = from->arena->stamp == scheduler->stamp;
	}
	away_find(states, &why);
	serving_away(&scheduler->serving, why.text);
	for (uint32_t i = 0; i < SCHEDULER; i++)
		if (states[i])
			hearth__state__free_unpacked(states[i], NULL);
	return same;
}

static int
scheduler_open(struct scheduler *scheduler, const char *dir, uint32_t queue_limit,
	       struct error *err)
{
	int code = board_open(&scheduler->board, dir, "scheduler", err);

	if (code == 0)
		board_restarts(scheduler->board, scheduler->restarts);
	if (code == 0)
		code = serving_open(&scheduler->serving, &scheduler->service, scheduler->board,
				    queue_limit, err);
	if (code == 0)
		code = work_open(&scheduler->serving, dir, err);
	if (code == 0)
		code = front_open(&scheduler->front, &scheduler->serving, dir, err);
	for (uint32_t i = 0; i < SCHEDULER && code == 0; i++)
		code = watch_open(&scheduler->watches[i], dir, stage_names[i], &scheduler->service,
				  err);
	return code;
}

/* Gives why it ended. */
static const char *
scheduler_run(struct scheduler *scheduler)
{
	uint64_t seen = 0, deadline = 0;

	do {
		if (!scheduler_follow(scheduler)) {
			log_info("the loader has another model: leaving, to start anew");
			return "the loader has another model";
		}
		if (serving_has_answered(&scheduler->serving))
			service_served(&scheduler->service);
		deadline = front_expire(&scheduler->serving, clock_ns());
	} while (service_wait(&scheduler->service, &seen, deadline));
	return "told to leave";
}

static void
scheduler_close(struct scheduler *scheduler)
{
	service_watchdog();
	for (uint32_t i = 0; i < SCHEDULER; i++)
		watch_close(scheduler->watches[i]);
	server_close(scheduler->front);
	work_close(&scheduler->serving);
	if (scheduler->serving.service)
		serving_close(&scheduler->serving);
	board_close(scheduler->board);
	service_close(&scheduler->service);
}

int
main(int argc, char **argv)
{
	static struct scheduler scheduler;
	const char *dir = NULL;
	uint64_t queue_limit = DEFAULT_QUEUE_LIMIT;
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &dir },
		{ .name = "--restarts",
		  .kind = OPTION_U64,
		  .to = &scheduler.restarts,
		  .max = UINT64_MAX },
		{ .name = "--queue",
		  .kind = OPTION_U64,
		  .to = &queue_limit,
		  .min = 1,
		  .max = MAX_QUEUE_LIMIT },
	};
	struct error err;
	uint32_t n_words;
	int code;

	log_open("scheduler");
	code = options_parse(argc, argv, defs, sizeof(defs) / sizeof(defs[0]), NULL, 0, &n_words,
			     &err);
	if (code == 0 && !dir)
		code = error_set(&err, -EINVAL, "--dir DIR is missing: the stack's runtime folder");
	if (code < 0) {
		log_error("%s", err.text);
		return error_exit_code(code);
	}
	code = service_open(&scheduler.service, "scheduler", &err);
	if (code < 0) {
		log_error("%s", err.text);
		return error_exit_code(code);
	}
	code = scheduler_open(&scheduler, dir, (uint32_t)queue_limit, &err);
	if (code < 0)
		log_error("%s", err.text);
	else
		board_phase(scheduler.board, HEARTH__PHASE__PHASE_LEAVING, "%s",
			    scheduler_run(&scheduler));
	scheduler_close(&scheduler);
	return code < 0 ? error_exit_code(code) : 0;
}
