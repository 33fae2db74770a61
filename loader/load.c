#include "loader/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/model.h"
#include "loader/adopt.h"
#include "loader/directory.h"
#include "loader/fingerprint.h"
#include "loader/load_board.h"
#include "loader/load_budget.h"
#include "loader/load_choice.h"
#include "loader/load_pages.h"

static int
plan_checksums(struct load *load, struct error *err)
{
	const struct model_files *files = &load->files;
	int rc = checksum_plan_open(&load->plan, files->tensors, files->n_tensors,
				    load->placement.n_slices, err);

	if (rc == 0 && files->hashes && files->n_hashes != load->plan.n_units)
		rc = error_set(err, -EBADMSG, "%s: %" PRIu64 " checksums, want %" PRIu64,
			       files->shards[0].path, files->n_hashes, load->plan.n_units);
	if (rc == 0 && load_has_window(load))
		rc = load_budget_keep(load, err);
	return rc;
}

int
load_plan(struct load *load, struct error *err)
{
	struct model_files *files = &load->files;
	struct model model;
	int rc = model_files_open(files, load->options->model, err);

	if (rc < 0)
		return rc;
	rc = model_read(&model, &files->shards[0].gguf, files->tensors, files->n_tensors,
			files->shards[0].path, err);
	if (rc < 0)
		return rc;
	snprintf(load->name, sizeof(load->name), "%s", model.name);
	if (load->options->profile && files->fingerprint == 0)
		rc = fingerprint_read(files, &files->fingerprint, err);
	if (rc == 0)
		rc = load_budget_plan(load, &model, err);
	model_close(&model);
	if (rc < 0)
		return rc;
	rc = placement_open_resident(&load->placement, files->tensors, files->n_tensors,
				     files->shards[0].gguf.header_bytes,
				     load->resident.in ? &load->resident : NULL, err);
	if (rc < 0)
		return rc;
	rc = strcmp(load->options->read, "direct") == 0 ? load_check_direct(load, err) : 0;
	if (rc < 0)
		return rc;
	load->head = directory_head(&load->placement, files);
	load->filled = calloc(load->placement.n_slices, sizeof(*load->filled));
	load->checksums = calloc(load->placement.n_slices, sizeof(*load->checksums));
	if (!load->filled || !load->checksums)
		return error_sys(err, -ENOMEM, "%" PRIu32 " slices", load->placement.n_slices);
	return plan_checksums(load, err);
}

/* A sealed arena is whole; a checksum that nobody recorded is taken from its bytes. */
static void
complete_sealed(struct load *load)
{
	for (uint32_t i = 0; i < load->placement.n_slices; i++) {
		if (load->filled[i])
			continue;
		for (uint64_t k = load->plan.first[i]; k < load->plan.first[i + 1]; k++)
			load->plan.units[k].hash =
			    checksum_unit_hash(&load->plan.units[k], load->arena.base);
		load->checksums[i] = checksum_slice(&load->plan, i);
		load->filled[i] = true;
	}
}

static int
make_arena(struct load *load, struct error *err)
{
	int rc = load_reserve(load, err);

	if (rc == 0)
		rc =
		    directory_write(&load->arena, &load->head, &load->placement, &load->files, err);
	return rc;
}

int
load_take_arena(struct load *load, struct error *err)
{
	uint32_t filled = 0;
	struct error why;
	int rc = 0;

	available_read(&load->available, load->options->root);
	error_set(&why, 0, "the one before had no pages left");
	load->adopted =
	    !load->without_pool && adopt_arena(&load->arena, load->options->dir, &load->head,
					       load->filled, load->checksums, &why);
	if (load->adopted && load_has_window(load) && !load->arena.writable) {
		arena_close(&load->arena);
		memset(load->filled, 0, load->placement.n_slices * sizeof(*load->filled));
		load->adopted = false;
		error_set(&why, 0, "the pinner's cannot be written to");
	}
	if (load->adopted) {
		if (!load->arena.writable && !load_has_window(load))
			complete_sealed(load);
		for (uint32_t i = 0; i < load->placement.n_slices; i++)
			filled += load->filled[i];
		log_info("took the warm arena back from the pinner: %" PRIu32 " of %" PRIu32
			 " slices are filled",
			 filled, load->placement.n_slices);
	} else {
		log_info("a new arena of %" PRIu64 " MiB: %s", load->head.bytes >> 20, why.text);
		rc = make_arena(load, err);
	}
	if (rc == 0 && load_has_window(load))
		load_budget_settle(load);
	if (rc == 0)
		rc = pieces_open(&load->pieces, &load->placement, &load->plan, load->filled, err);
	if (rc == 0)
		rc = piece_queue_open(&load->queue, &load->pieces, err);
	if (rc == 0)
		rc = load_choose(load, err);
	if (rc == 0 && load_has_window(load))
		rc = load_budget_batches(load, err);
	if (rc == 0)
		rc = load_publish_arena(load, err);
	return rc;
}

int
load_open_desk(struct load *load, struct error *err)
{
	struct fetch_source source;
	int rc;

	if (load_has_window(load))
		rc = load_budget_open_outside(load, err);
	else
		rc = demand_open(&load->demand, &load->plan, load->files.tensors, &load->pieces,
				 load->queue, err);
	if (rc < 0)
		return rc;
	board_refresh(load->board, load_fill_demands, load);
	source =
	    load_has_window(load) ? outside_source(load->outside) : demand_source(load->demand);
	return fetch_desk_open(&load->desk, load->options->dir, &source, err);
}

static void
read_ended(void *arg)
{
	struct load *load = arg;

	atomic_store(&load->read_ended, true);
	service_wake(load->service);
}

static void
fell_back(void *arg, const char *why)
{
	load_fall_back(arg, why);
}

static int
hold_back(struct load *load, struct error *err)
{
	int rc = 0;

	if (!load->options->pin_before)
		return 0;
	if (!load->pin_wait)
		rc = pin_wait_open(&load->pin_wait, load->options->dir, load->service,
				   load->placement.n_slices, err);
	if (rc < 0)
		return rc;
	pin_wait_aim(load->pin_wait, load->arena.inode);
	piece_queue_gate(load->queue, pin_wait_may_write, load->pin_wait);
	return 0;
}

/* Until the reader has ended, or the process is to leave. */
static void
watch_reader(struct load *load)
{
	uint64_t seen = 0;

	while (!atomic_load(&load->read_ended) && service_wait(load->service, &seen, 0)) {
		if (!load->pin_wait || !pin_wait_look(load->pin_wait))
			continue;
		board_progress(load->board);
		piece_queue_wake(load->queue);
	}
}

int
load_read(struct load *load, struct error *err)
{
	bool choosing = strcmp(load->options->read, "auto") == 0;
	struct reader_config config = {
		.io = load->options->io,
		.files = &load->files,
		.placement = &load->placement,
		.pieces = &load->pieces,
		.queue = load->queue,
		.plan = &load->plan,
		.wanted = load->files.hashes,
		.arena = load->arena.base,
		.threads = load->threads,
		.direct = load->choice.direct,
		.events = { .arg = load,
			    .begun = load_slice_begun,
			    .moved = load_bytes_moved,
			    .filled = load_slice_filled,
			    .fell_back = choosing ? fell_back : NULL,
			    .demanded = load_demanded,
			    .ended = read_ended },
	};
	struct reader *reader = NULL;
	int rc;

	if (load->pieces.n == 0)
		return 0;
	rc = load_populate(load, err);
	if (rc < 0)
		return rc;
	config.populate = load->populate;
	rc = hold_back(load, err);
	if (rc == 0)
		rc = reader_open(&reader, &config, err);
	if (rc < 0)
		return rc;
	watch_reader(load);
	if (!atomic_load(&load->read_ended))
		reader_stop(reader);
	rc = reader_join(reader, err);
	reader_close(reader);
	return rc;
}

static void
log_checksums(const struct load *load)
{
	for (uint32_t i = 0; i < load->placement.n_slices - load_has_window(load); i++)
		log_info("checksum of %s: %016" PRIx64, load->placement.slices[i].name,
			 load->checksums[i]);
	log_info("checksum of the arena: %016" PRIx64,
		 checksum_whole(load->checksums, load->placement.n_slices));
}

static int
seal(struct load *load, struct error *err)
{
	int rc = arena_seal(&load->arena);

	return rc < 0 ? error_sys(err, rc, "arena: sealing against writing") : 0;
}

int
load_finish(struct load *load, struct error *err)
{
	int rc = 0;

	if (load_has_window(load))
		rc = load_budget_built(load, err);
	else if (load->arena.writable)
		rc = seal(load, err);
	if (rc < 0)
		return rc;
	if (load->options->verify)
		log_checksums(load);
	load_publish_ready(load);
	load_publish_pages(load);
	if (load_has_window(load))
		return 0;
	model_files_close(&load->files);
	return 0;
}

void
load_fail(struct load *load, int rc, const struct error *why)
{
	board_phase(load->board, HEARTH__PHASE__PHASE_FAILED, "%s", why->text);
	if (load->demand)
		demand_end(load->demand, rc, why);
	if (load->outside)
		outside_end(load->outside, rc, why);
}

void
load_close(struct load *load)
{
	struct error why;

	if (load->board)
		board_refresh(load->board, NULL, NULL);
	error_set(&why, -ECANCELED, "the loader leaves");
	if (load->demand)
		demand_end(load->demand, -ECANCELED, &why);
	if (load->outside)
		outside_end(load->outside, -ECANCELED, &why);
	fetch_desk_close(load->desk);
	load_budget_close(load);
	demand_close(load->demand);
	pin_wait_close(load->pin_wait);
	populate_close(load->populate);
	piece_queue_close(load->queue);
	pieces_close(&load->pieces);
	checksum_plan_close(&load->plan);
	placement_close(&load->placement);
	model_files_close(&load->files);
	free(load->filled);
	free(load->checksums);
	arena_close(&load->arena);
}

void
load_start_over(struct load *load)
{
	const struct load fresh = { .options = load->options,
				    .service = load->service,
				    .board = load->board,
				    .arena = { .fd = -1 },
				    .without_pool = true };

	load_close(load);
	*load = fresh;
}
