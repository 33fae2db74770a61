#include "loader/load_board.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/pages.h"
#include "common/shared_memory.h"
#include "loader/load_choice.h"

/* Bytes between two messages that say no more than how far reading is. */
#define PUBLISH_BYTES (256ull << 20)

static void
fill_arena(const struct load *load, Hearth__Arena *named)
{
	char path[SHARED_PATH_BYTES];

	shared_memory_path(path, load->arena.fd);
	board_text(&named->path, "%s", path);
	named->bytes = load->arena.bytes;
	named->inode = load->arena.inode;
	named->stamp = load->head.stamp;
	named->fingerprint = load->head.fingerprint;
	named->layout_hash = load->head.layout_hash;
}

static void
fill_slice(const struct load *load, uint32_t i, uint64_t now, Hearth__Slice *slice)
{
	board_text(&slice->name, "%s", load->placement.slices[i].name);
	slice->offset = load->placement.slices[i].offset;
	slice->bytes = load->placement.slices[i].bytes;
	slice->state = HEARTH__SLICE_STATE__SLICE_RESERVED;
	if (!load->filled[i])
		return;
	slice->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	slice->checksum = load->checksums[i];
	slice->begin_ns = now; /* taken over */
	slice->end_ns = now;
}

static void
fill_reader(const struct load *load, uint64_t now, Hearth__Reader *reader)
{
	load_fill_choice(load, reader);
	reader->threads = load->threads;
	reader->bytes = 0;
	reader->end_ns = 0;
	reader->total_bytes = load->pieces.bytes;
	reader->adopted_bytes = load->pieces.skipped_bytes;
	reader->begin_ns = now;
}

int
load_publish_arena(struct load *load, struct error *err)
{
	Hearth__State *state = board_edit(load->board);
	Hearth__Arena *named = board_arena(state);
	Hearth__Reader *reader = board_reader(state);
	Hearth__Pages *pages = board_pages(state);
	uint64_t now = clock_ns();
	int rc = named && reader && pages ? board_slices(state, load->placement.n_slices) : -ENOMEM;

	if (rc == 0) {
		fill_arena(load, named);
		fill_reader(load, now, reader);
		pages->numa_node = load->adopted ? NUMA_NODE_NONE : load->reserve.numa_node;
		board_text(&pages->asked, "%s",
			   load->adopted ? "" : pages_word(load->reserve.asked));
		for (uint32_t i = 0; i < load->placement.n_slices; i++)
			fill_slice(load, i, now, state->slices[i]);
		state->phase = HEARTH__PHASE__PHASE_LOADING;
		board_text(&state->model_name, "%s", load->name);
		board_text(&state->reason, "%s", "");
		log_info("%s: %" PRIu32 " slices, %" PRIu64 " MiB to read, %" PRIu32 " threads",
			 load->name, load->placement.n_slices, load->pieces.bytes >> 20,
			 reader->threads);
		log_info("reader %s", reader->reason);
	}
	board_publish(load->board);
	return rc < 0 ? error_sys(err, rc, "state") : 0;
}

static void
fill_demand(const struct load *load, Hearth__Reader *reader)
{
	struct demand_figures figures;

	demand_figures(load->demand, &figures);
	reader->demand_bytes = figures.bytes;
	reader->demand_requests = figures.requests;
	reader->demand_wait_ns = figures.wait_ns;
	reader->first_demand_ns = figures.first_ns;
}

static void
fill_outside(const struct load *load, Hearth__Reader *reader)
{
	struct outside_figures figures;

	outside_figures(load->outside, &figures);
	reader->demand_bytes = piece_queue_demanded_bytes(load->queue);
	reader->demand_requests = figures.requests;
	reader->demand_wait_ns = figures.wait_ns;
	reader->first_demand_ns = figures.first_ns;
	reader->outside_experts = figures.experts;
	reader->outside_hits = figures.hits;
	reader->outside_windows = figures.windows;
	reader->outside_reads = figures.reads;
	reader->outside_bytes = figures.bytes;
}

void
load_fill_demands(void *arg, Hearth__State *state)
{
	const struct load *load = arg;

	if (load->demand && state->reader)
		fill_demand(load, state->reader);
	if (load->outside && state->reader)
		fill_outside(load, state->reader);
}

void
load_demanded(void *arg)
{
	struct load *load = arg;

	if (load->demand)
		demand_look(load->demand);
	if (load->outside)
		outside_look(load->outside);
}

void
load_slice_begun(void *arg, uint32_t slice)
{
	struct load *load = arg;
	Hearth__State *state = board_edit(load->board);

	state->slices[slice]->begin_ns = clock_ns();
	board_publish(load->board);
}

void
load_bytes_moved(void *arg, uint64_t bytes)
{
	struct load *load = arg;
	Hearth__State *state;

	board_progress(load->board);
	if (bytes - load->published_bytes < PUBLISH_BYTES && bytes < load->pieces.bytes)
		return;
	load->published_bytes = bytes;
	state = board_edit(load->board);
	state->reader->bytes = bytes;
	load_fill_demands(load, state);
	if (bytes == load->pieces.bytes)
		state->reader->end_ns = clock_ns();
	board_publish(load->board);
}

void
load_slice_filled(void *arg, uint32_t slice, uint64_t checksum)
{
	struct load *load = arg;
	Hearth__State *state = board_edit(load->board);

	load->filled[slice] = true;
	load->checksums[slice] = checksum;
	state->slices[slice]->state = HEARTH__SLICE_STATE__SLICE_FILLED;
	state->slices[slice]->checksum = checksum;
	state->slices[slice]->end_ns = clock_ns();
	board_publish(load->board);
}

void
load_publish_ready(struct load *load)
{
	Hearth__State *state = board_edit(load->board);
	Hearth__Reader *reader = state->reader;

	if (reader->end_ns == 0)
		reader->end_ns = reader->begin_ns; /* nothing was read */
	if (reader->bytes)
		log_info("read %" PRIu64 " MiB in %.2f s, %.2f GB/s", reader->bytes >> 20,
			 (double)(reader->end_ns - reader->begin_ns) / 1e9,
			 (double)reader->bytes / (double)(reader->end_ns - reader->begin_ns));
	load_fill_demands(load, state);
	if (reader->demand_bytes)
		log_info("%" PRIu64 " MiB of it ahead of the rest, for %" PRIu64 " requests",
			 reader->demand_bytes >> 20, reader->demand_requests);
	state->phase = HEARTH__PHASE__PHASE_READY;
	board_publish(load->board);
}
