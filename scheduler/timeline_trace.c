/* A timeline in the Trace Event format (the JSON that Perfetto and chrome://tracing open): a
 * process a stage, a thread a slice, times in microseconds. */
#include <jansson.h>

#include "scheduler/timeline.h"

/* Spans of a slice belong to the stage that did the work. */
static const enum stage_index kind_stages[N_SPAN_KINDS] = { LOADER, LOADER, PINNER, PINNER,
							    WORKER };

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
	uint32_t stage = span->kind == SPAN_STAGE ? span->row : kind_stages[span->kind];
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

void
timeline_write_trace(const struct timeline *timeline, const struct stack_view *view, FILE *file)
{
	json_t *events = json_array(), *trace;

	trace_names(events, timeline);
	for (uint32_t i = 0; i < timeline->n_spans; i++)
		json_array_append_new(events, trace_span(timeline, &timeline->spans[i]));
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
