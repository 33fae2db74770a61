/* A whole arena for tests of what comes behind the loader: the tiny model, placed one tensor after
 * the other. */
#ifndef HEARTH_TESTS_ARENA_MAKER_H
#define HEARTH_TESTS_ARENA_MAKER_H

#include "common/arena.h"
#include "tests/gguf_builder.h"

/* The caller closes it. */
void arena_make(struct arena *ret, const struct tiny *tiny);

#endif
