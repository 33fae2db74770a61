#include "scheduler/story.h"

const char *const story_part_names[] = { "start", "before", "restarted", "away" };

/* Where the loader is away, whoever has been there longest. */
static uint64_t
story_begin(const struct stack_view *view)
{
	const Hearth__State *loader = view->state[LOADER];
	bool told = loader && !loader->stays_away;
	uint64_t from = told ? loader->since_ns : 0;

	for (uint32_t i = 0; i < N_STAGES; i++) {
		const Hearth__State *state = view->state[i];

		if (!state || (told && (loader->restarts || state->restarts)))
			continue;
		if (from == 0 || state->since_ns < from)
			from = state->since_ns;
	}
	return from;
}

/* When every slice was in place. */
static uint64_t
story_loaded(const Hearth__State *loader)
{
	uint64_t loaded = loader->reader ? loader->reader->end_ns : 0;

	if (!loaded)
		return loader->ready_ns;
	for (size_t i = 0; i < loader->n_slices; i++)
		if (loader->slices[i]->end_ns > loaded)
			loaded = loader->slices[i]->end_ns;
	return loaded;
}

static enum story_part
story_part_of(const struct stack_view *view, const struct story *story, uint32_t stage)
{
	const Hearth__State *state = view->state[stage];

	if (!state || state->stays_away)
		return STORY_AWAY;
	if (stage == LOADER)
		return STORY_START;
	if (state->since_ns < story->from)
		return STORY_BEFORE;
	return state->restarts ? STORY_RESTARTED : STORY_START;
}

uint64_t
story_time(const struct story *story, enum stage_index stage, uint64_t at_ns)
{
	bool ours = story->part[stage] == STORY_START || story->part[stage] == STORY_BEFORE;

	return ours && at_ns >= story->from ? at_ns : 0;
}

struct story
story_tell(const struct stack_view *view)
{
	const Hearth__State *loader = view->state[LOADER], *scheduler = view->state[SCHEDULER];
	struct story story = { .from = story_begin(view) };
	uint64_t worker_ready = 0, scheduler_ready = 0;

	for (uint32_t i = 0; i < N_STAGES; i++)
		story.part[i] = story_part_of(view, &story, i);
	if (loader)
		story.loaded = story_time(&story, LOADER, story_loaded(loader));
	if (view->state[WORKER])
		worker_ready = story_time(&story, WORKER, view->state[WORKER]->ready_ns);
	if (scheduler)
		scheduler_ready = story_time(&story, SCHEDULER, scheduler->ready_ns);
	if (worker_ready && scheduler_ready)
		story.answers = worker_ready > scheduler_ready ? worker_ready : scheduler_ready;
	if (scheduler && scheduler->serving) {
		story.first_token =
		    story_time(&story, SCHEDULER, scheduler->serving->first_token_ns);
		story.sixteenth_token =
		    story_time(&story, SCHEDULER, scheduler->serving->sixteenth_token_ns);
	}
	return story;
}
