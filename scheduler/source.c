#include "scheduler/source.h"

#include <errno.h>

#include "common/arena.h"
#include "common/gguf.h"

static int
read_tokenizer(const struct arena *arena, struct tokenizer **ret, struct error *note,
	       struct error *err)
{
	const struct arena_head *head = arena->head;
	struct tokenizer *tokenizer = NULL;
	struct gguf gguf = { 0 };
	int code;

	/* The header alone is there: what it says of the data behind it was the loader's to check.
	 */
	code = gguf_parse(&gguf, arena->base + head->header_offset, head->header_bytes, UINT64_MAX,
			  head->model, err);
	if (code < 0)
		return code;
	code = tokenizer_open(&tokenizer, &gguf, note);
	gguf_close(&gguf);
	if (code == -ENOMEM) {
		*err = *note;
		return code;
	}
	*ret = tokenizer;
	return 0;
}

int
source_read(const Hearth__State *from, struct tokenizer **ret, struct error *note,
	    struct error *err)
{
	struct arena_want want = { .bytes = from->arena->bytes,
				   .stamp = from->arena->stamp,
				   .layout_hash = from->arena->layout_hash };
	struct arena arena = { 0 };
	int code = arena_attach(&arena, from->arena->path, false, &want, err);

	if (code < 0)
		return code;
	code = read_tokenizer(&arena, ret, note, err);
	arena_close(&arena);
	return code;
}
