#include "tests/arena_maker.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checked.h"
#include "common/model.h"

#define DIRECTORY_BYTES ARENA_SLICE_ALIGN
#define TENSORS_AT 4096u
#define TENSOR_ALIGN 64u

static uint32_t
slice_of(const char *name)
{
	return (uint32_t)(model_expert_layer(name, NULL) + 1);
}

/* Fills the two tables; returns the arena's bytes. */
static uint64_t
place(const struct gguf *gguf, struct arena_tensor *tensors, struct arena_slice *slices,
      uint32_t n_slices)
{
	uint64_t at = DIRECTORY_BYTES;

	for (uint32_t slice = 0; slice < n_slices; slice++) {
		at = round_up(at, ARENA_SLICE_ALIGN);
		slices[slice].offset = at;
		if (slice == 0)
			strcpy(slices[slice].name, "trunk");
		else
			snprintf(slices[slice].name, sizeof(slices[slice].name), "layer %u",
				 slice - 1);
		for (uint64_t i = 0; i < gguf->n_tensors; i++) {
			const struct gguf_tensor *from = &gguf->tensors[i];
			struct arena_tensor *to = &tensors[i];

			memcpy(to->name, from->name.at, from->name.bytes);
			if (slice_of(to->name) != slice)
				continue;
			to->type = from->type;
			to->n_dims = from->n_dims;
			memcpy(to->dims, from->dims, sizeof(to->dims));
			to->bytes = from->bytes;
			to->file_offset = from->offset;
			to->slice = slice;
			to->offset = at = round_up(at, TENSOR_ALIGN);
			at += to->bytes;
		}
		at = round_up(at, 4096);
		slices[slice].bytes = at - slices[slice].offset;
	}
	return at;
}

void
arena_make(struct arena *ret, const struct tiny *tiny)
{
	uint32_t n_slices = 1 + tiny->layers;
	struct arena_tensor *tensors;
	struct arena_slice *slices;
	struct arena_head *head;
	struct builder builder;
	struct bytes file;
	struct gguf gguf;
	struct error err;
	uint64_t bytes;

	builder_open(&builder);
	tiny_build(&builder, tiny);
	builder_finish(&builder, &file);
	builder_close(&builder);
	if (gguf_parse(&gguf, file.at, file.n, file.n, "tiny.gguf", &err) < 0)
		abort();
	tensors = calloc(gguf.n_tensors, sizeof(*tensors));
	slices = calloc(n_slices, sizeof(*slices));
	bytes = place(&gguf, tensors, slices, n_slices);
	if (arena_create(ret, bytes, ARENA_PAGES_AUTO, &err) < 0)
		abort();
	head = (struct arena_head *)ret->base;
	*head = (struct arena_head){
		.magic = ARENA_MAGIC,
		.bytes = ret->bytes,
		.stamp = 0x1234 + tiny->seed,
		.fingerprint = 0x5678 + tiny->seed,
		.tensors_offset = TENSORS_AT,
		.n_tensors = gguf.n_tensors,
		.slices_offset = TENSORS_AT + gguf.n_tensors * sizeof(*tensors),
		.n_slices = n_slices,
		.header_bytes = gguf.header_bytes,
		.model = "tiny.gguf",
	};
	head->header_offset = head->slices_offset + n_slices * sizeof(*slices);
	assert(head->header_offset + head->header_bytes <= DIRECTORY_BYTES);
	memcpy(ret->base + head->tensors_offset, tensors, gguf.n_tensors * sizeof(*tensors));
	memcpy(ret->base + head->slices_offset, slices, n_slices * sizeof(*slices));
	memcpy(ret->base + head->header_offset, file.at, gguf.header_bytes);
	for (uint64_t i = 0; i < gguf.n_tensors; i++)
		memcpy(ret->base + tensors[i].offset, file.at + tensors[i].file_offset,
		       tensors[i].bytes);
	ret->head = head;
	ret->tensors = (const void *)(ret->base + head->tensors_offset);
	ret->slices = (const void *)(ret->base + head->slices_offset);
	head->layout_hash = arena_layout_hash(ret);
	if (arena_check(ret, &err) < 0)
		abort();
	gguf_close(&gguf);
	bytes_close(&file);
	free(tensors);
	free(slices);
}
