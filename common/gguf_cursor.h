/* A bounded walk over the bytes of a GGUF header.  Nothing is read, pointed at or counted that the
 * file does not hold.  -EBADMSG: the file cannot hold it; -ENODATA: only the bytes in hand end. */
#ifndef HEARTH_COMMON_GGUF_CURSOR_H
#define HEARTH_COMMON_GGUF_CURSOR_H

#include "common/gguf.h"

/* Where the parser stands.  `what` names the thing being read, for messages. */
struct cursor {
	const uint8_t *bytes;
	uint64_t at;
	uint64_t n;          /* in hand */
	uint64_t file_bytes; /* n <= file_bytes */
	const char *file;
	struct error *err;
	char what[96];
};

/* Sets `what` to kind and a text from the file, made fit for one line. */
void cursor_name(struct cursor *c, const char *kind, struct gguf_string name);

int cursor_need(struct cursor *c, uint64_t bytes);
int cursor_take(struct cursor *c, void *ret, size_t bytes);
int cursor_string(struct cursor *c, struct gguf_string *ret);

/* A key or a tensor's name: bounded, and fit to be a C string.  Sets `what`. */
int cursor_label(struct cursor *c, const char *kind, uint64_t max, struct gguf_string *ret);

/* Each of `count` things takes at least `min` bytes: a count that cannot fit ends here, before
 * anything is allocated for it. */
int cursor_count(struct cursor *c, uint64_t count, uint64_t min, const char *things);

#endif
