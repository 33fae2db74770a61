#include "common/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#define XXH_STATIC_LINKING_ONLY /* a hash state on the stack */
#include <xxhash.h>

#include "common/checked.h"
#include "common/model.h"

/* An expert's matrix, or CHECKSUM_TRUNK_UNIT; 0: the experts do not divide the tensor. */
static uint64_t
unit_bytes(const struct arena_tensor *tensor)
{
	if (model_expert_layer(tensor->name, NULL) < 0)
		return CHECKSUM_TRUNK_UNIT;
	if (tensor->dims[2] == 0 || tensor->bytes % tensor->dims[2])
		return 0;
	return tensor->bytes / tensor->dims[2];
}

/* From one unit to the next. */
static uint64_t
unit_step(const struct arena_tensor *tensor)
{
	return tensor->stride ? tensor->stride : unit_bytes(tensor);
}

static int
count_units(const struct arena_tensor *tensors, uint64_t n_tensors, uint64_t n_slices,
	    uint64_t *ret, struct error *err)
{
	uint64_t count = 0;

	for (uint64_t i = 0; i < n_tensors; i++) {
		uint64_t each = unit_bytes(&tensors[i]);
		uint64_t units;

		if (each == 0 || tensors[i].slice >= n_slices)
			return error_set(err, -EINVAL,
					 "%s: %" PRIu64 " bytes in slice %" PRIu32
					 ", want whole experts in one of %" PRIu64 " slices",
					 tensors[i].name, tensors[i].bytes, tensors[i].slice,
					 n_slices);
		units = tensors[i].bytes / each + (tensors[i].bytes % each != 0);
		if (!checked_add(count, units, &count))
			return error_set(err, -EOVERFLOW, "%s: more units than fit 64 bits",
					 tensors[i].name);
	}
	*ret = count;
	return 0;
}

static int
compare_canonical(const void *a, const void *b)
{
	const struct arena_tensor *x = *(const struct arena_tensor *const *)a;
	const struct arena_tensor *y = *(const struct arena_tensor *const *)b;

	if (x->slice != y->slice)
		return x->slice < y->slice ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* `sorted` holds all tensors in the canonical order. */
static void
fill_units(struct checksum_plan *plan, const struct arena_tensor *tensors, uint64_t n_tensors,
	   const struct arena_tensor *const *sorted)
{
	uint64_t next = 0, slice = 0;

	for (uint64_t i = 0; i < n_tensors; i++) {
		const struct arena_tensor *tensor = sorted[i];
		uint64_t each = unit_bytes(tensor), step = unit_step(tensor), place;

		while (slice <= tensor->slice)
			plan->first[slice++] = next;
		place = tensor->offset;
		for (uint64_t at = 0; at < tensor->bytes; at += each, place += step) {
			uint64_t left = tensor->bytes - at;

			plan->units[next++] = (struct checksum_unit){
				.offset = place,
				.bytes = left < each ? left : each,
				.slice = tensor->slice,
				.tensor = (uint32_t)(tensor - tensors),
			};
		}
	}
	while (slice <= plan->n_slices)
		plan->first[slice++] = next;
}

int
checksum_plan_open(struct checksum_plan *ret, const struct arena_tensor *tensors,
		   uint64_t n_tensors, uint64_t n_slices, struct error *err)
{
	struct checksum_plan plan = { .n_slices = n_slices };
	const struct arena_tensor **sorted;
	int rc = count_units(tensors, n_tensors, n_slices, &plan.n_units, err);

	if (rc < 0)
		return rc;
	sorted = calloc(n_tensors + 1, sizeof(const struct arena_tensor *));
	plan.units = calloc(plan.n_units + 1, sizeof(*plan.units));
	plan.first = calloc(n_slices + 1, sizeof(*plan.first));
	if (!sorted || !plan.units || !plan.first) {
		free(sorted);
		checksum_plan_close(&plan);
		return error_sys(err, -ENOMEM, "%" PRIu64 " checksum units", plan.n_units);
	}
	for (uint64_t i = 0; i < n_tensors; i++)
		sorted[i] = &tensors[i];
	qsort(sorted, n_tensors, sizeof(const struct arena_tensor *), compare_canonical);
	fill_units(&plan, tensors, n_tensors, sorted);
	free(sorted);
	*ret = plan;
	return 0;
}

/* Where the unit, expert `expert` of its tensor, is; 0: not resident.  Trunk units stay. */
static uint64_t
kept_place(const struct checksum_unit *unit, const struct arena_tensor *tensor,
	   const struct arena_expert *experts, uint64_t expert)
{
	enum role role;
	int layer = model_expert_layer(tensor->name, &role);

	if (layer < 0)
		return unit->offset;
	return experts[(uint64_t)layer * tensor->dims[2] + expert].role_offset[role];
}

void
checksum_plan_keep(struct checksum_plan *plan, const struct arena_tensor *tensors,
		   const struct arena_expert *experts, uint64_t *each)
{
	uint64_t next = 0, expert = 0, i = 0;

	for (uint64_t slice = 0; slice < plan->n_slices; slice++) {
		uint64_t end = plan->first[slice + 1];

		plan->first[slice] = next;
		for (; i < end; i++) {
			struct checksum_unit unit = plan->units[i];

			expert = i && plan->units[i - 1].tensor == unit.tensor ? expert + 1 : 0;
			unit.offset = kept_place(&unit, &tensors[unit.tensor], experts, expert);
			if (unit.offset == 0)
				continue;
			if (each)
				each[next] = each[i];
			plan->units[next++] = unit;
		}
	}
	plan->first[plan->n_slices] = next;
	plan->n_units = next;
}

int
checksum_plan_open_arena(struct checksum_plan *ret, const struct arena *arena, struct error *err)
{
	int rc = checksum_plan_open(ret, arena->tensors, arena->head->n_tensors,
				    arena->head->n_slices, err);

	if (rc == 0 && arena->experts)
		checksum_plan_keep(ret, arena->tensors, arena->experts, NULL);
	return rc;
}

void
checksum_plan_close(struct checksum_plan *plan)
{
	free(plan->units);
	free(plan->first);
	*plan = (struct checksum_plan){ 0 };
}

uint64_t
checksum_unit_hash(const struct checksum_unit *unit, const uint8_t *arena_base)
{
	return XXH3_64bits(arena_base + unit->offset, unit->bytes);
}

uint64_t
checksum_slice(const struct checksum_plan *plan, uint32_t slice)
{
	XXH3_state_t state;

	XXH3_64bits_reset(&state);
	for (uint64_t i = plan->first[slice]; i < plan->first[slice + 1]; i++)
		XXH3_64bits_update(&state, &plan->units[i].hash, sizeof(plan->units[i].hash));
	return XXH3_64bits_digest(&state);
}

uint64_t
checksum_whole(const uint64_t *slices, uint64_t n_slices)
{
	return XXH3_64bits(slices, n_slices * sizeof(*slices));
}
