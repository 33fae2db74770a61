/* A start of the loader in one process: a model in one file and in three, the boards of loader and
 * pinner, and a service that is never told to leave (cmocka). */
#ifndef HEARTH_TESTS_LOAD_CASE_H
#define HEARTH_TESTS_LOAD_CASE_H

#include "loader/load.h"
#include "tests/scratch.h"

#define LOAD_SLICES 5

struct load_case {
	char model[96], split[96]; /* one of three */
	struct service service;
	struct board *board, *pinner;
	struct error err;
};

extern struct load_case loading;

int load_case_setup(void **state);
int load_case_teardown(void **state); /* the kernel's switches too */

/* Of a model, with the reader `read`; of the one in one file, buffered, on such pages. */
struct load_options load_case_options(const char *model, const char *read);
struct load_options load_case_pages(enum arena_pages pages);
struct load load_case_new(const struct load_options *options);

/* To an arena; to a whole one.  What failed is in loading.err. */
int load_case_take_arena(struct load *load);
int load_case_run(struct load *load);

/* The pinner tells of the arena, and that the first `filled` slices are. */
void load_case_show(const struct load *load, uint32_t filled);

#endif
