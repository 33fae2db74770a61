/* The last start (story.h) as spans over time: what `report` draws and traces.  Made from a stack's
 * states; owns its lists, points into the view for names. */
#ifndef HEARTH_SCHEDULER_TIMELINE_H
#define HEARTH_SCHEDULER_TIMELINE_H

#include <stdint.h>
#include <stdio.h>

#include "common/error.h"
#include "scheduler/story.h"

enum span_kind { SPAN_STAGE, SPAN_READ, SPAN_REGISTER, SPAN_UPLOAD, SPAN_ATTACH, N_SPAN_KINDS };

struct span {
	enum span_kind kind;
	uint32_t row; /* of timeline.rows */
	uint64_t begin_ns, end_ns;
	uint64_t bytes; /* 0: not about bytes */
};

struct mark {
	const char *name;
	uint64_t at_ns;
};

#define TIMELINE_MARKS 4

struct timeline {
	uint64_t from_ns, to_ns; /* everything shown lies between them */
	struct story story;
	uint32_t n_rows;
	const char **rows; /* four stages, then the slices */
	uint32_t n_spans;
	struct span *spans;
	uint32_t n_marks;
	struct mark
	    marks[TIMELINE_MARKS]; /* arena loaded, able to answer, first token, 16 tokens */
};

extern const char *const span_kind_names[N_SPAN_KINDS];

/* -ENODATA: no stage has told of its start. */
int timeline_open(struct timeline *ret, const struct stack_view *view, struct error *err);
void timeline_close(struct timeline *timeline);

/* Whose work it is; `row` counts with SPAN_STAGE alone. */
enum stage_index timeline_stage(enum span_kind kind, uint32_t row);

/* A picture for a browser; the Trace Event format (JSON) for Perfetto and chrome://tracing. */
void timeline_write_svg(const struct timeline *timeline, const struct stack_view *view, FILE *file);
void timeline_write_trace(const struct timeline *timeline, const struct stack_view *view,
			  FILE *file);

#endif
