/* hearth status: what every stage is doing, once or (--watch) every second until interrupted. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "scheduler/hearth.h"
#include "scheduler/output.h"
#include "scheduler/stack_json.h"
#include "scheduler/stack_view.h"
#include "scheduler/stage_line.h"

static void
status_stage(const struct stack_view *view, uint32_t i)
{
	const Hearth__State *state = view->state[i];
	char line[STAGE_LINE_BYTES], since[32] = "";
	time_t start;
	struct tm local;

	if (!state) {
		printf("%-9s  %s\n", stage_names[i], view->word[i]);
		return;
	}
	start = (time_t)state->since_unix;
	if (localtime_r(&start, &local))
		strftime(since, sizeof(since), "%H:%M:%S", &local);
	stage_line(line, state, view->asked_ns);
	printf("%-9s  %-8s  %7" PRIu32 "  %-8s  %s\n", stage_names[i], view->word[i], state->pid,
	       since, line);
}

static void
status_table(const struct stack_view *view)
{
	char bytes[16];

	printf("%s: %s\n\n", view->name,
	       stack_model(view)[0] ? stack_model(view) : "(no model yet)");
	printf("%-9s  %-8s  %7s  %s\n", "STAGE", "STATE", "PID", "SINCE");
	for (uint32_t i = 0; i < N_STAGES; i++)
		status_stage(view, i);
	if (stack_slices(view))
		printf("\n%-12s  %-10s  %10s  %s\n", "SLICE", "STATE", "BYTES", "CHECKSUM");
	for (uint32_t i = 0; i < stack_slices(view); i++) {
		struct slice_view slice = stack_slice(view, i);

		stage_bytes(bytes, slice.bytes);
		printf("%-12s  %-10s  %10s  ", slice.name, stack_slice_word(slice.state), bytes);
		if (slice.checksum)
			printf("%016" PRIx64 "\n", slice.checksum);
		else
			printf("-\n");
	}
}

static int
status_once(const struct stack_options *options)
{
	struct stack_view view = { 0 };
	struct error err;
	json_t *json;
	int rc = stack_view_ask(&view, options->dir, &err);

	if (rc < 0) {
		log_error("%s", err.text);
		return error_exit_code(rc);
	}
	if (options->json) {
		json = stack_json(&view);
		json_dumpf(json, stdout, options->watch ? JSON_COMPACT : JSON_INDENT(1));
		putchar('\n');
		json_decref(json);
	} else {
		status_table(&view);
	}
	stack_view_close(&view);
	return output_end("status");
}

/* Shows it again each second; a signal ends the wait between two. */
static int
status_watch(const struct stack_options *options)
{
	const struct timespec second = { .tv_sec = 1 };
	sigset_t stop;
	int rc;

	sigemptyset(&stop);
	sigaddset(&stop, SIGINT);
	sigaddset(&stop, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &stop, NULL);
	do {
		if (!options->json && isatty(STDOUT_FILENO))
			printf("\033[H\033[J");
		rc = status_once(options);
		if (rc != 0)
			return rc;
	} while (sigtimedwait(&stop, NULL, &second) < 0);
	return 0;
}

int
hearth_status(int argc, char **argv)
{
	struct stack_options options;
	int rc = stack_options_parse(&options, argc, argv, "status");

	if (rc != 0)
		return rc;
	return options.watch ? status_watch(&options) : status_once(&options);
}
