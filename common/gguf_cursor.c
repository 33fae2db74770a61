#include "common/gguf_cursor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void
cursor_name(struct cursor *c, const char *kind, struct gguf_string name)
{
	size_t n = (size_t)snprintf(c->what, sizeof(c->what), "%s", kind);

	for (uint64_t i = 0; i < name.bytes && n < sizeof(c->what) - 1; i++) {
		char at = name.at[i];

		c->what[n++] = (char)(at >= ' ' && at < 0x7f ? at : '?');
	}
	c->what[n] = '\0';
}

int
cursor_need(struct cursor *c, uint64_t bytes)
{
	if (bytes > c->file_bytes - c->at)
		return error_set(c->err, -EBADMSG,
				 "%s: %" PRIu64 " bytes at %" PRIu64
				 " do not fit, the file ends at %" PRIu64 " (%s)",
				 c->what, bytes, c->at, c->file_bytes, c->file);
	if (bytes > c->n - c->at)
		return error_set(c->err, -ENODATA,
				 "%s: the header goes on behind %" PRIu64 " bytes (%s)", c->what,
				 c->n, c->file);
	return 0;
}

int
cursor_take(struct cursor *c, void *ret, size_t bytes)
{
	int rc = cursor_need(c, bytes);

	if (rc < 0)
		return rc;
	memcpy(ret, c->bytes + c->at, bytes);
	c->at += bytes;
	return 0;
}

int
cursor_string(struct cursor *c, struct gguf_string *ret)
{
	uint64_t bytes;
	int rc = cursor_take(c, &bytes, sizeof(bytes));

	if (rc < 0)
		return rc;
	rc = cursor_need(c, bytes);
	if (rc < 0)
		return rc;
	*ret = (struct gguf_string){ (const char *)c->bytes + c->at, bytes };
	c->at += bytes;
	return 0;
}

int
cursor_label(struct cursor *c, const char *kind, uint64_t max, struct gguf_string *ret)
{
	struct gguf_string label;
	int rc = cursor_string(c, &label);

	if (rc < 0)
		return rc;
	if (label.bytes == 0 || label.bytes > max)
		return error_set(c->err, -EBADMSG,
				 "%s: a name of %" PRIu64 " bytes, want 1 to %" PRIu64 " (%s)",
				 c->what, label.bytes, max, c->file);
	cursor_name(c, kind, label);
	if (memchr(label.at, '\0', label.bytes))
		return error_set(c->err, -EBADMSG, "%s: a NUL byte in the name (%s)", c->what,
				 c->file);
	*ret = label;
	return 0;
}

int
cursor_count(struct cursor *c, uint64_t count, uint64_t min, const char *things)
{
	if (count > (c->file_bytes - c->at) / min)
		return error_set(c->err, -EBADMSG,
				 "%s: %" PRIu64 " %s, but only %" PRIu64
				 " bytes of the file follow (%s)",
				 c->what, count, things, c->file_bytes - c->at, c->file);
	return count > (c->n - c->at) / min ? cursor_need(c, count * min) : 0;
}
