/* hearth report: the last start (story.h), stage by stage and layer by layer, in seconds from its
 * begin; as a table, JSON, a picture or a trace. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/beside.h"
#include "common/log.h"
#include "scheduler/hearth.h"
#include "scheduler/output.h"
#include "scheduler/stack_json.h"
#include "scheduler/stack_view.h"
#include "scheduler/stage_line.h"
#include "scheduler/story.h"
#include "scheduler/timeline.h"

/* Seconds from `from`, or "-". */
static const char *
report_time(char ret[16], uint64_t from, uint64_t at)
{
	if (!at)
		snprintf(ret, 16, "-");
	else
		snprintf(ret, 16, "%.3f", ((double)at - (double)from) / 1e9);
	return ret;
}

/* Of a stage's work: "-" where it was done in another life. */
static const char *
report_moment(char ret[16], const struct story *story, enum stage_index stage, uint64_t at)
{
	return report_time(ret, story->from, story_time(story, stage, at));
}

static json_t *
report_json_time(uint64_t from, uint64_t at)
{
	return at ? json_real(((double)at - (double)from) / 1e9) : json_null();
}

static json_t *
report_json_moment(const struct story *story, enum stage_index stage, uint64_t at)
{
	return report_json_time(story->from, story_time(story, stage, at));
}

static const Hearth__Slice *
report_slice(const Hearth__State *state, uint32_t i)
{
	return state && i < state->n_slices ? state->slices[i] : NULL;
}

static double
report_rate(const Hearth__Slice *slice)
{
	double seconds = stage_seconds(slice->begin_ns, slice->end_ns);

	return seconds > 0 ? (double)slice->bytes / seconds / 1e9 : 0;
}

static void
report_layers(const struct stack_view *view, const struct story *story)
{
	printf("\n%-12s  %10s  %8s %8s %7s  %8s %8s  %s\n", "LAYER", "BYTES", "READ", "TO", "GB/s",
	       "REGISTER", "TO", "CHECKSUM");
	for (uint32_t i = 0; i < stack_slices(view); i++) {
		const Hearth__Slice *read = report_slice(view->state[LOADER], i);
		const Hearth__Slice *pinned = report_slice(view->state[PINNER], i);
		struct slice_view slice = stack_slice(view, i);
		char bytes[16], t[4][16], rate[16] = "-";

		stage_bytes(bytes, slice.bytes);
		if (read && report_rate(read) > 0)
			snprintf(rate, sizeof(rate), "%.2f", report_rate(read));
		printf("%-12s  %10s  %8s %8s %7s  %8s %8s  %016" PRIx64 "%s%s\n", slice.name, bytes,
		       report_moment(t[0], story, LOADER, read ? read->begin_ns : 0),
		       report_moment(t[1], story, LOADER, read ? read->end_ns : 0), rate,
		       report_moment(t[2], story, PINNER, pinned ? pinned->begin_ns : 0),
		       report_moment(t[3], story, PINNER, pinned ? pinned->end_ns : 0),
		       slice.checksum, pinned && pinned->note[0] ? "  " : "",
		       pinned ? pinned->note : "");
	}
}

static void
report_demand(const Hearth__Reader *reader)
{
	char bytes[16];

	if (reader->demand_requests == 0)
		return;
	stage_bytes(bytes, reader->demand_bytes);
	printf("\ndemand: %" PRIu64 " requests waited %.3f s; %s of the load went first for them\n",
	       reader->demand_requests, (double)reader->demand_wait_ns / 1e9, bytes);
	if (reader->outside_experts == 0)
		return;
	stage_bytes(bytes, reader->outside_bytes);
	printf("outside the budget: %" PRIu64 " experts brought, %" PRIu64
	       " found where they had been brought; %" PRIu64 " matrices in %" PRIu64
	       " reads, %s with what lay between\n",
	       reader->outside_experts, reader->outside_hits, reader->outside_windows,
	       reader->outside_reads, bytes);
}

/* What is too long for the loader's line: how the reader was chosen, what would give better pages.
 */
static void
report_reasons(const Hearth__State *loader)
{
	if (loader->reader && loader->reader->reason[0])
		printf("\nreader: %s\n", loader->reader->reason);
	if (loader->pages && loader->pages->advice[0])
		printf("pages: %s\n", loader->pages->advice);
	if (loader->pages && loader->pages->numa_note[0])
		printf("memory: %s\n", loader->pages->numa_note);
	if (loader->reader)
		report_demand(loader->reader);
}

static void
report_stage(const struct stack_view *view, const struct story *story, uint32_t i)
{
	const Hearth__State *state = view->state[i];
	char line[STAGE_LINE_BYTES], begin[16], ready[16], restarts[48] = "";
	enum story_part part = story->part[i];

	if (part == STORY_AWAY) {
		printf("%-9s  %8s %8s  %s%s%s\n", stage_names[i], "-", "-", view->word[i],
		       state ? ": " : "", state ? state->reason : "");
		return;
	}
	if (state->restarts)
		snprintf(restarts, sizeof(restarts), "restarted %" PRIu64 " time%s, ",
			 state->restarts, state->restarts == 1 ? "" : "s");
	stage_line(line, state, view->asked_ns);
	printf("%-9s  %8s %8s  %s%s\n", stage_names[i],
	       part == STORY_BEFORE ? "before" : report_time(begin, story->from, state->since_ns),
	       part == STORY_BEFORE ? report_moment(ready, story, i, state->ready_ns)
				    : report_time(ready, story->from, state->ready_ns),
	       restarts, line);
}

static void
report_table(const struct stack_view *view)
{
	struct story story = story_tell(view);
	char t[4][16];

	printf("%s: %s\n\n%-9s  %8s %8s\n", view->name, stack_model(view), "STAGE", "BEGIN",
	       "READY");
	for (uint32_t i = 0; i < N_STAGES; i++)
		report_stage(view, &story, i);
	if (stack_slices(view))
		report_layers(view, &story);
	if (view->state[LOADER])
		report_reasons(view->state[LOADER]);
	printf("\nseconds to arena loaded %s, able to answer %s, first token %s, 16 tokens %s\n",
	       report_time(t[0], story.from, story.loaded),
	       report_time(t[1], story.from, story.answers),
	       report_time(t[2], story.from, story.first_token),
	       report_time(t[3], story.from, story.sixteenth_token));
}

static json_t *
report_json_layer(const struct stack_view *view, const struct story *story, uint32_t i)
{
	const Hearth__Slice *read = report_slice(view->state[LOADER], i);
	const Hearth__Slice *pinned = report_slice(view->state[PINNER], i);
	struct slice_view slice = stack_slice(view, i);

	return json_pack("{s:s, s:I, s:o, s:o, s:f, s:o, s:o, s:s, s:o?}", "name", slice.name,
			 "bytes", (json_int_t)slice.bytes, "read_begin",
			 report_json_moment(story, LOADER, read ? read->begin_ns : 0), "read_end",
			 report_json_moment(story, LOADER, read ? read->end_ns : 0),
			 "gb_per_second", read ? report_rate(read) : 0.0, "register_begin",
			 report_json_moment(story, PINNER, pinned ? pinned->begin_ns : 0),
			 "register_end",
			 report_json_moment(story, PINNER, pinned ? pinned->end_ns : 0), "note",
			 pinned ? pinned->note : "", "checksum",
			 slice.checksum ? stack_json_hex(slice.checksum) : NULL);
}

/* Its part in the story, and when it began and was ready. */
static void
report_json_stage(json_t *stage, const Hearth__State *state, const struct story *story, uint32_t i)
{
	enum story_part part = story->part[i];
	uint64_t begin = 0, ready = 0;

	if (state && (part == STORY_START || part == STORY_RESTARTED)) {
		begin = state->since_ns;
		ready = state->ready_ns;
	} else if (state && part == STORY_BEFORE) {
		ready = story_time(story, i, state->ready_ns);
	}
	json_object_set_new(stage, "part", json_string(story_part_names[part]));
	json_object_set_new(stage, "begin", report_json_time(story->from, begin));
	json_object_set_new(stage, "ready", report_json_time(story->from, ready));
}

/* The stages as `status` gives them, with part, begin and ready; and the layers, and the moments.
 */
static json_t *
report_json(const struct stack_view *view)
{
	struct story story = story_tell(view);
	json_t *report = stack_json(view), *layers = json_array();

	for (uint32_t i = 0; i < N_STAGES; i++)
		report_json_stage(
		    json_object_get(json_object_get(report, "stages"), stage_names[i]),
		    view->state[i], &story, i);
	for (uint32_t i = 0; i < stack_slices(view); i++)
		json_array_append_new(layers, report_json_layer(view, &story, i));
	json_object_del(report, "slices");
	json_object_set_new(report, "layers", layers);
	json_object_set_new(report, "seconds",
			    json_pack("{s:o, s:o, s:o, s:o}", "arena_loaded",
				      report_json_time(story.from, story.loaded), "able_to_answer",
				      report_json_time(story.from, story.answers), "first_token",
				      report_json_time(story.from, story.first_token),
				      "sixteen_tokens",
				      report_json_time(story.from, story.sixteenth_token)));
	return report;
}

static int
report_file(const struct stack_view *view, const char *path,
	    void (*write)(const struct timeline *, const struct stack_view *, FILE *),
	    struct error *err)
{
	struct timeline timeline;
	struct beside beside;
	int rc = timeline_open(&timeline, view, err);

	if (rc < 0)
		return rc;
	rc = beside_open(&beside, path, err);
	if (rc == 0) {
		write(&timeline, view, beside.file);
		rc = beside_close(&beside, err);
	}
	timeline_close(&timeline);
	return rc;
}

static void
report_print(const struct stack_view *view, bool json)
{
	json_t *report;

	if (!json) {
		report_table(view);
		return;
	}
	report = report_json(view);
	json_dumpf(report, stdout, JSON_INDENT(1));
	putchar('\n');
	json_decref(report);
}

int
hearth_report(int argc, char **argv)
{
	struct stack_options options;
	struct stack_view view = { 0 };
	struct error err;
	int rc = stack_options_parse(&options, argc, argv, "report");

	if (rc != 0)
		return rc;
	rc = stack_view_ask(&view, options.dir, &err);
	if (rc == 0 && options.svg)
		rc = report_file(&view, options.svg, timeline_write_svg, &err);
	if (rc == 0 && options.trace)
		rc = report_file(&view, options.trace, timeline_write_trace, &err);
	if (rc == 0 && !options.svg && !options.trace)
		report_print(&view, options.json);
	stack_view_close(&view);
	if (rc < 0) {
		log_error("%s", err.text);
		return error_exit_code(rc);
	}
	return output_end("report");
}
