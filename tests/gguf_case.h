/* One GGUF file that is right or spoiled, and what the parser says of it (cmocka). */
#ifndef HEARTH_TESTS_GGUF_CASE_H
#define HEARTH_TESTS_GGUF_CASE_H

#include "tests/gguf_builder.h"

extern const uint64_t case_row[1]; /* the dimensions of 64 elements */

void case_good(struct builder *b);       /* one key, for a test to add to or spoil */
void case_add_weight(struct builder *b); /* "a.weight", 64 floats */

/* The parser's answer is `code`, its one line says `part` and the file's name.  Closes b. */
void case_refused(struct builder *b, int code, const char *part);

/* Parses; the caller closes both.  Closes b. */
void case_parse(struct builder *b, struct bytes *whole, struct gguf *gguf);

#endif
