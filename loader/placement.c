#include "loader/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/model.h"
#include "loader/io.h"

/* No arena is larger; keeps sums of sizes far from wrapping. */
#define MAX_ARENA_BYTES (1ull << 46)

/* What is placed as one: a tensor, or with a resident set an expert's matrix. */
struct item {
	uint32_t shard, slice;
	uint64_t file_offset, bytes;
	bool strided; /* with other tensors' bytes between its own */
	uint64_t *to;
};

/* By slice, and inside one as the files have them. */
static int
compare_places(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->slice != y->slice)
		return x->slice < y->slice ? -1 : 1;
	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	return (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

/* Slices are 1 + the highest layer's number; -1: more bytes than any arena has. */
static int64_t
assign_slices(struct arena_tensor *tensors, uint64_t n_tensors)
{
	uint64_t bytes = 0, extent;
	int64_t n_slices = 1;

	for (uint64_t i = 0; i < n_tensors; i++) {
		int slice = model_expert_layer(tensors[i].name, NULL) + 1;

		tensors[i].slice = (uint32_t)slice;
		if (slice >= n_slices)
			n_slices = slice + 1;
		if (!arena_tensor_extent(&tensors[i], &extent) ||
		    !checked_add(bytes, extent, &bytes) || bytes > MAX_ARENA_BYTES ||
		    tensors[i].file_offset > MAX_ARENA_BYTES)
			return -1;
	}
	return n_slices;
}

static void
place_directory(struct placement *p, uint64_t n_tensors, uint64_t header_bytes)
{
	p->tensors_offset = round_up(sizeof(struct arena_head), 64);
	p->slices_offset = p->tensors_offset + n_tensors * sizeof(struct arena_tensor);
	p->experts_offset =
	    round_up(p->slices_offset + p->n_slices * sizeof(struct arena_slice), 64);
	p->header_offset =
	    round_up(p->experts_offset + p->n_experts * sizeof(struct arena_expert), 64);
	p->bytes = round_up(p->header_offset + header_bytes, ARENA_SLICE_ALIGN);
}

static void
begin_slice(struct placement *p, uint32_t slice)
{
	p->bytes = round_up(p->bytes, ARENA_SLICE_ALIGN);
	p->slices[slice].offset = p->bytes;
	if (slice == 0)
		snprintf(p->slices[slice].name, sizeof(p->slices[slice].name), "trunk");
	else
		snprintf(p->slices[slice].name, sizeof(p->slices[slice].name), "layer %" PRIu32,
			 slice - 1);
}

static void
end_run(struct placement *p)
{
	const struct run *run = &p->runs[p->n_runs - 1];

	p->bytes = round_up(run->arena_offset + run->bytes, IO_BLOCK);
	p->slices[run->slice].bytes = p->bytes - p->slices[run->slice].offset;
}

/* p->bytes, a multiple of IO_BLOCK, is where the last run's blocks end. */
static void
place_item(struct placement *p, const struct item *item)
{
	struct run *run = p->n_runs ? &p->runs[p->n_runs - 1] : NULL;
	uint64_t end = run ? run->file_offset + run->bytes : 0;

	if (run && run->slice == item->slice && run->shard == item->shard &&
	    (item->file_offset >= end ? item->file_offset - end < IO_BLOCK : item->strided)) {
		if (item->file_offset + item->bytes > end)
			run->bytes = item->file_offset + item->bytes - run->file_offset;
	} else {
		run = &p->runs[p->n_runs++];
		*run = (struct run){ .shard = item->shard,
				     .slice = item->slice,
				     .file_offset = item->file_offset,
				     .arena_offset = p->bytes + item->file_offset % IO_BLOCK,
				     .bytes = item->bytes };
	}
	*item->to = run->arena_offset + (item->file_offset - run->file_offset);
	end_run(p);
}

uint64_t
placement_expert_at(const struct arena_tensor *tensor, uint64_t expert)
{
	return tensor->file_offset +
	       expert * (tensor->stride ? tensor->stride : tensor->bytes / tensor->dims[2]);
}

/* The resident experts' matrices of the tensor.  Returns how many. */
static uint64_t
list_experts(struct placement *p, const struct resident *resident,
	     const struct arena_tensor *tensor, uint32_t layer, enum role role, struct item *ret)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < resident->n_experts; i++) {
		uint64_t which = (uint64_t)layer * resident->n_experts + i;

		if (resident->in[which])
			ret[n++] = (struct item){ .shard = tensor->shard,
						  .slice = tensor->slice,
						  .file_offset = placement_expert_at(tensor, i),
						  .bytes = tensor->bytes / resident->n_experts,
						  .to = &p->experts[which].role_offset[role] };
	}
	return n;
}

static uint64_t
list_items(struct placement *p, const struct resident *resident, struct arena_tensor *tensors,
	   uint64_t n_tensors, struct item *ret)
{
	uint64_t n = 0;

	for (uint64_t i = 0; i < n_tensors; i++) {
		struct arena_tensor *tensor = &tensors[i];
		uint64_t extent = 0;
		enum role role;
		int layer = model_expert_layer(tensor->name, &role);

		if (resident && layer >= 0) {
			n += list_experts(p, resident, tensor, (uint32_t)layer, role, ret + n);
			continue;
		}
		arena_tensor_extent(tensor, &extent); /* fits: assign_slices has looked */
		ret[n++] = (struct item){ .shard = tensor->shard,
					  .slice = tensor->slice,
					  .file_offset = tensor->file_offset,
					  .bytes = extent,
					  .strided = tensor->stride != 0,
					  .to = &tensor->offset };
	}
	qsort(ret, n, sizeof(*ret), compare_places);
	return n;
}

static void
place_all(struct placement *p, const struct item *items, uint64_t n)
{
	uint32_t begun = 0;

	for (uint64_t i = 0; i < n; i++) {
		while (begun <= items[i].slice)
			begin_slice(p, begun++);
		place_item(p, &items[i]);
	}
	while (begun < p->n_slices)
		begin_slice(p, begun++);
}

static void
place_window(struct placement *p, const struct resident *resident, struct arena_tensor *tensors,
	     uint64_t n_tensors)
{
	struct arena_slice *window = &p->slices[p->n_slices - 1];

	snprintf(window->name, sizeof(window->name), "window");
	window->bytes = resident->window_slots * resident->slot_bytes;
	p->bytes = window->offset + window->bytes;
	p->budget_bytes = resident->budget;
	for (uint64_t i = 0; i < n_tensors; i++)
		if (model_expert_layer(tensors[i].name, NULL) >= 0)
			tensors[i].offset = p->slices[tensors[i].slice].offset;
}

int
placement_open_resident(struct placement *ret, struct arena_tensor *tensors, uint64_t n_tensors,
			uint64_t header_bytes, const struct resident *resident, struct error *err)
{
	int64_t n_slices = assign_slices(tensors, n_tensors);
	uint64_t all = resident ? (uint64_t)resident->n_layers * resident->n_experts : 0;
	uint64_t most = n_tensors + all * N_ROLES;
	struct placement p = { .n_slices = (uint32_t)n_slices + (resident != NULL),
			       .n_experts = all };
	struct item *items;

	if (n_slices < 0)
		return error_set(err, -EOVERFLOW, "model: more than %llu bytes of tensors",
				 MAX_ARENA_BYTES);
	items = calloc(most + 1, sizeof(*items));
	p.slices = calloc(p.n_slices, sizeof(*p.slices));
	p.runs = calloc(most + 1, sizeof(*p.runs));
	p.experts = resident ? calloc(all + 1, sizeof(*p.experts)) : NULL;
	if (!items || !p.slices || !p.runs || (resident && !p.experts)) {
		free(items);
		placement_close(&p);
		return error_sys(err, -ENOMEM, "%" PRIu64 " tensors", most);
	}
	place_directory(&p, n_tensors, header_bytes);
	place_all(&p, items, list_items(&p, resident, tensors, n_tensors, items));
	free(items);
	if (resident)
		place_window(&p, resident, tensors, n_tensors);
	p.bytes = round_up(p.bytes, ARENA_SLICE_ALIGN);
	*ret = p;
	return 0;
}

int
placement_open(struct placement *ret, struct arena_tensor *tensors, uint64_t n_tensors,
	       uint64_t header_bytes, struct error *err)
{
	return placement_open_resident(ret, tensors, n_tensors, header_bytes, NULL, err);
}

void
placement_close(struct placement *placement)
{
	free(placement->slices);
	free(placement->runs);
	free(placement->experts);
	*placement = (struct placement){ 0 };
}
