#include "scheduler/timeline.h"

#include <errno.h>
#include <stdlib.h>

const char *const span_kind_names[N_SPAN_KINDS] = { "stage", "read", "register", "upload",
						    "attach" };

/* Spans of a slice belong to the stage that did the work. */
enum stage_index
timeline_stage(enum span_kind kind, uint32_t row)
{
	static const enum stage_index stages[N_SPAN_KINDS] = { LOADER, LOADER, PINNER, PINNER,
							       WORKER };

	return kind == SPAN_STAGE ? (enum stage_index)row : stages[kind];
}

/* What began before the start is cut to it; what has no end, or ended before, is not of this start,
 * and neither is what a stage did that was restarted since. */
static void
timeline_add(struct timeline *timeline, enum span_kind kind, uint32_t row, uint64_t begin_ns,
	     uint64_t end_ns, uint64_t bytes)
{
	enum stage_index stage = timeline_stage(kind, row);

	if (begin_ns == 0 || end_ns <= begin_ns || !story_time(&timeline->story, stage, end_ns))
		return;
	if (begin_ns < timeline->from_ns)
		begin_ns = timeline->from_ns;
	timeline->spans[timeline->n_spans++] = (struct span){ kind, row, begin_ns, end_ns, bytes };
	if (end_ns > timeline->to_ns)
		timeline->to_ns = end_ns;
}

static void
timeline_mark(struct timeline *timeline, const char *name, uint64_t at_ns)
{
	if (at_ns < timeline->from_ns)
		return;
	timeline->marks[timeline->n_marks++] = (struct mark){ name, at_ns };
	if (at_ns > timeline->to_ns)
		timeline->to_ns = at_ns;
}

static void
timeline_add_slices(struct timeline *timeline, const Hearth__State *state, enum span_kind kind)
{
	for (uint32_t i = 0; state && i < state->n_slices && N_STAGES + i < timeline->n_rows; i++)
		timeline_add(timeline, kind, N_STAGES + i, state->slices[i]->begin_ns,
			     state->slices[i]->end_ns, state->slices[i]->bytes);
}

static void
timeline_fill(struct timeline *timeline, const struct stack_view *view)
{
	const Hearth__State *pinner = view->state[PINNER], *worker = view->state[WORKER];
	const struct story *story = &timeline->story;

	for (uint32_t i = 0; i < N_STAGES; i++) {
		timeline->rows[i] = stage_names[i];
		if (view->state[i])
			timeline_add(timeline, SPAN_STAGE, i, view->state[i]->since_ns,
				     view->state[i]->ready_ns, 0);
	}
	for (uint32_t i = N_STAGES; i < timeline->n_rows; i++)
		timeline->rows[i] = stack_slice(view, i - N_STAGES).name;
	timeline_add_slices(timeline, view->state[LOADER], SPAN_READ);
	timeline_add_slices(timeline, pinner, SPAN_REGISTER);
	if (pinner && pinner->pinning && timeline->n_rows > N_STAGES)
		timeline_add(timeline, SPAN_UPLOAD, N_STAGES, pinner->pinning->upload_begin_ns,
			     pinner->pinning->upload_end_ns, pinner->pinning->uploaded_bytes);
	if (worker && worker->computing)
		timeline_add(timeline, SPAN_ATTACH, WORKER, worker->computing->attach_begin_ns,
			     worker->computing->attach_end_ns, 0);
	timeline_mark(timeline, "arena loaded", story->loaded);
	timeline_mark(timeline, "able to answer", story->answers);
	timeline_mark(timeline, "first token", story->first_token);
	timeline_mark(timeline, "16 tokens", story->sixteenth_token);
}

int
timeline_open(struct timeline *ret, const struct stack_view *view, struct error *err)
{
	struct timeline timeline = { .story = story_tell(view) };
	uint32_t n_slices = stack_slices(view);

	timeline.from_ns = timeline.story.from;
	if (timeline.from_ns == 0)
		return error_set(err, -ENODATA, "%s: no stage tells of its start", view->name);
	timeline.to_ns = timeline.from_ns + 1;
	timeline.n_rows = N_STAGES + n_slices;
	timeline.rows = calloc(timeline.n_rows, sizeof(*timeline.rows));
	timeline.spans = calloc(N_STAGES + 2 * n_slices + 2, sizeof(*timeline.spans));
	if (!timeline.rows || !timeline.spans) {
		timeline_close(&timeline);
		return error_set(err, -ENOMEM, "%s: no memory for its timeline", view->name);
	}
	timeline_fill(&timeline, view);
	*ret = timeline;
	return 0;
}

void
timeline_close(struct timeline *timeline)
{
	free(timeline->rows);
	free(timeline->spans);
	*timeline = (struct timeline){ 0 };
}
