#include "loader/directory.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/checked.h"
#include "loader/io.h"

struct arena_head
directory_head(const struct placement *placement, const struct model_files *files)
{
	struct arena_head head = {
		.magic = ARENA_MAGIC,
		.bytes = placement->bytes,
		.stamp = files->stamp,
		.fingerprint = files->fingerprint,
		.tensors_offset = placement->tensors_offset,
		.n_tensors = files->n_tensors,
		.slices_offset = placement->slices_offset,
		.n_slices = placement->n_slices,
		.flags = placement->experts ? ARENA_BUDGET : 0,
		.budget_bytes = placement->budget_bytes,
		.experts_offset = placement->experts_offset,
		.n_experts = placement->n_experts,
		.header_offset = placement->header_offset,
		.header_bytes = files->shards[0].gguf.header_bytes,
	};
	struct arena tables = { .head = &head,
				.tensors = files->tensors,
				.slices = placement->slices,
				.experts = placement->experts };

	snprintf(head.model, sizeof(head.model), "%s", files->shards[0].path);
	head.layout_hash = arena_layout_hash(&tables);
	return head;
}

int
directory_write(struct arena *arena, const struct arena_head *head,
		const struct placement *placement, const struct model_files *files,
		struct error *err)
{
	uint64_t bytes = round_up(head->header_offset + head->header_bytes, IO_BLOCK);
	int rc = io_system.populate(arena->base, bytes);

	if (rc < 0)
		return error_sys(err, rc, "arena: no memory for %" PRIu64 " bytes of directory",
				 bytes);
	memcpy(arena->base, head, sizeof(*head));
	memcpy(arena->base + head->tensors_offset, files->tensors,
	       head->n_tensors * sizeof(*files->tensors));
	memcpy(arena->base + head->slices_offset, placement->slices,
	       head->n_slices * sizeof(*placement->slices));
	if (placement->experts)
		memcpy(arena->base + head->experts_offset, placement->experts,
		       head->n_experts * sizeof(*placement->experts));
	memcpy(arena->base + head->header_offset, files->shards[0].header, head->header_bytes);
	return arena_check(arena, err);
}
