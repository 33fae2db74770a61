/* What the worker says of itself on its board. */
#ifndef HEARTH_WORKER_REPORT_H
#define HEARTH_WORKER_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/board.h"
#include "worker/attach.h"
#include "worker/serve.h"

struct report {
	struct board *board;
	const struct attached *attached;
	uint64_t told_ns;        /* when the tally was last put on the board */
	uint64_t pinner_version; /* of the pinner's state that the slices were taken from */
};

/* Attached: what it computes with and where. */
void report_attached(struct report *report);

/* All is where the arithmetic reads it for good. */
void report_settled(struct report *report);

/* The slices as the pinner tells and the table takes them, and the phase that follows; nothing if
 * the pinner's state is the one told last. */
void report_slices(struct report *report, const Hearth__State *pinner);

/* Experts have come into slots, and no more are on their way. */
void report_moved(struct report *report);

/* The tally; put on the board if `now`, else with about each heartbeat. */
void report_tally(struct report *report, const struct serve_tally *tally, bool now);

#endif
