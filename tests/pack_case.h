/* A small model in a folder of its own, its pack, and whole loads of either (cmocka). */
#ifndef HEARTH_TESTS_PACK_CASE_H
#define HEARTH_TESTS_PACK_CASE_H

#include "loader/load.h"
#include "loader/pack.h"
#include "tests/gguf_builder.h"

#define PACK_SLICES 5

extern char pack_model[96], pack_split[96], pack_path[96], pack_folder[64];

/* Set-up and tear-down of a test: the model in one file and in three, and no pack yet. */
int pack_setup(void **state);
int pack_teardown(void **state);
struct tiny pack_tiny(void); /* the model */

/* Makes the pack. */
void pack_make_one(void);

struct pack_loaded {
	uint64_t checksums[PACK_SLICES];
	char chosen[16], fallback[512], text[512]; /* the error's */
};

/* A whole load; `root` as of load_options. */
int pack_load(const char *path, const char *read, const char *root, struct pack_loaded *ret);

/* It must fail with -EBADMSG and one line that names the file and says `part`. */
void pack_refused(const char *part);

/* Puts bytes into the pack; with `seal` the directory's hash is made right again. */
void pack_patch(uint64_t offset, const void *bytes, size_t n, bool seal);
void pack_read_head(struct pack_head *ret);

#endif
