// links: common/gguf.c common/gguf_find.c common/gguf_cursor.c common/types.c common/error.c
// links: common/model.c common/model_keys.c common/model_layout.c common/checksum.c
// links: common/utf8.c loader/placement.c loader/pieces.c
/* A GGUF header of any bytes, and of what parses the model, its placement and its pieces. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/model.h"
#include "loader/pieces.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void
fuzz_places(struct arena_tensor *tensors, uint64_t n)
{
	struct placement placement;
	struct checksum_plan plan;
	struct pieces pieces;
	struct error err;

	if (placement_open(&placement, tensors, n, 1000, &err) < 0)
		return;
	if (checksum_plan_open(&plan, tensors, n, placement.n_slices, &err) == 0) {
		if (pieces_open(&pieces, &placement, &plan, NULL, &err) == 0)
			pieces_close(&pieces);
		checksum_plan_close(&plan);
	}
	placement_close(&placement);
}

static void
fuzz_model(const struct gguf *gguf)
{
	struct arena_tensor *tensors = calloc(gguf->n_tensors + 1, sizeof(*tensors));
	struct model model;
	struct error err;

	if (!tensors)
		abort();
	for (uint64_t i = 0; i < gguf->n_tensors; i++) {
		const struct gguf_tensor *from = &gguf->tensors[i];

		memcpy(tensors[i].name, from->name.at, from->name.bytes);
		memcpy(tensors[i].dims, from->dims, sizeof(from->dims));
		tensors[i].type = from->type;
		tensors[i].n_dims = from->n_dims;
		tensors[i].bytes = from->bytes;
		tensors[i].file_offset = from->offset;
	}
	if (model_read(&model, gguf, tensors, gguf->n_tensors, "fuzz", &err) == 0)
		model_close(&model);
	fuzz_places(tensors, gguf->n_tensors);
	free(tensors);
}

/* A header in hand may be shorter than the file: then -ENODATA is an answer too. */
int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct error err;
	struct gguf gguf;

	if (gguf_parse(&gguf, bytes, n, n + 4096, "fuzz", &err) == 0)
		gguf_close(&gguf);
	if (gguf_parse(&gguf, bytes, n, n, "fuzz", &err) < 0)
		return 0;
	for (uint64_t i = 0; i < gguf.n_tensors; i++)
		if (gguf.tensors[i].offset + gguf.tensors[i].bytes > n)
			abort();
	fuzz_model(&gguf);
	gguf_close(&gguf);
	return 0;
}
