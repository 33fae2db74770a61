#include "loader/outside_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "loader/io.h"

static uint64_t
which_expert(const struct outside_plan *plan, uint32_t layer, uint32_t expert)
{
	return (uint64_t)layer * plan->resident->n_experts + expert;
}

static void
add_windows(struct outside_plan *plan, uint32_t layer, uint32_t expert,
	    const struct fetch_place *at)
{
	for (uint32_t role = 0; role < N_ROLES; role++) {
		const struct arena_tensor *tensor = plan->tensors[layer * N_ROLES + role];

		plan->windows[plan->n_windows++] = (struct batch_window){
			.shard = tensor->shard,
			.slice = tensor->slice,
			.file_offset = placement_expert_at(tensor, expert),
			.bytes = tensor->bytes / tensor->dims[2],
			.arena_offset = at->role[role],
			.tag = which_expert(plan, layer, expert) * N_ROLES + role,
		};
	}
}

/* The place in the slot is congruent to the place in the file: direct reads need no copy. */
static void
place_in_slot(const struct outside_plan *plan, uint32_t layer, uint32_t expert, uint32_t slot,
	      struct fetch_place *ret)
{
	const struct placement *placement = plan->placement;
	const struct resident *resident = plan->resident;

	for (uint32_t role = 0; role < N_ROLES; role++)
		ret->role[role] =
		    placement->slices[placement->n_slices - 1].offset +
		    slot * resident->slot_bytes + resident->role_at[role] +
		    placement_expert_at(plan->tensors[layer * N_ROLES + role], expert) % IO_BLOCK;
}

static void
add_resident(struct outside_plan *plan, uint64_t which, struct fetch_place *ret)
{
	for (uint32_t role = 0; role < N_ROLES; role++) {
		ret->role[role] = plan->placement->experts[which].role_offset[role];
		plan->wanted[plan->n_wanted++] = pieces_find(plan->pieces, ret->role[role]);
	}
}

/* False: the window has no slot left. */
static bool
add_fetched(struct outside_plan *plan, uint32_t layer, uint32_t expert, struct fetch_place *ret)
{
	bool fresh;
	uint32_t slot =
	    window_take(&plan->window, (uint32_t)which_expert(plan, layer, expert), &fresh);

	if (slot == WINDOW_NONE)
		return false;
	place_in_slot(plan, layer, expert, slot, ret);
	if (fresh)
		add_windows(plan, layer, expert, ret);
	plan->fresh += fresh;
	plan->kept += !fresh;
	return true;
}

void
outside_plan_forget(struct outside_plan *plan)
{
	for (uint64_t i = 0; i < plan->n_windows; i++)
		window_forget(&plan->window, (uint32_t)(plan->windows[i].tag / N_ROLES));
}

int
outside_plan_wish(struct outside_plan *plan, const struct fetch_wish *wish, struct error *err)
{
	plan->n_windows = plan->n_requests = plan->n_wanted = 0;
	plan->fresh = plan->kept = 0;
	window_begin(&plan->window);
	for (uint32_t i = 0; i < wish->n; i++) {
		uint64_t which = which_expert(plan, wish->layer, wish->experts[i]);

		if (plan->resident->in[which]) {
			add_resident(plan, which, &plan->places[i]);
		} else if (!add_fetched(plan, wish->layer, wish->experts[i], &plan->places[i])) {
			outside_plan_forget(plan);
			plan->n_windows = plan->n_wanted = 0;
			plan->fresh = plan->kept = 0;
			return error_set(err, -ENOBUFS,
					 "layer %" PRIu32 ": %" PRIu32
					 " experts, the window has room for %" PRIu32,
					 wish->layer, wish->n, plan->window.n);
		}
	}
	plan->n_requests = batch_merge(plan->windows, plan->n_windows, plan->requests);
	return 0;
}

static int
find_tensors(struct outside_plan *plan, const struct model_files *files, struct error *err)
{
	const struct resident *resident = plan->resident;

	for (uint64_t i = 0; i < files->n_tensors; i++) {
		enum role role;
		int layer = model_expert_layer(files->tensors[i].name, &role);

		if (layer >= 0 && (uint32_t)layer < resident->n_layers)
			plan->tensors[(uint32_t)layer * N_ROLES + role] = &files->tensors[i];
	}
	for (uint32_t i = 0; i < resident->n_layers * N_ROLES; i++)
		if (!plan->tensors[i])
			return error_set(err, -EINVAL, "layer %" PRIu32 " has no experts",
					 i / N_ROLES);
	return 0;
}

static int
alloc(struct outside_plan *plan)
{
	const struct resident *resident = plan->resident;
	uint64_t n = (uint64_t)resident->n_experts * N_ROLES + 1;

	plan->tensors =
	    calloc((uint64_t)resident->n_layers * N_ROLES + 1, sizeof(const struct arena_tensor *));
	plan->places = calloc(resident->n_experts + 1ull, sizeof(*plan->places));
	plan->windows = calloc(n, sizeof(*plan->windows));
	plan->requests = calloc(n, sizeof(*plan->requests));
	plan->wanted = calloc(n, sizeof(*plan->wanted));
	if (!plan->tensors || !plan->places || !plan->windows || !plan->requests || !plan->wanted)
		return -ENOMEM;
	return window_open(&plan->window, (uint32_t)resident->window_slots,
			   resident->n_layers * resident->n_experts);
}

int
outside_plan_open(struct outside_plan *ret, const struct model_files *files,
		  const struct placement *placement, const struct resident *resident,
		  const struct pieces *pieces, struct error *err)
{
	struct outside_plan plan = { .placement = placement,
				     .resident = resident,
				     .pieces = pieces };
	int rc = alloc(&plan);

	if (rc < 0)
		error_sys(err, rc, "the window for experts outside the budget");
	else
		rc = find_tensors(&plan, files, err);
	if (rc < 0)
		outside_plan_close(&plan);
	else
		*ret = plan;
	return rc;
}

void
outside_plan_close(struct outside_plan *plan)
{
	window_close(&plan->window);
	free(plan->tensors);
	free(plan->places);
	free(plan->windows);
	free(plan->requests);
	free(plan->wanted);
	*plan = (struct outside_plan){ 0 };
}
