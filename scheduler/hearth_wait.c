/* hearth wait: follows the four stages and shows how far each is, until the stack can answer;
 * leaves with 0 then, and with EXIT_SYSTEM when its stdin ends (the supervisor has given up) or a
 * signal comes before. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/service.h"
#include "scheduler/hearth.h"
#include "scheduler/progress.h"
#include "scheduler/stack_view.h"
#include "scheduler/stage_line.h"

struct wait {
	bool terminal;
	bool drawn;
	struct service service;
	struct watch *watches[N_STAGES];
	Hearth__State *states[N_STAGES];
	char said[N_STAGES][STAGE_LINE_BYTES]; /* elsewhere than on a terminal: the last words */
};

static void
wait_look(struct wait *wait)
{
	for (uint32_t i = 0; i < N_STAGES; i++) {
		if (wait->states[i])
			hearth__state__free_unpacked(wait->states[i], NULL);
		wait->states[i] = watch_get(wait->watches[i]);
	}
}

static bool
wait_done(const struct wait *wait)
{
	const Hearth__State *worker = wait->states[WORKER], *scheduler = wait->states[SCHEDULER];

	return worker && worker->phase == HEARTH__PHASE__PHASE_READY && scheduler &&
	       scheduler->phase == HEARTH__PHASE__PHASE_READY && scheduler->serving &&
	       scheduler->serving->worker_linked;
}

/* On a terminal four lines that are drawn over. */
static void
wait_draw(struct wait *wait)
{
	char line[STAGE_LINE_BYTES];
	uint64_t now = clock_ns();

	if (wait->drawn)
		printf("\033[%dA", N_STAGES);
	for (uint32_t i = 0; i < N_STAGES; i++) {
		const Hearth__State *state = wait->states[i];

		line[0] = '\0';
		if (state && !progress_bar(line, state, now))
			stage_line(line, state, now);
		printf("\r\033[K%-9s  %-8s  %.100s\n", stage_names[i],
		       state ? stack_phase_word(state, now) : "-", line);
	}
	fflush(stdout);
	wait->drawn = true;
}

/* Elsewhere one line for each change of phase, or of the reason why nothing gets on. */
static void
wait_say(struct wait *wait)
{
	char words[STAGE_LINE_BYTES], line[STAGE_LINE_BYTES];
	uint64_t now = clock_ns();

	for (uint32_t i = 0; i < N_STAGES; i++) {
		const Hearth__State *state = wait->states[i];

		if (!state)
			continue;
		snprintf(words, sizeof(words), "%s %.480s", stack_phase_word(state, now),
			 state->phase == HEARTH__PHASE__PHASE_LOADING ? "" : state->reason);
		if (strcmp(words, wait->said[i]) == 0)
			continue;
		memcpy(wait->said[i], words, sizeof(words));
		stage_line(line, state, now);
		printf("%-9s  %-*s%s\n", stage_names[i], line[0] ? 10 : 0,
		       stack_phase_word(state, now), line);
	}
	fflush(stdout);
}

static int
wait_open(struct wait *wait, const char *dir, struct error *err)
{
	int rc = service_open(&wait->service, "hearth", err);

	for (uint32_t i = 0; rc == 0 && i < N_STAGES; i++)
		rc = watch_open(&wait->watches[i], dir, stage_names[i], &wait->service, err);
	return rc;
}

static void
wait_close(struct wait *wait)
{
	service_watchdog();
	for (uint32_t i = 0; i < N_STAGES; i++) {
		watch_close(wait->watches[i]);
		if (wait->states[i])
			hearth__state__free_unpacked(wait->states[i], NULL);
	}
	if (wait->service.stage)
		service_close(&wait->service);
}

int
hearth_wait(int argc, char **argv)
{
	struct wait wait = { .terminal = isatty(STDOUT_FILENO) };
	struct stack_options options;
	struct error err;
	uint64_t seen = 0;
	bool going = true;
	int rc = stack_options_parse(&options, argc, argv, "wait");

	if (rc != 0)
		return rc;
	rc = wait_open(&wait, options.dir, &err);
	if (rc < 0)
		log_error("wait: %s", err.text);
	while (rc == 0 && going) {
		wait_look(&wait);
		if (wait.terminal)
			wait_draw(&wait);
		else
			wait_say(&wait);
		if (wait_done(&wait))
			break;
		going = service_wait(&wait.service, &seen, 0);
	}
	fflush(stdout);
	wait_close(&wait);
	if (rc < 0)
		return error_exit_code(rc);
	return going ? 0 : EXIT_SYSTEM;
}
