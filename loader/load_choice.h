/* The choice of a reader as a start of the loader makes it: gathers the facts before anything is
 * reserved or read, and keeps the verdict with its numbers in load->choice. */
#ifndef HEARTH_LOADER_LOAD_CHOICE_H
#define HEARTH_LOADER_LOAD_CHOICE_H

#include "loader/load.h"

/* -ENOTSUP names a file that cannot be read direct: said before there is an arena. */
int load_check_direct(const struct load *load, struct error *err);

/* Once load->pieces are known and load->available is; nobody reads the drive yet.
 * Also says how many threads are to read. */
int load_choose(struct load *load, struct error *err);

/* With a budget, once the resident set is built and before anything is served from the files:
 * again, from what is available now and the `outside` bytes that are really still read.  True: the
 * reader is another now (load->choice.direct).  The log and the state say so with the numbers. */
bool load_choose_again(struct load *load, uint64_t outside);

/* `auto` chose direct, and it is not to be had: buffered, once, and `why` goes into the state. */
void load_fall_back(struct load *load, const char *why);

/* Into the state's reader, between edit and publish. */
void load_fill_choice(const struct load *load, Hearth__Reader *reader);

#endif
