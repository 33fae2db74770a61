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

/* By slice, and inside one as the files have them. */
static int
compare_places(const void *a, const void *b)
{
	const struct arena_tensor *x = *(const struct arena_tensor *const *)a;
	const struct arena_tensor *y = *(const struct arena_tensor *const *)b;

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
	p->header_offset =
	    round_up(p->slices_offset + p->n_slices * sizeof(struct arena_slice), 64);
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
place_tensor(struct placement *p, struct arena_tensor *tensor)
{
	struct run *run = p->n_runs ? &p->runs[p->n_runs - 1] : NULL;
	uint64_t end = run ? run->file_offset + run->bytes : 0, extent = 0;

	arena_tensor_extent(tensor, &extent); /* fits: assign_slices has looked */
	if (run && run->slice == tensor->slice && run->shard == tensor->shard &&
	    (tensor->file_offset >= end ? tensor->file_offset - end < IO_BLOCK
					: tensor->stride != 0)) {
		if (tensor->file_offset + extent > end)
			run->bytes = tensor->file_offset + extent - run->file_offset;
	} else {
		run = &p->runs[p->n_runs++];
		*run = (struct run){ .shard = tensor->shard,
				     .slice = tensor->slice,
				     .file_offset = tensor->file_offset,
				     .arena_offset = p->bytes + tensor->file_offset % IO_BLOCK,
				     .bytes = extent };
	}
	tensor->offset = run->arena_offset + (tensor->file_offset - run->file_offset);
	end_run(p);
}

int
placement_open(struct placement *ret, struct arena_tensor *tensors, uint64_t n_tensors,
	       uint64_t header_bytes, struct error *err)
{
	int64_t n_slices = assign_slices(tensors, n_tensors);
	struct placement p = { .n_slices = (uint32_t)n_slices };
	struct arena_tensor **sorted;
	uint32_t begun = 0;

	if (n_slices < 0)
		return error_set(err, -EOVERFLOW, "model: more than %llu bytes of tensors",
				 MAX_ARENA_BYTES);
	sorted = calloc(n_tensors + 1, sizeof(struct arena_tensor *));
	p.slices = calloc(p.n_slices, sizeof(*p.slices));
	p.runs = calloc(n_tensors + 1, sizeof(*p.runs));
	if (!sorted || !p.slices || !p.runs) {
		free(sorted);
		placement_close(&p);
		return error_sys(err, -ENOMEM, "%" PRIu64 " tensors", n_tensors);
	}
	for (uint64_t i = 0; i < n_tensors; i++)
		sorted[i] = &tensors[i];
	qsort(sorted, n_tensors, sizeof(struct arena_tensor *), compare_places);
	place_directory(&p, n_tensors, header_bytes);
	for (uint64_t i = 0; i < n_tensors; i++) {
		while (begun <= sorted[i]->slice)
			begin_slice(&p, begun++);
		place_tensor(&p, sorted[i]);
	}
	while (begun < p.n_slices)
		begin_slice(&p, begun++);
	p.bytes = round_up(p.bytes, ARENA_SLICE_ALIGN);
	free(sorted);
	*ret = p;
	return 0;
}

void
placement_close(struct placement *placement)
{
	free(placement->slices);
	free(placement->runs);
	*placement = (struct placement){ 0 };
}
