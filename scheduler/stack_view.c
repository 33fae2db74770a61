#include "scheduler/stack_view.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/options.h"

/* A loader reads a piece of some MiB between two moves: seconds without one are no slow drive. */
#define STALL_NS (3 * NS_PER_SECOND)

const char *const stage_names[N_STAGES] = { "loader", "pinner", "worker", "scheduler" };

const char *
stack_phase_word(const Hearth__State *state, uint64_t now_ns)
{
	switch (state->phase) {
	case HEARTH__PHASE__PHASE_STARTING:
		return "starting";
	case HEARTH__PHASE__PHASE_LOADING:
		return state->progress_ns && state->progress_ns + STALL_NS < now_ns ? "stalled"
										    : "loading";
	case HEARTH__PHASE__PHASE_READY:
		return "ready";
	case HEARTH__PHASE__PHASE_FAILED:
		return "failed";
	case HEARTH__PHASE__PHASE_LEAVING:
		return "leaving";
	default:
		return "unknown";
	}
}

const char *
stack_slice_word(Hearth__SliceState state)
{
	switch (state) {
	case HEARTH__SLICE_STATE__SLICE_FILLED:
		return "filled";
	case HEARTH__SLICE_STATE__SLICE_REGISTERED:
		return "registered";
	case HEARTH__SLICE_STATE__SLICE_READY:
		return "ready";
	default:
		return "reserved";
	}
}

/* "/run/user/1000/hearth-NAME", "/tmp/hearth-1000-NAME": what run.sh calls it. */
static void
stack_name(char *ret, size_t n, const char *dir)
{
	const char *slash = strrchr(dir, '/');
	const char *base = slash ? slash + 1 : dir;
	char prefix[32];

	snprintf(prefix, sizeof(prefix), "/tmp/hearth-%u-", (unsigned)getuid());
	if (strncmp(dir, prefix, strlen(prefix)) == 0)
		base = dir + strlen(prefix);
	else if (strncmp(base, "hearth-", 7) == 0)
		base += 7;
	snprintf(ret, n, "%s", base);
}

struct question {
	const char *dir;
	uint32_t stage;
	Hearth__State *state;
	const char *word;
};

static void *
stack_ask_one(void *arg)
{
	struct question *question = arg;
	const char *stage = stage_names[question->stage];
	char path[512];
	struct error err;
	int rc = board_ask(question->dir, stage, ASK_TIMEOUT_MS, &question->state, &err);

	if (rc == 0) {
		question->word = stack_phase_word(question->state, clock_ns());
		return NULL;
	}
	question->state = NULL;
	snprintf(path, sizeof(path), "%s/%s.state", question->dir, stage);
	if (rc == -ETIMEDOUT)
		question->word = "wedged";
	else
		question->word = access(path, F_OK) == 0 ? "crashed" : "stopped";
	return NULL;
}

int
stack_view_ask(struct stack_view *ret, const char *dir, struct error *err)
{
	struct question questions[N_STAGES];
	struct stack_view view = { .asked_ns = clock_ns() };
	pthread_t threads[N_STAGES];
	bool threaded[N_STAGES];
	struct stat stat_of;

	stack_name(view.name, sizeof(view.name), dir);
	if (stat(dir, &stat_of) < 0)
		return errno == ENOENT ? error_set(err, -ENOENT, "%s is not up", view.name)
				       : error_path(err, -errno, "%s", dir);
	for (uint32_t i = 0; i < N_STAGES; i++) {
		questions[i] = (struct question){ .dir = dir, .stage = i };
		threaded[i] = pthread_create(&threads[i], NULL, stack_ask_one, &questions[i]) == 0;
		if (!threaded[i])
			stack_ask_one(&questions[i]);
	}
	for (uint32_t i = 0; i < N_STAGES; i++) {
		if (threaded[i])
			pthread_join(threads[i], NULL);
		view.state[i] = questions[i].state;
		view.word[i] = questions[i].word;
	}
	*ret = view;
	return 0;
}

void
stack_view_close(struct stack_view *view)
{
	for (uint32_t i = 0; i < N_STAGES; i++) {
		if (view->state[i])
			hearth__state__free_unpacked(view->state[i], NULL);
		view->state[i] = NULL;
	}
}

uint32_t
stack_slices(const struct stack_view *view)
{
	size_t n = 0;

	for (uint32_t i = 0; i < N_STAGES; i++)
		if (view->state[i] && view->state[i]->n_slices > n)
			n = view->state[i]->n_slices;
	return (uint32_t)n;
}

struct slice_view
stack_slice(const struct stack_view *view, uint32_t i)
{
	struct slice_view merged = { .name = "" };

	for (uint32_t s = 0; s < N_STAGES; s++) {
		const Hearth__Slice *slice;

		if (!view->state[s] || i >= view->state[s]->n_slices)
			continue;
		slice = view->state[s]->slices[i];
		if (!merged.name[0])
			merged.name = slice->name;
		if (!merged.bytes)
			merged.bytes = slice->bytes;
		if (!merged.checksum)
			merged.checksum = slice->checksum;
		if (slice->state > merged.state)
			merged.state = slice->state;
	}
	return merged;
}

const char *
stack_model(const struct stack_view *view)
{
	for (uint32_t i = 0; i < N_STAGES; i++)
		if (view->state[i] && view->state[i]->model[0])
			return view->state[i]->model;
	return "";
}

int
stack_options_parse(struct stack_options *ret, int argc, char **argv, const char *command)
{
	struct stack_options options = { 0 };
	const struct option_def defs[] = {
		{ .name = "--dir", .kind = OPTION_TEXT, .to = &options.dir },
		{ .name = "--json", .kind = OPTION_FLAG, .to = &options.json },
		{ .name = "--watch", .kind = OPTION_FLAG, .to = &options.watch },
		{ .name = "--svg", .kind = OPTION_TEXT, .to = &options.svg },
		{ .name = "--trace", .kind = OPTION_TEXT, .to = &options.trace },
	};
	const char *of[] = { NULL, NULL, "status", "report",
			     "report" }; /* NULL: of every command */
	struct option_def own[sizeof(defs) / sizeof(*defs)];
	uint32_t n_words, n_defs = 0;
	struct error err;

	for (uint32_t i = 0; i < sizeof(defs) / sizeof(*defs); i++)
		if (!of[i] || strcmp(of[i], command) == 0)
			own[n_defs++] = defs[i];
	/* options_parse skips a first word: the command's own name. */
	if (options_parse(argc + 1, argv - 1, own, n_defs, NULL, 0, &n_words, &err) < 0) {
		log_error("%s: %s", command, err.text);
		return EXIT_INPUT;
	}
	if (!options.dir) {
		log_error("%s: wants --dir DIR, the runtime folder of a stack", command);
		return EXIT_INPUT;
	}
	*ret = options;
	return 0;
}
