/* A timeline in the Trace Event format (the JSON that Perfetto and chrome://tracing open): a
 * process a stage, a thread a slice, times in microseconds. */
#include <jansson.h>

#include "scheduler/timeline.h"

static double
trace_us(const struct timeline *timeline, uint64_t at_ns)
{
	return (double)(at_ns - timeline->from_ns) / 1e3;
}

static void
trace_names(json_t *events, const struct timeline *timeline)
{
	for (uint32_t stage = 0; stage < N_STAGES; stage++) {
		json_array_append_new(events, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M",
							"name", "process_name", "pid", (int)stage,
							"args", "name", stage_names[stage]));
		for (uint32_t row = N_STAGES; row < timeline->n_rows && stage <= PINNER; row++)
			json_array_append_new(
			    events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name",
					      "thread_name", "pid", (int)stage, "tid", (int)row,
					      "args", "name", timeline->rows[row]));
	}
}

static json_t *
trace_span(const struct timeline *timeline, const struct span *span)
{
	enum stage_index stage = timeline_stage(span->kind, span->row);
	double us = (double)(span->end_ns - span->begin_ns) / 1e3;
	json_t *args = json_object();

	if (span->bytes) {
		json_object_set_new(args, "bytes", json_integer((json_int_t)span->bytes));
		json_object_set_new(args, "GB/s", json_real((double)span->bytes / us / 1e3));
	}
	return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "ph", "X", "name",
			 span_kind_names[span->kind], "cat", span_kind_names[span->kind], "pid",
			 (int)stage, "tid", (int)(span->row < N_STAGES ? 0 : span->row), "ts",
			 trace_us(timeline, span->begin_ns), "dur", us, "args", args);
}

/* A stage that was restarted since, at its own time. */
static void
trace_restart(json_t *events, const struct timeline *timeline, const Hearth__State *state,
	      uint32_t stage)
{
	double us = state->ready_ns ? (double)(state->ready_ns - state->since_ns) / 1e3 : 0;

	json_array_append_new(events,
			      json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:I}}", "ph", "X",
					"name", "restarted", "cat", "restarted", "pid", (int)stage,
					"tid", 0, "ts", trace_us(timeline, state->since_ns), "dur",
					us, "args", "times", (json_int_t)state->restarts));
}

void
timeline_write_trace(const struct timeline *timeline, const struct stack_view *view, FILE *file)
{
	json_t *events = json_array(), *trace;

	trace_names(events, timeline);
	for (uint32_t i = 0; i < timeline->n_spans; i++)
		json_array_append_new(events, trace_span(timeline, &timeline->spans[i]));
	for (uint32_t i = 0; i < N_STAGES; i++)
		if (timeline->story.part[i] == STORY_RESTARTED)
			trace_restart(events, timeline, view->state[i], i);
	for (uint32_t i = 0; i < timeline->n_marks; i++)
		json_array_append_new(
		    events, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f}", "ph", "i", "s", "g", "name",
				      timeline->marks[i].name, "pid", (int)SCHEDULER, "tid", 0,
				      "ts", trace_us(timeline, timeline->marks[i].at_ns)));
	trace = json_pack("{s:o, s:s, s:{s:s, s:s}}", "traceEvents", events, "displayTimeUnit",
			  "ms", "otherData", "stack", view->name, "model", stack_model(view));
	json_dumpf(trace, file, JSON_INDENT(1));
	fputc('\n', file);
	json_decref(trace);
}
