#include "tests/gguf_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/types.h"

const uint64_t case_row[1] = { 64 };

void
case_good(struct builder *b)
{
	builder_open(b);
	builder_string(b, "general.architecture", "any");
}

void
case_add_weight(struct builder *b)
{
	builder_tensor(b, "a.weight", TYPE_F32, 1, case_row, NULL, 256);
}

void
case_refused(struct builder *b, int code, const char *part)
{
	struct bytes whole;
	struct error err = { "" };
	struct gguf gguf;

	builder_finish(b, &whole);
	assert_int_equal(gguf_parse(&gguf, whole.at, whole.n, whole.n, "bad.gguf", &err), code);
	if (!strstr(err.text, part) || !strstr(err.text, "bad.gguf"))
		fail_msg("\"%s\" does not say \"%s\"", err.text, part);
	assert_null(strchr(err.text, '\n'));
	bytes_close(&whole);
	builder_close(b);
}

void
case_parse(struct builder *b, struct bytes *whole, struct gguf *gguf)
{
	struct error err = { "" };

	builder_finish(b, whole);
	if (gguf_parse(gguf, whole->at, whole->n, whole->n, "good.gguf", &err) != 0)
		fail_msg("%s", err.text);
	builder_close(b);
}
