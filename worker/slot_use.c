#include "worker/slot_use.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t
count_of(const struct model *model)
{
	return (size_t)model->n_layers * model->n_experts;
}

int
slot_use_open(struct slot_use *ret, const struct model *model)
{
	struct slot_use use = { .model = model };

	use.counts = calloc(count_of(model), sizeof(*use.counts));
	if (use.counts == NULL)
		return -ENOMEM;
	*ret = use;
	return 0;
}

void
slot_use_close(struct slot_use *use)
{
	free(use->counts);
	*use = (struct slot_use){ 0 };
}

static void
count_layer(struct slot_use *use, const struct slot_plan *slots, uint32_t layer)
{
	const struct experts *role = use->model->layers[layer].role;
	uint64_t bytes = role[ROLE_GATE].bytes + role[ROLE_UP].bytes + role[ROLE_DOWN].bytes;

	for (uint32_t expert = 0; expert < use->model->n_experts; expert++) {
		uint32_t which = layer * use->model->n_experts + expert;
		uint64_t n = use->counts[which];

		use->uses += n;
		if (slots->slot_of[which] == SLOT_NONE) {
			use->bytes_arena += n * bytes;
			continue;
		}
		use->hits += n;
		use->bytes_slots += n * bytes;
	}
}

int
slot_use_count(struct slot_use *use, const struct slot_plan *slots, const struct compute_ops *ops,
	       struct compute *compute)
{
	int rc;

	memset(use->counts, 0, count_of(use->model) * sizeof(*use->counts));
	rc = ops->usage(compute, use->counts);
	for (uint32_t layer = 0; rc == 0 && layer < use->model->n_layers; layer++)
		count_layer(use, slots, layer);
	return rc;
}

uint64_t
slot_use_tokens(const struct slot_use *use)
{
	return use->uses / ((uint64_t)use->model->n_layers * use->model->top_k);
}
