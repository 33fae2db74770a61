#include "loader/load_budget.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/profile.h"
#include "loader/adopt.h"
#include "loader/fill.h"
#include "loader/load_choice.h"

#define GIB (1ull << 30)

/* NULL without a profile.  A file that is not there yet is written by the worker in time. */
static int
read_profile(const struct load *load, const struct model *model, uint64_t **ret, struct error *err)
{
	const struct profile_shape shape = { .fingerprint = load->files.fingerprint,
					     .layers = model->n_layers,
					     .experts = model->n_experts };
	const char *path = load->options->profile;
	uint64_t *counts;
	int rc;

	*ret = NULL;
	if (!path)
		return 0;
	counts = calloc((uint64_t)model->n_layers * model->n_experts + 1, sizeof(*counts));
	if (!counts)
		return error_sys(err, -ENOMEM, "%s", path);
	rc = profile_read(path, &shape, counts, err);
	if (rc == 0) {
		*ret = counts;
		return 0;
	}
	free(counts);
	if (rc == -ENOENT) {
		log_info("%s: not there yet: of each layer the first experts stay in memory", path);
		return 0;
	}
	return rc;
}

/* Of the arena that the pinner holds, where it is of this model and budget. */
static bool
take_warm_set(struct load *load, const struct model *model)
{
	uint64_t n = (uint64_t)model->n_layers * model->n_experts;
	bool *in = calloc(n + 1, sizeof(*in)), taken;

	taken = in && !load->without_pool && load->options->dir &&
		adopt_resident(load->options->dir, load->files.stamp, load->resident.budget, n, in);
	if (taken)
		resident_take(&load->resident, model, in);
	free(in);
	return taken;
}

int
load_budget_plan(struct load *load, const struct model *model, struct error *err)
{
	struct resident *resident = &load->resident;
	uint64_t all = resident_all_bytes(model), *counts;
	double gib = load->options->resident_gib;
	const char *how;
	int rc;

	if (gib <= 0)
		return 0;
	if (gib * (double)GIB >= (double)all) {
		log_info("--resident-gib %.6g: all experts are %" PRIu64
			 " MiB: the whole model stays in memory",
			 gib, all >> 20);
		return 0;
	}
	rc = read_profile(load, model, &counts, err);
	if (rc < 0)
		return rc;
	how = counts ? ", by the profile" : "";
	rc = resident_open(resident, model, (uint64_t)(gib * (double)GIB), counts, err);
	free(counts);
	if (rc < 0)
		return rc;
	if (take_warm_set(load, model))
		how = ", as in the warm arena";
	load->budget.set = true;
	load->budget.outside = resident->bytes_out;
	log_info("--resident-gib %.6g: %" PRIu32 " of %" PRIu64
		 " experts stay in memory%s (%" PRIu64 " KiB), %" PRIu64
		 " KiB are read as they are needed, into a window for %" PRIu64 " experts (%" PRIu64
		 " KiB)",
		 gib, resident->n_in, (uint64_t)model->n_layers * model->n_experts, how,
		 resident->bytes_in >> 10, resident->bytes_out >> 10, resident->window_slots,
		 resident->window_slots * resident->slot_bytes >> 10);
	return 0;
}

/* A pack's checksum of every expert's matrix. */
static int
keep_hashes(struct load *load, struct error *err)
{
	const struct resident *resident = &load->resident;
	uint64_t n = (uint64_t)resident->n_layers * resident->n_experts * N_ROLES;
	uint64_t expert = 0;

	load->outside_hashes = calloc(n + 1, sizeof(*load->outside_hashes));
	if (!load->outside_hashes)
		return error_sys(err, -ENOMEM, "%" PRIu64 " checksums", n);
	for (uint64_t i = 0; i < load->plan.n_units; i++) {
		uint32_t tensor = load->plan.units[i].tensor;
		enum role role;
		int layer = model_expert_layer(load->files.tensors[tensor].name, &role);

		expert = i && load->plan.units[i - 1].tensor == tensor ? expert + 1 : 0;
		if (layer >= 0)
			load->outside_hashes[((uint64_t)layer * resident->n_experts + expert) *
						 N_ROLES +
					     role] = load->files.hashes[i];
	}
	return 0;
}

int
load_budget_keep(struct load *load, struct error *err)
{
	int rc = load->files.hashes ? keep_hashes(load, err) : 0;

	if (rc == 0)
		checksum_plan_keep(&load->plan, load->files.tensors, load->placement.experts,
				   load->files.hashes);
	return rc;
}

void
load_budget_settle(struct load *load)
{
	const struct placement *placement = &load->placement;

	load->budget.resident = load->head.bytes;
	for (uint32_t i = 0; i < placement->n_slices; i++) {
		if (load->plan.first[i] == load->plan.first[i + 1]) {
			bool window = i + 1 == placement->n_slices;

			load->filled[i] = true;
			load->checksums[i] = window ? 0 : checksum_slice(&load->plan, i);
		}
		if (load->filled[i] && load->adopted)
			load->budget.resident -= placement->slices[i].bytes;
	}
}

/* What comes from the cache is one request to no drive, and what lies between would be copied for
 * nothing. */
int
load_budget_batches(struct load *load, struct error *err)
{
	int rc = fill_batches(&load->batches, &load->placement, &load->pieces, err);

	if (rc == 0) {
		rc = piece_queue_batches(load->queue, load->batches, !load->choice.cached);
		if (rc < 0)
			error_sys(err, rc, "%" PRIu64 " pieces", load->pieces.n);
	}
	return rc;
}

static void
fell_back(void *arg, const char *why)
{
	load_fall_back(arg, why);
}

int
load_budget_open_outside(struct load *load, struct error *err)
{
	bool choosing = strcmp(load->options->read, "auto") == 0;
	const struct outside_config config = {
		.io = load->options->io,
		.files = &load->files,
		.placement = &load->placement,
		.resident = &load->resident,
		.pieces = &load->pieces,
		.queue = load->queue,
		.hashes = load->outside_hashes,
		.arena = load->arena.base,
		.direct = load->choice.direct,
		.fallback = { choosing ? fell_back : NULL, load },
		.threads = load->threads,
	};

	return outside_open(&load->outside, &config, err);
}

int
load_budget_built(struct load *load, struct error *err)
{
	if (!load_choose_again(load, load->budget.outside))
		return 0;
	return outside_switch(load->outside, load->choice.direct, err);
}

void
load_budget_close(struct load *load)
{
	outside_close(load->outside);
	free(load->outside_hashes);
	free(load->batches);
	resident_close(&load->resident);
}
