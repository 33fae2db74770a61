/* A timeline as a picture: one row a stage and a slice, seconds to the right. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "scheduler/stage_line.h"
#include "scheduler/timeline.h"

#define WIDTH 1000.0
#define LEFT 110.0 /* of the first second */
#define RIGHT 60.0 /* room behind the last one */
#define TOP 96.0   /* of the first row */
#define STAGE_ROW 20.0
#define SLICE_ROW 14.0
#define BAR_INSET 2.0

static const char *const kind_colours[N_SPAN_KINDS] = { "#c9ced6", "#2f6fb5", "#e08a1e", "#3c9a5f",
							"#8d6cc0" };
static const char *const kind_words[N_SPAN_KINDS] = { "process to ready", "read", "registered",
						      "uploaded", "attached" };

static double
svg_x(const struct timeline *timeline, uint64_t at_ns)
{
	return LEFT + (double)(at_ns - timeline->from_ns) /
			  (double)(timeline->to_ns - timeline->from_ns) * (WIDTH - LEFT - RIGHT);
}

static double
svg_y(uint32_t row)
{
	if (row < N_STAGES)
		return TOP + row * STAGE_ROW;
	return TOP + N_STAGES * STAGE_ROW + 8 + (row - N_STAGES) * SLICE_ROW;
}

static double
svg_row_height(uint32_t row)
{
	return row < N_STAGES ? STAGE_ROW : SLICE_ROW;
}

/* Text between tags: a model's name may hold anything. */
static void
svg_text(FILE *file, const char *text)
{
	for (; *text; text++) {
		if (*text == '<' || *text == '>' || *text == '&' || *text == '"')
			fprintf(file, "&#%d;", *text);
		else if ((unsigned char)*text >= ' ')
			fputc(*text, file);
	}
}

/* 1, 2 or 5 times a power of ten, so that 5 to 12 lines are drawn. */
static double
svg_step(double seconds)
{
	double step = pow(10, floor(log10(seconds / 5)));

	if (seconds / step > 25)
		return 5 * step;
	return seconds / step > 12 ? 2 * step : step;
}

static void
svg_axis(const struct timeline *timeline, double bottom, FILE *file)
{
	double seconds = (double)(timeline->to_ns - timeline->from_ns) / 1e9;
	double step = svg_step(seconds);

	for (uint32_t i = 0; i * step <= seconds; i++) {
		double x = LEFT + i * step / seconds * (WIDTH - LEFT - RIGHT);

		fprintf(
		    file,
		    "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e7eb\"/>\n"
		    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" fill=\"#667\">%g "
		    "s</text>\n",
		    x, TOP - 6, x, bottom, x, bottom + 14, i * step);
	}
}

static void
svg_rows(const struct timeline *timeline, FILE *file)
{
	for (uint32_t i = 0; i < timeline->n_rows; i++) {
		fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8,
			svg_y(i) + svg_row_height(i) / 2 + 4);
		svg_text(file, timeline->rows[i]);
		fputs("</text>\n", file);
	}
}

/* What happened to a stage beside this start, in the place of its bar. */
static void
svg_note(const struct timeline *timeline, const Hearth__State *state, uint32_t row, FILE *file)
{
	enum story_part part = timeline->story.part[row];

	if (part == STORY_START ||
	    (part == STORY_BEFORE && story_time(&timeline->story, row, state->ready_ns)))
		return;
	fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#667\">", LEFT + 4,
		svg_y(row) + svg_row_height(row) / 2 + 4);
	if (part == STORY_RESTARTED) {
		fprintf(file, "restarted at %.3f s",
			(double)(state->since_ns - timeline->from_ns) / 1e9);
		if (state->ready_ns)
			fprintf(file, ", ready %.3f s later",
				stage_seconds(state->since_ns, state->ready_ns));
		if (state->restarts > 1)
			fprintf(file, "; %" PRIu64 " times in all", state->restarts);
	} else {
		fputs(part == STORY_BEFORE ? "was there before" : "away", file);
	}
	fputs("</text>\n", file);
}

/* A slice is registered while the next one is read: the two bars of a row share its height. */
static void
svg_span(const struct timeline *timeline, const struct span *span, FILE *file)
{
	double x = svg_x(timeline, span->begin_ns), width = svg_x(timeline, span->end_ns) - x;
	double height = svg_row_height(span->row) - 2 * BAR_INSET;
	double y = svg_y(span->row) + BAR_INSET;
	double seconds = (double)(span->end_ns - span->begin_ns) / 1e9;
	char bytes[16];

	if (span->kind == SPAN_REGISTER || span->kind == SPAN_UPLOAD) {
		height /= 2;
		y += span->kind == SPAN_REGISTER ? height : 0;
	}
	fprintf(file,
		"<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"><title>", x,
		y, width < 0.75 ? 0.75 : width, height, kind_colours[span->kind]);
	svg_text(file, timeline->rows[span->row]);
	fprintf(file, ": %s in %.3f s", kind_words[span->kind], seconds);
	if (span->bytes) {
		stage_bytes(bytes, span->bytes);
		fprintf(file, ", %s, %.2f GB/s", bytes, (double)span->bytes / seconds / 1e9);
	}
	fputs("</title></rect>\n", file);
}

static void
svg_mark(const struct timeline *timeline, uint32_t i, double bottom, FILE *file)
{
	const struct mark *mark = &timeline->marks[i];
	double x = svg_x(timeline, mark->at_ns), y = TOP - 48 + 11 * i;

	fprintf(
	    file,
	    "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#b3202c\" "
	    "stroke-dasharray=\"3 2\"/>\n"
	    "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"#b3202c\">%s %.3f s</text>\n",
	    x, y, x, bottom, x > WIDTH / 2 ? x - 4 : x + 4, y + 4, x > WIDTH / 2 ? "end" : "start",
	    mark->name, (double)(mark->at_ns - timeline->from_ns) / 1e9);
}

static void
svg_legend(FILE *file)
{
	double x = LEFT;

	for (uint32_t i = 0; i < N_SPAN_KINDS; i++) {
		fprintf(file,
			"<rect x=\"%.1f\" y=\"30\" width=\"10\" height=\"10\" fill=\"%s\"/>\n"
			"<text x=\"%.1f\" y=\"39\">%s</text>\n",
			x, kind_colours[i], x + 14, kind_words[i]);
		x += 30 + 6.5 * (double)strlen(kind_words[i]);
	}
}

void
timeline_write_svg(const struct timeline *timeline, const struct stack_view *view, FILE *file)
{
	uint32_t last = timeline->n_rows - 1;
	double bottom = svg_y(last) + svg_row_height(last) + 4;

	fprintf(file,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" "
		"viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"11\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text x=\"%g\" y=\"20\" font-size=\"14\">",
		WIDTH, bottom + 24, WIDTH, bottom + 24, LEFT);
	svg_text(file, view->name);
	fputs(": ", file);
	svg_text(file, stack_model(view));
	fputs("</text>\n", file);
	svg_legend(file);
	svg_axis(timeline, bottom, file);
	svg_rows(timeline, file);
	for (uint32_t i = 0; i < timeline->n_spans; i++)
		svg_span(timeline, &timeline->spans[i], file);
	for (uint32_t i = 0; i < N_STAGES; i++)
		svg_note(timeline, view->state[i], i, file);
	for (uint32_t i = 0; i < timeline->n_marks; i++)
		svg_mark(timeline, i, bottom, file);
	fputs("</svg>\n", file);
}
