/* The last start of a stack as one story: what belongs to it, and what happened to the stages
 * since.
 *
 * It is the start of the loader's process, with the stages that were started beside it.  A stage
 * that was there before (the loader alone was restarted) or was restarted since is named as such,
 * and no time of another life is told as if it were this start's. */
#ifndef HEARTH_SCHEDULER_STORY_H
#define HEARTH_SCHEDULER_STORY_H

#include <stdint.h>

#include "scheduler/stack_view.h"

enum story_part {
	STORY_START,     /* began with this start */
	STORY_BEFORE,    /* was there already */
	STORY_RESTARTED, /* since */
	STORY_AWAY,      /* nobody tells of it, or a stand-in does */
};

extern const char *const story_part_names[]; /* "start", "before", "restarted", "away" */

struct story {
	enum story_part part[N_STAGES];
	/* clock_ns; 0 = not yet, or it was in another life. */
	uint64_t from; /* all is counted from here */
	uint64_t loaded;
	uint64_t answers; /* scheduler and worker are ready */
	uint64_t first_token;
	uint64_t sixteenth_token;
};

struct story story_tell(const struct stack_view *view);

/* A moment that this stage tells of its own work: itself if it is of this start, else 0. */
uint64_t story_time(const struct story *story, enum stage_index stage, uint64_t at_ns);

#endif
