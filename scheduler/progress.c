#include "scheduler/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/stage_line.h"

struct progress {
	double done, all;
	double rate; /* of done, a second; 0: unknown */
	bool bytes;  /* else slices */
};

static bool
progress_reader(const Hearth__Reader *reader, uint64_t now_ns, struct progress *ret)
{
	if (reader->total_bytes == 0 || reader->end_ns != 0)
		return false;
	*ret = (struct progress){ .done = (double)reader->bytes,
				  .all = (double)reader->total_bytes,
				  .rate = stage_read_rate(reader, now_ns) * 1e9,
				  .bytes = true };
	return true;
}

/* The slices that a stage has brought as far as it brings them. */
static bool
progress_slices(const Hearth__State *state, Hearth__SliceState goal, struct progress *ret)
{
	struct progress progress = { .all = (double)state->n_slices };

	for (size_t i = 0; i < state->n_slices; i++)
		progress.done += state->slices[i]->state >= goal;
	*ret = progress;
	return state->n_slices > 0;
}

static bool
progress_of(const Hearth__State *state, uint64_t now_ns, struct progress *ret)
{
	if (state->phase != HEARTH__PHASE__PHASE_LOADING)
		return false;
	if (state->reader)
		return progress_reader(state->reader, now_ns, ret);
	if (state->pinning)
		return progress_slices(state, HEARTH__SLICE_STATE__SLICE_REGISTERED, ret);
	return state->computing && progress_slices(state, HEARTH__SLICE_STATE__SLICE_READY, ret);
}

bool
progress_bar(char ret[PROGRESS_BYTES], const Hearth__State *state, uint64_t now_ns)
{
	char bar[PROGRESS_WIDTH + 1], all[16];
	struct progress progress;
	double share;
	int n;

	if (!progress_of(state, now_ns, &progress))
		return false;
	share = progress.done < progress.all ? progress.done / progress.all : 1;
	memset(bar, '.', PROGRESS_WIDTH);
	memset(bar, '#', (size_t)(share * PROGRESS_WIDTH));
	bar[PROGRESS_WIDTH] = '\0';
	if (progress.bytes)
		stage_bytes(all, (uint64_t)progress.all);
	else
		snprintf(all, sizeof(all), "%.0f slices", progress.all);
	n = snprintf(ret, PROGRESS_BYTES, "[%s] %3.0f %% of %s", bar, 100 * share, all);
	if (progress.rate > 0)
		snprintf(ret + n, PROGRESS_BYTES - (size_t)n, ", %.2f GB/s, %.1f s left",
			 progress.rate / 1e9, (progress.all - progress.done) / progress.rate);
	return true;
}
