/* The rest of model.h: the model of an arena, names of expert tensors, places inside a slot. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/model.h"
#include "proto/limits.h"

int
model_read_arena(struct model *ret, const struct arena *arena, struct error *err)
{
	const struct arena_head *head = arena->head;
	struct gguf gguf;
	int rc;

	/* The arena does not say how long the file was: the loader has checked what lies in it. */
	rc = gguf_parse(&gguf, arena->base + head->header_offset, head->header_bytes, UINT64_MAX,
			head->model, err);
	if (rc < 0)
		return rc == -ENODATA ? -EBADMSG : rc;
	rc = model_read(ret, &gguf, arena->tensors, head->n_tensors, head->model, err);
	gguf_close(&gguf);
	return rc;
}

int
model_expert_layer(const char *tensor_name, enum role *ret_role)
{
	static const char *const parts[N_ROLES] = {
		".ffn_gate_exps.weight",
		".ffn_up_exps.weight",
		".ffn_down_exps.weight",
	};
	const char *at = tensor_name + 4;
	int layer = 0;

	if (strncmp(tensor_name, "blk.", 4) != 0 || *at < '0' || *at > '9' ||
	    (at[0] == '0' && at[1] != '.'))
		return -1;
	for (; *at >= '0' && *at <= '9'; at++) {
		layer = layer * 10 + (*at - '0');
		if (layer >= (int)MAX_LAYERS)
			return -1;
	}
	for (enum role role = 0; role < N_ROLES; role++) {
		if (strcmp(at, parts[role]) != 0)
			continue;
		if (ret_role)
			*ret_role = role;
		return layer;
	}
	return -1;
}

uint64_t
arena_expert_offset(const struct arena *arena, const struct model *model, uint32_t layer,
		    uint32_t expert, enum role role)
{
	const struct experts *at = &model->layers[layer].role[role];
	uint64_t which = (uint64_t)layer * model->n_experts + expert;

	if (!arena->experts)
		return at->offset + expert * at->stride;
	return which < arena->head->n_experts ? arena->experts[which].role_offset[role] : 0;
}

uint64_t
model_slot_offset(const struct model_layer *layer, enum role role)
{
	uint64_t offset = 0;

	for (enum role before = 0; before < role; before++)
		offset += round_up(layer->role[before].bytes, EXPERT_ALIGN);
	return offset;
}

uint64_t
model_slot_bytes(const struct model *model)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < model->n_layers; i++) {
		uint64_t bytes = model_slot_offset(&model->layers[i], N_ROLES);

		if (bytes > most)
			most = bytes;
	}
	return most;
}
